"""What reconciliation does at a provider, and in our own books: each once, claimed before it is
done. An undo stands in `effects` too, so that the next run recognises it in the provider's books.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from asyncpg import Record
from pydantic import TypeAdapter

from ledger import effect_rows
from ledger.database import Connection, Database
from ledger.reconciliation_findings import FindingRow
from operations.contracts import Decision
from operations.effects import Effect
from operations.failpoints import Failpoint, fail_at
from operations.halves import OurEffect
from operations.keys import Purpose
from operations.reconciliation import FindingKind
from operations.states import EffectState

_EFFECT = TypeAdapter(Effect)

_ROW = "id, provider, account, record_id, finding_id, claim_id, effect, settled, updated_at"
_FIND = f"""
SELECT {_ROW} FROM reconciliation_actions
WHERE provider = $1 AND account = $2 AND record_id = $3"""  # noqa: S608 - constants only
_CLAIM = f"""
INSERT INTO reconciliation_actions (provider, account, record_id, finding_id, claim_id, effect,
    created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
ON CONFLICT (provider, account, record_id) DO NOTHING
RETURNING {_ROW}"""  # noqa: S608 - constants only
_UNDONE_BY_THE_OPERATION = """
SELECT key FROM effects
WHERE provider = $1 AND account = $2 AND undoes = $3 AND state NOT IN ('rejected', 'absent')
LIMIT 1"""
_MOVE = f"""
UPDATE reconciliation_actions SET effect = $3, settled = $4, updated_at = $5
WHERE id = $1 AND updated_at = $2 AND NOT settled
RETURNING {_ROW}"""  # noqa: S608 - constants only
_LOCK_CLAIM = "SELECT state FROM claims WHERE id = $1 FOR UPDATE"
_COUNT_UP = "UPDATE claims SET revision = revision + 1, updated_at = $2 WHERE id = $1"
_NEXT_ORDINAL = """
SELECT coalesce(max(ordinal) + 1, $4) FROM effects
WHERE claim_id = $1 AND step = $2 AND purpose = $3"""
_KNOWN_NOW = """
UPDATE effects
SET state = 'confirmed', provider_reference = coalesce(provider_reference, $2), reason = $3,
    amount_minor = coalesce(amount_minor, $4), currency = coalesce(currency, $5), updated_at = $6
WHERE key = $1 AND state IN ('sent', 'unknown', 'parked', 'absent')
RETURNING claim_id"""
_TAKEN_BACK = """
UPDATE effects
SET state = 'compensated', tombstoned_at = coalesce(tombstoned_at, $2), updated_at = $2
WHERE key = $1 AND state = 'confirmed'"""
_WAKE_RELAY = "UPDATE claims SET check_at = $2 WHERE id = $1 AND check_at IS NOT NULL"
_DECIDE = """
INSERT INTO decisions (claim_id, step, purpose, verdict, provider_reference, evidence, decided_by,
    decided_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"""


@dataclass(frozen=True, slots=True)
class Action:
    """A row of `reconciliation_actions`: the undo of one record of the provider."""

    id: int
    provider: str
    account: str
    record_id: str
    finding_id: int
    claim_id: int
    effect: Effect
    settled: bool
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ActionRefused:
    """Why nothing may be done about a record."""

    reason: str


class ReconciliationActions:
    """Claims and progress of remedies. Every method raises StorageUnavailable."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def claim_undo(
        self, finding: FindingRow, target: OurEffect, undo: Effect, *, now: datetime
    ) -> Action | ActionRefused:
        """Claim the undo of a record before it is sent, in one transaction; or find the claim.

        The amount is held at what was captured, so that no sum of refunds can exceed it.
        """
        try:
            async with self._database.transaction() as connection:
                claimed = await self._claim(connection, finding, target, undo, now=now)
                fail_at(Failpoint.REMEDY_COMMITTING)
        except effect_rows.RefundExceedsCapture:
            return ActionRefused("More would be given back than was taken")
        fail_at(Failpoint.REMEDY_COMMITTED)
        return claimed

    async def move(
        self, action: Action, effect: Effect, *, settled: bool, now: datetime
    ) -> Action | None:
        """Write what is known of an undo, in one transaction; None when somebody else has."""
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(
                _MOVE, action.id, action.updated_at, _dump(effect), settled, now
            )
            if row is None:
                return None
            tenant = await connection.fetchval(
                "SELECT tenant FROM claims WHERE id = $1", action.claim_id
            )
            await effect_rows.upsert(
                connection, action.claim_id, tenant, [effect.record()], now=now
            )
            await connection.execute(_COUNT_UP, action.claim_id, now)
        return _read(row)

    async def taken_back(self, target: OurEffect, *, now: datetime) -> None:
        """Our own books know now that a late effect was undone, in one transaction."""
        async with self._database.transaction() as connection:
            await connection.execute(_TAKEN_BACK, target.key, now)
            await connection.execute(_COUNT_UP, target.claim_id, now)

    async def settle_in_ledger(
        self, target: OurEffect, decision: Decision, found: dict[str, Any], *, now: datetime
    ) -> bool:
        """Write that an effect exists, for a run that is gone, in one transaction.

        The relay is woken: a recovered run reads the row and goes on from there. False when the
        row is not undecided any more.
        """
        async with self._database.transaction() as connection:
            written = await connection.fetchval(
                _KNOWN_NOW,
                target.key,
                decision.provider_reference,
                decision.evidence,
                found.get("amount_minor"),
                found.get("currency"),
                now,
            )
            if written is None:
                return False
            await _decide(connection, target.claim_id, decision, now=now)
            await connection.execute(_COUNT_UP, target.claim_id, now)
            await connection.execute(_WAKE_RELAY, target.claim_id, now)
        return True

    async def _claim(
        self,
        connection: Connection,
        finding: FindingRow,
        target: OurEffect,
        undo: Effect,
        *,
        now: datetime,
    ) -> Action | ActionRefused:
        account = undo.profile.account
        state = await connection.fetchval(_LOCK_CLAIM, target.claim_id)
        if state not in {"done", "expired"}:
            return ActionRefused("Its operation is not over: it takes care of this itself")
        known = await connection.fetchrow(_FIND, finding.provider, account, finding.record_id)
        if known is not None:
            return _read(known)
        other = await connection.fetchval(
            _UNDONE_BY_THE_OPERATION, finding.provider, account, finding.record_id
        )
        if other is not None:
            return ActionRefused(f"It is being taken back already, under {other}")
        if finding.kind is FindingKind.LATE:
            await _note_late(connection, finding, target, now=now)
        ordinal = await connection.fetchval(
            _NEXT_ORDINAL,
            target.claim_id,
            undo.step,
            undo.purpose.value,
            1 if undo.purpose is Purpose.DUPLICATE else 0,
        )
        effect = replace(undo, ordinal=ordinal)
        row = await connection.fetchrow(
            _CLAIM,
            finding.provider,
            account,
            finding.record_id,
            finding.id,
            target.claim_id,
            _dump(effect),
            now,
        )
        assert row is not None
        record = effect.record()
        await effect_rows.upsert(connection, target.claim_id, target.tenant, [record], now=now)
        await effect_rows.hold(connection, target.claim_id, target.tenant, record)
        await connection.execute(_COUNT_UP, target.claim_id, now)
        return _read(row)


async def _note_late(
    connection: Connection, finding: FindingRow, target: OurEffect, *, now: datetime
) -> None:
    """Our books learn that the effect exists, before it is taken back (hazard 5)."""
    if target.state is EffectState.COMPENSATED:
        return
    await connection.execute(
        _KNOWN_NOW,
        target.key,
        finding.record_id,
        "Found by reconciliation after the operation had ended",
        finding.amount_minor,
        finding.currency,
        now,
    )


async def _decide(
    connection: Connection, claim_id: int, decision: Decision, *, now: datetime
) -> None:
    await connection.execute(
        _DECIDE,
        claim_id,
        decision.step,
        decision.purpose.value,
        decision.verdict.value,
        decision.provider_reference,
        decision.evidence,
        decision.decided_by,
        now,
    )


def _dump(effect: Effect) -> Any:
    return _EFFECT.dump_python(effect, mode="json")


def _read(row: Record) -> Action:
    values: dict[str, Any] = {**dict(row), "effect": _EFFECT.validate_python(row["effect"])}
    return Action(**values)
