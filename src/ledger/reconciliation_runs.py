"""Runs of reconciliation: who asked, over which window, how far, and with what result.

The statements of reconciliation are set-based, so they are written as SQL, each under a name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from asyncpg import Record

from ledger.database import Connection, Database
from operations.reconciliation import RunState, Trigger

MIN_AGE = timedelta(seconds=60)
"""Records and effects younger than this are left to the operations that are making them."""

OVERLAP = timedelta(hours=2)
"""Each run looks again at what the runs before it have seen: slow books, and remedies that had to
wait for an operation to end."""

FIRST_LOOK_BACK = timedelta(days=30)
"""How far the first run of a provider looks back: what a month's statement covers."""

RUN_SECONDS_MAX = 6 * 3600.0
"""A run asked for by a person may take this long, whatever its window."""

_ROW = """id, provider, requested_by, key, fingerprint, trigger, dry_run, since, until, state,
    fetch_cursor, fetched, match_cursor, sweep_cursor, counts, sums, preview, workflow_id, failure,
    created_at, started_at, deadline_at, ended_at"""

_WATERMARK = "SELECT watermark FROM reconciliation_providers WHERE provider = $1"
_INSERT = f"""
INSERT INTO reconciliation_runs (provider, requested_by, key, fingerprint, trigger, dry_run,
    moves_watermark, since, until, state, workflow_id, created_at, deadline_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'accepted', $10, $11, $12)
ON CONFLICT (provider, requested_by, key) DO NOTHING
RETURNING {_ROW}"""  # noqa: S608 - constants only, here and below
_BY_KEY = f"""
SELECT {_ROW} FROM reconciliation_runs
WHERE provider = $1 AND requested_by = $2 AND key = $3"""  # noqa: S608
_READ = f"SELECT {_ROW} FROM reconciliation_runs WHERE id = $1"  # noqa: S608
_BEGIN = f"""
UPDATE reconciliation_runs
SET state = 'running', started_at = coalesce(started_at, $2), deadline_at = $3
WHERE id = $1 AND ended_at IS NULL
RETURNING {_ROW}"""  # noqa: S608
_PAGE = f"""
SELECT {_ROW} FROM reconciliation_runs
WHERE provider = $1 AND id < $2 ORDER BY id DESC LIMIT $3"""  # noqa: S608
_NEVER_STARTED = f"""
SELECT {_ROW} FROM reconciliation_runs
WHERE state = 'accepted' AND created_at < $1 ORDER BY id LIMIT 20"""  # noqa: S608
_LOST = f"""
UPDATE reconciliation_runs
SET state = 'failed', ended_at = $1, failure = 'It was stopped, or ran out of time'
WHERE id IN (
    SELECT id FROM reconciliation_runs
    WHERE state IN ('accepted', 'running') AND deadline_at < $1
    ORDER BY deadline_at LIMIT 20 FOR UPDATE SKIP LOCKED)
RETURNING {_ROW}"""  # noqa: S608
_FAIL = """
UPDATE reconciliation_runs SET state = 'failed', ended_at = $2, failure = $3
WHERE id = $1 AND ended_at IS NULL"""
_FORGET_RECORDS = "DELETE FROM reconciliation_records WHERE run_id = ANY($1::bigint[])"
_SCHEDULE = """
SELECT provider, every_seconds, paused, watermark, revision
FROM reconciliation_providers WHERE provider = $1"""
_SET_SCHEDULE = """
INSERT INTO reconciliation_providers AS known (provider, every_seconds, paused, updated_at)
VALUES ($1, $2, $3, $4)
ON CONFLICT (provider) DO UPDATE
SET every_seconds = excluded.every_seconds, paused = excluded.paused,
    revision = known.revision + 1, updated_at = excluded.updated_at
RETURNING provider, every_seconds, paused, watermark, revision"""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is asked of a run. Times that are not given follow from the watermark."""

    provider: str
    requested_by: str
    key: str
    fingerprint: bytes
    trigger: Trigger
    workflow_id: str
    since: datetime | None = None
    until: datetime | None = None
    dry_run: bool = False
    seconds_max: float = RUN_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row of `reconciliation_runs`."""

    id: int
    provider: str
    requested_by: str
    key: str
    fingerprint: bytes
    trigger: Trigger
    dry_run: bool
    since: datetime
    until: datetime
    state: RunState
    fetch_cursor: str | None
    fetched: bool
    match_cursor: str
    sweep_cursor: str
    counts: dict[str, int]
    sums: dict[str, Any]
    preview: list[dict[str, Any]]
    workflow_id: str
    failure: str | None
    created_at: datetime
    started_at: datetime | None
    deadline_at: datetime
    ended_at: datetime | None
    fresh: bool = False
    """Whether this call made it."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.ended_at is not None

    def made(self, *, fresh: bool) -> "RunRow":
        """The same row, with who made it."""
        return replace(self, fresh=fresh)


@dataclass(frozen=True, slots=True)
class ProviderSchedule:
    """How often a provider is reconciled, and up to where it has been."""

    provider: str
    every_seconds: int | None = None
    paused: bool = False
    watermark: datetime | None = None
    revision: int = 0


class ReconciliationRuns:
    """Rows of runs and schedules. Every method raises StorageUnavailable."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def request(self, request: RunRequest, *, now: datetime) -> RunRow:
        """Make the row of a run, or find the one that was first, in one transaction.

        Raises ValueError when the window is empty.
        """
        known_by = (request.provider, request.requested_by, request.key)
        async with self._database.transaction() as connection:
            first = await connection.fetchrow(_BY_KEY, *known_by)
            if first is not None:
                return _read(first)
            since, until = await _window(connection, request, now=now)
            row = await connection.fetchrow(
                _INSERT,
                request.provider,
                request.requested_by,
                request.key,
                request.fingerprint,
                request.trigger.value,
                request.dry_run,
                request.since is None and request.until is None and not request.dry_run,
                since,
                until,
                request.workflow_id,
                now,
                now + timedelta(seconds=request.seconds_max),
            )
            if row is not None:
                return _read(row, fresh=True)
            first = await connection.fetchrow(_BY_KEY, *known_by)
            assert first is not None
            return _read(first)

    async def begin(self, run_id: int, *, seconds_max: float, now: datetime) -> RunRow | None:
        """Mark a run as under way, in its own transaction; None when it has ended."""
        deadline = now + timedelta(seconds=seconds_max)
        return await self._one(_BEGIN, run_id, now, deadline)

    async def read(self, run_id: int) -> RunRow | None:
        """The row of a run."""
        return await self._one(_READ, run_id)

    async def page(self, provider: str, *, before_id: int, limit: int) -> tuple[RunRow, ...]:
        """Up to `limit` runs of a provider, newest first, older than `before_id`."""
        return await self._many(_PAGE, provider, before_id, limit)

    async def never_started(self, *, before: datetime) -> tuple[RunRow, ...]:
        """Runs that were asked for before `before`, and that no workflow has taken up."""
        return await self._many(_NEVER_STARTED, before)

    async def give_up_lost(self, *, now: datetime) -> tuple[RunRow, ...]:
        """Fail runs past their deadline and forget their records, in one transaction."""
        async with self._database.transaction() as connection:
            lost = tuple(_read(row) for row in await connection.fetch(_LOST, now))
            if lost:
                await connection.execute(_FORGET_RECORDS, [run.id for run in lost])
        return lost

    async def fail(self, run_id: int, *, failure: str, now: datetime) -> None:
        """End a run without a result and forget its records, in one transaction."""
        async with self._database.transaction() as connection:
            await connection.execute(_FAIL, run_id, now, failure)
            await connection.execute(_FORGET_RECORDS, [run_id])

    async def schedule(self, provider: str) -> ProviderSchedule:
        """A provider's schedule, as a person set it."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_SCHEDULE, provider)
        return ProviderSchedule(provider) if row is None else ProviderSchedule(**dict(row))

    async def set_schedule(
        self, provider: str, *, every_seconds: int, paused: bool, now: datetime
    ) -> ProviderSchedule:
        """Set a provider's schedule, in its own transaction."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_SET_SCHEDULE, provider, every_seconds, paused, now)
        assert row is not None
        return ProviderSchedule(**dict(row))

    async def _one(self, sql: str, *arguments: object) -> RunRow | None:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(sql, *arguments)
        return None if row is None else _read(row)

    async def _many(self, sql: str, *arguments: object) -> tuple[RunRow, ...]:
        async with self._database.connection() as connection:
            rows: Sequence[Record] = await connection.fetch(sql, *arguments)
        return tuple(_read(row) for row in rows)


async def _window(
    connection: Connection, request: RunRequest, *, now: datetime
) -> tuple[datetime, datetime]:
    """[watermark - overlap, now - min_age), unless the request says otherwise.

    A person who asks now wants to see what is there now: what is young and belongs to an operation
    under way is told apart by its key.
    """
    age = MIN_AGE if request.trigger is Trigger.SCHEDULE else timedelta(0)
    until = request.until or now - age
    since = request.since
    if since is None:
        watermark = await connection.fetchval(_WATERMARK, request.provider)
        since = until - FIRST_LOOK_BACK if watermark is None else watermark - OVERLAP
    if since >= until:
        raise ValueError("The window is empty: `since` must lie before `until`")
    return since, until


def _read(row: Record, *, fresh: bool = False) -> RunRow:
    values: dict[str, Any] = {
        **dict(row),
        "trigger": Trigger(row["trigger"]),
        "state": RunState(row["state"]),
        "fresh": fresh,
    }
    return RunRow(**values)
