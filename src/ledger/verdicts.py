"""What people decided about operations: who, when, and on what evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    ARRAY,
    BigInteger,
    DateTime,
    Text,
    any_,
    bindparam,
    exists,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.sql.elements import ColumnElement

from ledger.database import Connection, Database
from ledger.statements import Statement
from ledger.tables import decisions, effects
from operations.contracts import CancelRequest, Decision
from operations.keys import Purpose
from operations.states import Verdict

WHOLE_OPERATION = ""
"""The `step` of what was decided about the operation itself: a cancel."""

ROBOT = "reconciliation"
"""Who decides what nobody has to look at."""

CANCEL = "cancel"
"""The `verdict` of a cancel."""


def _text(name: str) -> ColumnElement[str | None]:
    return bindparam(name, type_=Text)


_row = {
    "claim_id": bindparam("claim_id", type_=decisions.c.claim_id.type),
    "step": _text("step"),
    "purpose": _text("purpose"),
    "verdict": _text("verdict"),
    "provider_reference": _text("provider_reference"),
    "evidence": _text("evidence"),
    "decided_by": _text("decided_by"),
    "decided_at": bindparam("decided_at", type_=DateTime(timezone=True)),
}
_same = [decisions.c[name] == value for name, value in _row.items() if name != "provider_reference"]
_WRITE = Statement(
    insert(decisions).from_select(list(_row), select(*_row.values()).where(~exists().where(*_same)))
)
_OF_CLAIMS = Statement(
    select(*decisions.c)
    .where(decisions.c.claim_id == any_(bindparam("ids", type_=ARRAY(BigInteger))))
    .order_by(decisions.c.id)
)
_CANCEL_OF = Statement(
    select(*decisions.c)
    .where(
        decisions.c.claim_id == bindparam("claim_id"),
        decisions.c.step == literal(WHOLE_OPERATION),
        decisions.c.verdict == literal(CANCEL),
    )
    .order_by(decisions.c.id)
    .limit(literal(1))
)
_last = (
    select(*decisions.c)
    .where(
        decisions.c.claim_id == bindparam("claim_id"),
        decisions.c.step != literal(WHOLE_OPERATION),
        decisions.c.decided_by != literal(ROBOT),
    )
    .ext(distinct_on(decisions.c.step, decisions.c.purpose))
    .order_by(decisions.c.step, decisions.c.purpose, decisions.c.id.desc())
    .subquery()
)
_ABANDONED_OF = Statement(
    select(*_last.c).where(_last.c.verdict == literal(Verdict.ABANDON.value)).order_by(_last.c.id)
)
_HOLDER = Statement(
    select(literal(1))
    .where(
        effects.c.provider == bindparam("provider"),
        effects.c.provider_reference == bindparam("provider_reference"),
        effects.c.account == bindparam("account"),
        effects.c.action == bindparam("action"),
        effects.c.key != bindparam("key"),
    )
    .limit(literal(1))
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One decision, as it was recorded."""

    step: str | None
    """None: about the whole operation."""
    purpose: Purpose
    verdict: str
    provider_reference: str | None
    evidence: str
    decided_by: str
    decided_at: datetime


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Reads of what people decided. Every method raises StorageUnavailable."""

    database: Database

    async def is_taken(
        self, provider_reference: str, *, provider: str, account: str, action: str, key: str
    ) -> bool:
        """Whether the provider's reference is recorded for another effect than the one of `key`:
        an operation may only own what is its own (hazard 8)."""
        async with self.database.connection() as connection:
            row = await connection.fetchrow(
                *_HOLDER(
                    provider=provider,
                    account=account,
                    action=action,
                    provider_reference=provider_reference,
                    key=key,
                )
            )
        return row is not None


async def decisions_of(
    connection: Connection, claim_ids: Sequence[int]
) -> dict[int, tuple[Recorded, ...]]:
    """Everything decided about some operations, by claim, oldest first; on the caller's
    connection."""
    found: dict[int, tuple[Recorded, ...]] = {}
    for row in await connection.fetch(*_OF_CLAIMS(ids=list(claim_ids))):
        recorded = Recorded(
            step=row["step"] or None,
            purpose=Purpose(row["purpose"]),
            verdict=row["verdict"],
            provider_reference=row["provider_reference"],
            evidence=row["evidence"],
            decided_by=row["decided_by"],
            decided_at=row["decided_at"],
        )
        found[row["claim_id"]] = (*found.get(row["claim_id"], ()), recorded)
    return found


async def cancel_of(connection: Connection, claim_id: int) -> CancelRequest | None:
    """The first wish to cancel an operation that was taken, on the caller's connection."""
    row = await connection.fetchrow(*_CANCEL_OF(claim_id=claim_id))
    if row is None:
        return None
    return CancelRequest(
        requested_by=row["decided_by"], reason=row["evidence"], requested_at=row["decided_at"]
    )


async def abandoned_of(connection: Connection, claim_id: int) -> tuple[Decision, ...]:
    """The verdicts that gave up on a step and were the last of a person about it, on the caller's
    connection. What was decided about an earlier attempt says nothing about a later one."""
    return tuple(
        Decision(
            step=row["step"],
            purpose=Purpose(row["purpose"]),
            verdict=Verdict(row["verdict"]),
            evidence=row["evidence"],
            decided_by=row["decided_by"],
            decided_at=row["decided_at"],
        )
        for row in await connection.fetch(*_ABANDONED_OF(claim_id=claim_id))
    )


async def write_verdict(
    connection: Connection, claim_id: int, decision: Decision, *, now: datetime
) -> None:
    """Write a verdict inside the caller's transaction, which holds the claim's row; at most once,
    however often the activity that asks for it is repeated."""
    await connection.execute(
        *_WRITE(
            claim_id=claim_id,
            step=decision.step,
            purpose=decision.purpose.value,
            verdict=decision.verdict.value,
            provider_reference=decision.provider_reference,
            evidence=decision.evidence,
            decided_by=decision.decided_by,
            decided_at=decision.decided_at or now,
        )
    )


async def write_cancel(
    connection: Connection, claim_id: int, request: CancelRequest, *, now: datetime
) -> None:
    """Write who asked for a cancel, as `write_verdict` does."""
    await connection.execute(
        *_WRITE(
            claim_id=claim_id,
            step=WHOLE_OPERATION,
            purpose=Purpose.ACTION.value,
            verdict=CANCEL,
            provider_reference=None,
            evidence=request.reason,
            decided_by=request.requested_by,
            decided_at=request.requested_at or now,
        )
    )
