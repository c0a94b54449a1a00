"""The pages of a run: the provider's records are staged, then joined with our effects in order.

Staging makes every later step a range over an index, however the provider sorts its lists, and
lets a page be whole: all records of one reference come together. One page is a thousand rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asyncpg import Record

from ledger.database import Connection, Database
from ledger.reconciliation_findings import write_findings
from ledger.reconciliation_runs import RunRow
from operations.failpoints import Failpoint, fail_at
from operations.halves import Capture, Finding, OurEffect, TheirRecord, View
from operations.keys import Purpose
from operations.states import ClaimState, EffectState, Outcome

PAGE_ROWS = 1_000
"""A page of records is a quarter of a megabyte, and its joins take tens of milliseconds."""

PREVIEW_MAX = 1_000
"""What a dry run keeps to show: more is counted, and nobody reads more."""

CANDIDATES_MAX = 2_000

OPEN_CLAIMS_MAX = 5_000
"""How many open operations are asked whether a leftover record is theirs: a tenth of a second."""

_STAGE = """
INSERT INTO reconciliation_records (run_id, record_id, belongs, action, reference, amount_minor,
    currency, target, state, created_at)
SELECT $1, given.id, coalesce(given.reference, 'id:' || given.id), given.action, given.reference,
    given.amount_minor, given.currency, given.target, given.state, given.created_at
FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[],
    $9::timestamptz[])
    AS given (id, action, reference, amount_minor, currency, target, state, created_at)
ON CONFLICT DO NOTHING"""
_STAGED = """
UPDATE reconciliation_runs SET fetch_cursor = $3, fetched = $3::text IS NULL
WHERE id = $1 AND fetch_cursor IS NOT DISTINCT FROM $2 AND NOT fetched AND ended_at IS NULL"""
_ANALYZE = "ANALYZE reconciliation_records"
_RECORD = """record_id AS id, belongs, action, reference, amount_minor, currency, target, state,
    created_at"""
_GROUPS = f"""
SELECT {_RECORD} FROM reconciliation_records
WHERE run_id = $1 AND belongs > $2
ORDER BY belongs, created_at, record_id LIMIT $3"""  # noqa: S608 - constants only
_UNDOS = f"""
SELECT {_RECORD} FROM reconciliation_records
WHERE run_id = $1 AND target = ANY($2::text[]) LIMIT 20000"""  # noqa: S608 - constants only
_EFFECT = """e.claim_id, e.tenant, c.operation, c.key AS operation_key, c.state AS claim_state,
    c.outcome, e.step, e.purpose, e.ordinal, e.key, e.action, e.state, e.amount_minor, e.currency,
    e.provider_reference, e.undoes, e.tombstoned_at IS NOT NULL AS tombstone"""
_SENT = "coalesce(e.sent_at, e.created_at) AS at"
_EFFECTS = f"""
SELECT {_EFFECT}, {_SENT} FROM effects AS e JOIN claims AS c ON c.id = e.claim_id
WHERE e.key = ANY($3::text[]) AND e.provider = $1 AND e.account = $2
UNION
SELECT {_EFFECT}, {_SENT} FROM effects AS e JOIN claims AS c ON c.id = e.claim_id
WHERE e.provider = $1 AND e.account = $2 AND e.provider_reference = ANY($4::text[])
"""  # noqa: S608 - constants only
_CANDIDATES = f"""
SELECT {_EFFECT}, {_SENT} FROM effects AS e JOIN claims AS c ON c.id = e.claim_id
WHERE e.provider = $1 AND e.account = $2 AND e.state IN ('sent', 'unknown', 'parked')
    AND e.amount_minor = ANY($3::bigint[])
ORDER BY e.claim_id DESC LIMIT $4"""  # noqa: S608 - constants only
_CAPTURES = """
SELECT t.target,
    (SELECT e.claim_id FROM effects AS e
     WHERE e.provider = $2 AND e.account = $3 AND e.provider_reference = t.target
         AND e.undoes IS NULL ORDER BY e.created_at LIMIT 1) AS claim_id,
    coalesce(
        (SELECT r.amount_minor FROM reconciliation_records AS r
         WHERE r.run_id = $1 AND r.record_id = t.target),
        (SELECT e.amount_minor FROM effects AS e
         WHERE e.provider = $2 AND e.account = $3 AND e.provider_reference = t.target
             AND e.undoes IS NULL LIMIT 1)) AS amount_minor,
    coalesce(
        (SELECT sum(u.amount_minor) FROM effects AS u
         WHERE u.provider = $2 AND u.account = $3 AND u.undoes = t.target
             AND u.state = 'confirmed'
             AND NOT EXISTS (SELECT 1 FROM reconciliation_records AS r
                             WHERE r.run_id = $1 AND r.record_id = u.provider_reference)), 0
    )::bigint AS given_back_minor
FROM unnest($4::text[]) AS t (target)"""
_MISSING = f"""
SELECT {_EFFECT}, e.created_at AS at FROM effects AS e JOIN claims AS c ON c.id = e.claim_id
WHERE e.provider = $2 AND e.account = $3 AND e.created_at >= $4 AND e.created_at < $5
    AND e.state IN ('confirmed', 'compensated') AND e.provider_reference IS NOT NULL
    AND (e.created_at, e.key) > ($6, $7)
    AND NOT EXISTS (SELECT 1 FROM reconciliation_records AS r
                    WHERE r.run_id = $1 AND r.belongs = e.key AND r.action = e.action)
    AND NOT EXISTS (SELECT 1 FROM reconciliation_records AS r
                    WHERE r.run_id = $1 AND r.record_id = e.provider_reference)
    AND NOT EXISTS (SELECT 1 FROM effects AS first
                    WHERE first.provider = e.provider AND first.account = e.account
                        AND first.provider_reference = e.provider_reference
                        AND first.action = e.action AND first.created_at < e.created_at)
ORDER BY e.created_at, e.key LIMIT $8"""  # noqa: S608 - constants only
_OPEN_CLAIMS = """
SELECT id, tenant, operation, key, state FROM claims
WHERE check_at IS NOT NULL AND created_at < $1 ORDER BY id DESC LIMIT $2"""
_LOCK_RUN = """
SELECT counts, preview, match_cursor, sweep_cursor, ended_at
FROM reconciliation_runs WHERE id = $1 FOR UPDATE"""
_WRITE_RUN = """
UPDATE reconciliation_runs SET counts = $2, preview = $3, match_cursor = $4, sweep_cursor = $5
WHERE id = $1"""


@dataclass(frozen=True, slots=True)
class RecordGroups:
    """A page of staged records, in whole groups, with what may explain them."""

    view: View
    cursor: str
    """Where the next page starts."""


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """An operation that has not ended: its run may not have written down all it has done."""

    id: int
    tenant: str
    operation: str
    key: str
    state: str


@dataclass(frozen=True, slots=True)
class PageResult:
    """What came of a page: findings to keep, and counts to add."""

    findings: Sequence[Finding]
    counts: Mapping[str, int]
    match_cursor: str | None = None
    sweep_cursor: str | None = None


class ReconciliationPages:
    """Reads and writes of one page. Every method raises StorageUnavailable."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def stage(
        self, run: RunRow, records: Sequence[TheirRecord], *, next_cursor: str | None
    ) -> None:
        """Keep a page of the provider's records and move the cursor, in one transaction."""
        columns = [
            [getattr(record, name) for record in records]
            for name in (
                "id",
                "action",
                "reference",
                "amount_minor",
                "currency",
                "target",
                "state",
                "created_at",
            )
        ]
        async with self._database.transaction() as connection:
            await connection.execute(_STAGE, run.id, *columns)
            await connection.execute(_STAGED, run.id, run.fetch_cursor, next_cursor)
            if next_cursor is None:
                await connection.execute(_ANALYZE)
            fail_at(Failpoint.RECORDS_COMMITTING)
        fail_at(Failpoint.RECORDS_COMMITTED)

    async def groups(
        self, run: RunRow, *, cursor: str, account: str, undoable: frozenset[str]
    ) -> RecordGroups | None:
        """The next page of whole groups behind `cursor`; None behind the last one."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_GROUPS, run.id, cursor, PAGE_ROWS + 1)
            if not rows:
                return None
            whole = _whole_groups(rows)
            records = tuple(_record(row, run=run) for row in whole)
            view = await _explained(connection, run, records, account=account, undoable=undoable)
        return RecordGroups(view=view, cursor=whole[-1]["belongs"])

    async def candidates(
        self, run: RunRow, *, account: str, amounts: Sequence[int]
    ) -> tuple[OurEffect, ...]:
        """Undecided effects with one of these amounts: what a leftover record may be."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                _CANDIDATES, run.provider, account, list(amounts), CANDIDATES_MAX
            )
        return tuple(_effect(row) for row in rows)

    async def open_operations(self, *, before: datetime) -> tuple[OpenOperation, ...]:
        """Operations accepted before `before` that have not ended, newest first, bounded."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_OPEN_CLAIMS, before, OPEN_CLAIMS_MAX)
        return tuple(OpenOperation(**dict(row)) for row in rows)

    async def missing(
        self, run: RunRow, *, account: str, behind: tuple[datetime, str], limit: int
    ) -> tuple[OurEffect, ...]:
        """Confirmed effects of the window that no staged record belongs to, oldest first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                _MISSING,
                run.id,
                run.provider,
                account,
                run.since,
                run.until,
                *behind,
                limit,
            )
        return tuple(_effect(row) for row in rows)

    async def effect(self, provider: str, account: str, key: str) -> OurEffect | None:
        """One effect by its key, as it stands now."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_EFFECTS, provider, account, [key], [])
        return None if row is None else _effect(row)

    async def write(self, run: RunRow, result: PageResult, *, now: datetime) -> None:
        """Keep a page's findings, add its counts and move the cursor, in one transaction.

        A page that has been written before is not written again.
        """
        async with self._database.transaction() as connection:
            known = await connection.fetchrow(_LOCK_RUN, run.id)
            assert known is not None
            moved = (known["match_cursor"], known["sweep_cursor"]) != (
                run.match_cursor,
                run.sweep_cursor,
            )
            if moved or known["ended_at"] is not None:
                return
            counts = dict(known["counts"])
            for name, number in result.counts.items():
                counts[name] = counts.get(name, 0) + number
            preview: list[dict[str, Any]] = known["preview"]
            if run.dry_run:
                preview = [*preview, *map(_as_preview, result.findings)][:PREVIEW_MAX]
            else:
                await write_findings(connection, run, result.findings, now=now)
            await connection.execute(
                _WRITE_RUN,
                run.id,
                counts,
                preview,
                result.match_cursor or run.match_cursor,
                result.sweep_cursor or run.sweep_cursor,
            )
            fail_at(Failpoint.FINDINGS_COMMITTING)
        fail_at(Failpoint.FINDINGS_COMMITTED)


async def _explained(
    connection: Connection,
    run: RunRow,
    records: tuple[TheirRecord, ...],
    *,
    account: str,
    undoable: frozenset[str],
) -> View:
    """The view of `records`: effects they point at, what takes them back, what they take back."""
    ids = [record.id for record in records]
    keys = [record.reference for record in records if record.reference is not None]
    targets = sorted({record.target for record in records if record.target is not None})
    effects = await connection.fetch(_EFFECTS, run.provider, account, keys, ids)
    undos = await connection.fetch(_UNDOS, run.id, [*ids, *targets])
    captures: Sequence[Record] = ()
    if targets:
        captures = await connection.fetch(_CAPTURES, run.id, run.provider, account, targets)
    return View(
        records=records,
        effects=tuple(_effect(row) for row in effects),
        undos=tuple(_record(row, run=run) for row in undos),
        captures={
            row["target"]: Capture(row["amount_minor"], row["given_back_minor"], row["claim_id"])
            for row in captures
            if row["amount_minor"] is not None
        },
        undoable=undoable,
    )


def _whole_groups(rows: Sequence[Record]) -> Sequence[Record]:
    """Without the last group, which the page may have cut; a group as large as a page stays."""
    if len(rows) <= PAGE_ROWS:
        return rows
    last = rows[-1]["belongs"]
    whole = [row for row in rows if row["belongs"] != last]
    return whole or rows[:PAGE_ROWS]


def _record(row: Record, *, run: RunRow) -> TheirRecord:
    return TheirRecord(
        id=row["id"],
        action=row["action"],
        reference=row["reference"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        target=row["target"],
        state=row["state"],
        created_at=row["created_at"],
        judged=run.since <= row["created_at"] < run.until,
    )


def _effect(row: Record) -> OurEffect:
    outcome = row["outcome"]
    values: dict[str, Any] = {
        **dict(row),
        "claim_state": ClaimState(row["claim_state"]),
        "outcome": None if outcome is None else Outcome(outcome),
        "purpose": Purpose(row["purpose"]),
        "state": EffectState(row["state"]),
    }
    return OurEffect(**values)


def _as_preview(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "subject": finding.subject,
        "record_id": finding.record_id,
        "effect_key": finding.effect_key,
        "amount_minor": finding.amount_minor,
        "currency": finding.currency,
        "occurred_at": finding.occurred_at.isoformat(),
        "would": finding.remedy.value,
        "evidence": finding.evidence,
    }
