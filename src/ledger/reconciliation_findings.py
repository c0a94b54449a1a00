"""Findings: each once per (provider, kind, subject), with evidence, history and a revision."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asyncpg import Record

from ledger.database import Connection, Database
from ledger.reconciliation_events import tell_opened
from ledger.reconciliation_runs import RunRow
from ledger.verdicts import ROBOT
from operations.failpoints import Failpoint, fail_at
from operations.halves import Finding
from operations.reconciliation import FindingKind, FindingState, Remedy, RemedyState, RunState

_FOUND = "found"
"""What happened to a finding that is new, in its history."""

_ROW = """id, provider, kind, subject, record_id, effect_key, claim_id, amount_minor, currency,
    occurred_at, state, remedy, remedy_state, evidence, note, resolved_by, first_run_id,
    last_run_id, runs_in_a_row, revision, opened_at, updated_at"""

# A finding that a person has resolved stays so. One that resolved itself, because it was gone, is
# opened again; one whose undo is done is not: the provider's list may be behind.
_REOPENS = """(known.state = 'resolved' AND known.resolved_by = 'reconciliation'
        AND NOT (known.remedy = 'undo' AND known.remedy_state = 'done'))"""
_CLOSED = "(known.state = 'resolved' AND NOT " + _REOPENS + ")"
_PLAN = f"({_REOPENS} OR (NOT {_CLOSED} AND known.remedy_state = 'none'))"
_CHANGED = f"""({_REOPENS} OR (NOT {_CLOSED} AND (known.evidence <> excluded.evidence
        OR ({_PLAN} AND known.remedy <> excluded.remedy))))"""
_UPSERT = f"""
WITH given AS (
    SELECT * FROM jsonb_to_recordset($1) AS g (kind text, subject text, record_id text,
        effect_key text, claim_id bigint, amount_minor bigint, currency text,
        occurred_at timestamptz, remedy text, remedy_state text, evidence jsonb)
), before AS (
    SELECT f.id, f.state FROM reconciliation_findings AS f JOIN given USING (kind, subject)
    WHERE f.provider = $2
), written AS (
    INSERT INTO reconciliation_findings AS known (provider, kind, subject, record_id, effect_key,
        claim_id, amount_minor, currency, occurred_at, state, remedy, remedy_state, evidence,
        first_run_id, last_run_id, opened_at, updated_at)
    SELECT $2, kind, subject, record_id, effect_key, claim_id, amount_minor, currency, occurred_at,
        'open', remedy, remedy_state, evidence, $3, $3, $4, $4
    FROM given ORDER BY kind, subject
    ON CONFLICT (provider, kind, subject) DO UPDATE SET
        last_run_id = greatest(known.last_run_id, excluded.last_run_id),
        runs_in_a_row = known.runs_in_a_row + (known.last_run_id < excluded.last_run_id)::int,
        state = CASE WHEN {_REOPENS} THEN 'open' ELSE known.state END,
        resolved_by = CASE WHEN {_REOPENS} THEN NULL ELSE known.resolved_by END,
        evidence = CASE WHEN {_CLOSED} THEN known.evidence ELSE excluded.evidence END,
        remedy = CASE WHEN {_PLAN} THEN excluded.remedy ELSE known.remedy END,
        remedy_state = CASE WHEN {_PLAN} THEN excluded.remedy_state ELSE known.remedy_state END,
        revision = known.revision + {_CHANGED}::int,
        updated_at = CASE WHEN {_CHANGED} THEN excluded.updated_at ELSE known.updated_at END
    RETURNING known.id, known.state, known.first_run_id
)
INSERT INTO reconciliation_history (finding_id, state, happened, by, run_id, at)
SELECT w.id, w.state,
    CASE WHEN b.id IS NULL AND w.first_run_id = $3 THEN $6 ELSE 'found again' END, $5, $3, $4
FROM written AS w LEFT JOIN before AS b USING (id)
WHERE b.id IS NULL OR b.state IS DISTINCT FROM w.state
RETURNING finding_id, happened"""  # noqa: S608 - constants only
_READ = f"SELECT {_ROW} FROM reconciliation_findings WHERE id = $1"  # noqa: S608
_HISTORY = """
SELECT state, happened, note, by, run_id, at FROM reconciliation_history
WHERE finding_id = $1 ORDER BY id LIMIT 200"""
_PAGE = f"""
SELECT {_ROW} FROM reconciliation_findings
WHERE id < $1 AND ($2::text IS NULL OR provider = $2) AND ($3::text IS NULL OR kind = $3)
    AND ($4::text IS NULL OR state = $4)
ORDER BY id DESC LIMIT $5"""  # noqa: S608
_OF_RUN = f"""
SELECT {_ROW} FROM reconciliation_findings
WHERE provider = $1 AND last_run_id = $2 ORDER BY kind, id LIMIT $3"""  # noqa: S608
_PLANNED = f"""
SELECT {_ROW} FROM reconciliation_findings
WHERE provider = $1 AND state IN ('open', 'acknowledged') AND remedy_state = 'planned' AND id > $2
ORDER BY id LIMIT $3"""  # noqa: S608
_SET_STATE = f"""
UPDATE reconciliation_findings
SET state = $3, note = coalesce($4, note), resolved_by = CASE WHEN $3 = 'resolved' THEN $5 END,
    revision = revision + 1, updated_at = $6
WHERE id = $1 AND revision = $2
RETURNING {_ROW}"""  # noqa: S608
_REMEDIED = """
WITH done AS (
    UPDATE reconciliation_findings
    SET remedy_state = $2, state = CASE WHEN $2 = 'done' THEN 'resolved' ELSE state END,
        resolved_by = CASE WHEN $2 = 'done' THEN $3 ELSE resolved_by END,
        note = $4, revision = revision + 1, updated_at = $6
    WHERE id = $1 AND remedy_state = 'planned' RETURNING id, state
)
INSERT INTO reconciliation_history (finding_id, state, happened, note, by, run_id, at)
SELECT id, state, 'remedy ' || $2, $4, $3, $5, $6 FROM done"""
_NOTE = """
INSERT INTO reconciliation_history (finding_id, state, happened, note, by, run_id, at)
VALUES ($1, $2, $3, $4, $5, $6, $7)"""
_GONE = """
WITH gone AS (
    UPDATE reconciliation_findings
    SET state = 'resolved', resolved_by = $5, runs_in_a_row = 0, revision = revision + 1,
        updated_at = $6
    WHERE provider = $1 AND state IN ('open', 'acknowledged') AND last_run_id < $2
        AND occurred_at >= $3 AND occurred_at < $4
    RETURNING id
)
INSERT INTO reconciliation_history (finding_id, state, happened, note, by, run_id, at)
SELECT id, 'resolved', 'gone', 'The latest run finds nothing here any more', $5, $2, $6 FROM gone
RETURNING finding_id"""
_CHANGES = """
SELECT count(*) FILTER (WHERE first_run_id = $2) AS opened,
    count(*) FILTER (WHERE first_run_id < $2) AS found_again,
    count(*) FILTER (WHERE state = 'open' AND runs_in_a_row >= 2) AS persisting
FROM reconciliation_findings WHERE provider = $1 AND last_run_id = $2"""
_SUMS = """
SELECT side, currency, sum(taken)::bigint AS taken_minor, sum(given_back)::bigint AS
    given_back_minor, sum(number)::bigint AS number
FROM (
    SELECT 'theirs' AS side, currency,
        coalesce(sum(amount_minor) FILTER (WHERE target IS NULL), 0) AS taken,
        coalesce(sum(amount_minor) FILTER (WHERE target IS NOT NULL), 0) AS given_back,
        count(*) AS number
    FROM reconciliation_records
    WHERE run_id = $1 AND created_at >= $4 AND created_at < $5 AND amount_minor IS NOT NULL
    GROUP BY currency
    UNION ALL
    SELECT 'ours', currency,
        coalesce(sum(amount_minor) FILTER (WHERE undoes IS NULL), 0),
        coalesce(sum(amount_minor) FILTER (WHERE undoes IS NOT NULL), 0), count(*)
    FROM effects
    WHERE provider = $2 AND account = $3 AND created_at >= $4 AND created_at < $5
        AND state IN ('confirmed', 'compensated') AND amount_minor IS NOT NULL
        AND provider_reference IS NOT NULL
    GROUP BY currency
) AS halves GROUP BY side, currency ORDER BY currency, side"""
_LATEST_SUMS = """
SELECT counts FROM reconciliation_runs
WHERE provider = $1 AND id < $2 AND state = 'done' AND NOT dry_run ORDER BY id DESC LIMIT 1"""
_END = """
UPDATE reconciliation_runs SET state = $2, ended_at = $3, counts = $4, sums = $5
WHERE id = $1 AND ended_at IS NULL RETURNING moves_watermark"""
_MOVE_WATERMARK = """
INSERT INTO reconciliation_providers AS known (provider, watermark, updated_at)
VALUES ($1, $2, $3)
ON CONFLICT (provider) DO UPDATE
SET watermark = greatest(known.watermark, excluded.watermark)"""
_FORGET_RECORDS = "DELETE FROM reconciliation_records WHERE run_id = $1"


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A row of `reconciliation_findings`."""

    id: int
    provider: str
    kind: FindingKind
    subject: str
    record_id: str | None
    effect_key: str | None
    claim_id: int | None
    amount_minor: int | None
    currency: str | None
    occurred_at: datetime
    state: FindingState
    remedy: Remedy
    remedy_state: RemedyState
    evidence: dict[str, Any]
    note: str | None
    resolved_by: str | None
    first_run_id: int
    last_run_id: int
    runs_in_a_row: int
    revision: int
    opened_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One thing that happened to a finding."""

    state: FindingState
    happened: str
    note: str | None
    by: str
    run_id: int | None
    at: datetime


@dataclass(frozen=True, slots=True)
class RunEnding:
    """What the end of a run has established."""

    counts: dict[str, int]
    sums: dict[str, Any]
    persisting: int


class ReconciliationFindings:
    """Reads and changes of findings. Every method raises StorageUnavailable."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def read(self, finding_id: int) -> FindingRow | None:
        """One finding."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_READ, finding_id)
        return None if row is None else _finding(row)

    async def history(self, finding_id: int) -> tuple[HistoryEntry, ...]:
        """What happened to a finding, oldest first, at most 200 entries."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_HISTORY, finding_id)
        return tuple(_entry(row) for row in rows)

    async def page(
        self,
        *,
        provider: str | None,
        kind: FindingKind | None,
        state: FindingState | None,
        before_id: int,
        limit: int,
    ) -> tuple[FindingRow, ...]:
        """Up to `limit` findings, newest first, older than the row `before_id`."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_PAGE, before_id, provider, kind, state, limit)
        return tuple(_finding(row) for row in rows)

    async def of_run(self, run: RunRow, *, limit: int) -> tuple[FindingRow, ...]:
        """What a run found, as it stands now, at most `limit`."""
        return await self._many(_OF_RUN, run.provider, run.id, limit)

    async def planned(self, provider: str, *, behind_id: int, limit: int) -> tuple[FindingRow, ...]:
        """Findings whose remedy is still to be carried out, oldest first."""
        return await self._many(_PLANNED, provider, behind_id, limit)

    async def set_state(
        self,
        finding: FindingRow,
        *,
        state: FindingState,
        note: str | None,
        by: str,
        now: datetime,
    ) -> FindingRow | None:
        """Change a finding as it was read, in one transaction; None when it has changed since."""
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                _SET_STATE, finding.id, finding.revision, state.value, note, by, now
            )
            if row is None:
                return None
            await connection.execute(
                _NOTE, finding.id, state.value, state.value, note, by, None, now
            )
        return _finding(row)

    async def remedied(
        self, finding: FindingRow, *, to: RemedyState, note: str, run_id: int, now: datetime
    ) -> None:
        """Say what came of a finding's remedy, in one statement and transaction; once."""
        async with self._database.connection() as connection:
            await connection.execute(_REMEDIED, finding.id, to.value, ROBOT, note, run_id, now)

    async def end_run(self, run: RunRow, *, account: str, now: datetime) -> RunEnding | None:
        """End a run: sums, what changed, what is gone, the watermark, in one transaction.

        None when it has ended already.
        """
        async with self._database.transaction() as connection:
            counts = dict(run.counts)
            window = (run.since, run.until)
            persisting = 0
            if not run.dry_run:
                gone = await connection.fetch(_GONE, run.provider, run.id, *window, ROBOT, now)
                changes = await connection.fetchrow(_CHANGES, run.provider, run.id)
                assert changes is not None
                counts |= {**dict(changes), "gone": len(gone)}
                persisting = changes["persisting"]
            sums = _sums(await connection.fetch(_SUMS, run.id, run.provider, account, *window))
            ended = await connection.fetchrow(_END, run.id, RunState.DONE.value, now, counts, sums)
            if ended is None:
                return None
            if ended["moves_watermark"]:
                await connection.execute(_MOVE_WATERMARK, run.provider, run.until, now)
            await connection.execute(_FORGET_RECORDS, run.id)
            fail_at(Failpoint.RECONCILED_COMMITTING)
        fail_at(Failpoint.RECONCILED_COMMITTED)
        return RunEnding(counts=counts, sums=sums, persisting=persisting)

    async def counts_before(self, run: RunRow) -> dict[str, int]:
        """The counts of the run before `run`: what "changed since the last" is measured by."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_LATEST_SUMS, run.provider, run.id)
        return {} if row is None else row["counts"]

    async def _many(self, sql: str, *arguments: object) -> tuple[FindingRow, ...]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(sql, *arguments)
        return tuple(_finding(row) for row in rows)


async def write_findings(
    connection: Connection, run: RunRow, findings: Sequence[Finding], *, now: datetime
) -> None:
    """Keep what a page of `run` has found and tell of what is new, in the caller's transaction."""
    if not findings:
        return
    given = [
        {
            "kind": finding.kind.value,
            "subject": finding.subject,
            "record_id": finding.record_id,
            "effect_key": finding.effect_key,
            "claim_id": finding.claim_id,
            "amount_minor": finding.amount_minor,
            "currency": finding.currency,
            "occurred_at": finding.occurred_at.isoformat(),
            "remedy": finding.remedy.value,
            "remedy_state": "none" if finding.remedy is Remedy.NONE else "planned",
            "evidence": finding.evidence,
        }
        for finding in findings
    ]
    noted = await connection.fetch(_UPSERT, given, run.provider, run.id, now, ROBOT, _FOUND)
    opened = [row["finding_id"] for row in noted if row["happened"] == _FOUND]
    await tell_opened(connection, opened, now=now)


def _sums(rows: Sequence[Record]) -> dict[str, Any]:
    """`{"EUR": {"theirs": {…}, "ours": {…}, "difference_minor": n}}`, all in minor units."""
    sums: dict[str, Any] = {}
    for row in rows:
        sums.setdefault(row["currency"], {})[row["side"]] = {
            "taken_minor": row["taken_minor"],
            "given_back_minor": row["given_back_minor"],
            "records": row["number"],
        }
    for halves in sums.values():
        net = {
            side: half["taken_minor"] - half["given_back_minor"] for side, half in halves.items()
        }
        halves["difference_minor"] = net.get("theirs", 0) - net.get("ours", 0)
    return sums


def _finding(row: Record) -> FindingRow:
    values: dict[str, Any] = {
        **dict(row),
        "kind": FindingKind(row["kind"]),
        "state": FindingState(row["state"]),
        "remedy": Remedy(row["remedy"]),
        "remedy_state": RemedyState(row["remedy_state"]),
    }
    return FindingRow(**values)


def _entry(row: Record) -> HistoryEntry:
    values: dict[str, Any] = {**dict(row), "state": FindingState(row["state"])}
    return HistoryEntry(**values)
