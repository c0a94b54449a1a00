"""Rows of `effects`: how they are written, so that states only move forward."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from asyncpg import Record
from asyncpg.exceptions import CheckViolationError
from sqlalchemy import (
    ARRAY,
    CTE,
    Text,
    and_,
    any_,
    bindparam,
    case,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.base import ColumnCollection
from sqlalchemy.sql.elements import ColumnElement

from ledger.database import Connection
from ledger.statements import Statement, rows_given
from ledger.tables import claims, effects
from operations.contracts import EffectRecord
from operations.guarantees import Guarantee
from operations.keys import Purpose
from operations.states import EffectState, predecessors

EFFECT_COLUMNS = tuple(effects.c)

_VALUES = [
    "claim_id",
    "step",
    "purpose",
    "ordinal",
    "tenant",
    "provider",
    "account",
    "region",
    "guarantee",
    "action",
    "key",
    "state",
    "request",
    "frozen_body",
    "amount_minor",
    "currency",
    "undoes",
    "provider_reference",
    "sends",
    "sent_at",
    "last_sent_at",
    "reason",
    "tombstoned_at",
]
_new = insert(effects).values(
    **{name: bindparam(name) for name in _VALUES},
    created_at=bindparam("now"),
    updated_at=bindparam("now"),
)
_NOTHING_THERE = literal([EffectState.PLANNED.value, EffectState.ABSENT.value], ARRAY(Text))


def _moves_forward(row: ColumnCollection[str, ColumnElement[Any]]) -> ColumnElement[bool]:
    """Whether what is there may become what `row` says.

    A run may write while a request of its own is under way, or an earlier run's: who knows of fewer
    sends than the row cannot say that there is nothing. `Sends.not_applied` takes a send back.
    """
    may_follow = (
        and_(
            row.state == state.value,
            effects.c.state
            == any_(literal([known.value for known in predecessors(state)], ARRAY(Text))),
        )
        for state in EffectState
    )
    return and_(
        or_(*may_follow),
        or_(not_(row.state == any_(_NOTHING_THERE)), effects.c.sends <= row.sends),
    )


_PREFIX = "effect_"
_OF_CLAIM = frozenset({"claim_id", "tenant"})
_GIVEN = tuple(name for name in _VALUES if name not in _OF_CLAIM)
_given = rows_given({name: effects.c[name].type for name in _GIVEN}, prefix=_PREFIX)


def written(of: CTE) -> CTE:
    """What to add, with `add_cte`, to a statement: it writes the effects that `columns` gives it,
    for each claim in `of`. States only move forward; `now` is a parameter of the statement."""
    now = bindparam("now", type_=effects.c.created_at.type)
    rows = select(of.c.id, of.c.tenant, *(_given.c[name] for name in _GIVEN), now, now).select_from(
        of.join(_given, true())
    )
    names = ["claim_id", "tenant", *_GIVEN, "created_at", "updated_at"]
    upsert = insert(effects).from_select(names, rows)
    row = upsert.excluded
    upsert = upsert.on_conflict_do_update(
        index_elements=["claim_id", "step", "purpose", "ordinal"],
        set_={
            "state": case((_moves_forward(row), row.state), else_=effects.c.state),
            "frozen_body": func.coalesce(effects.c.frozen_body, row.frozen_body),
            "amount_minor": func.coalesce(effects.c.amount_minor, row.amount_minor),
            "currency": func.coalesce(effects.c.currency, row.currency),
            "provider_reference": func.coalesce(
                effects.c.provider_reference, row.provider_reference
            ),
            "sends": func.greatest(effects.c.sends, row.sends),
            "sent_at": func.coalesce(effects.c.sent_at, row.sent_at),
            "last_sent_at": func.greatest(effects.c.last_sent_at, row.last_sent_at),
            "reason": row.reason,
            # What the books told of an effect whose request was not known.
            "request": row.request.op("||")(effects.c.request),
            "tombstoned_at": func.coalesce(effects.c.tombstoned_at, row.tombstoned_at),
            "updated_at": row.updated_at,
        },
    )
    return upsert.returning(effects.c.step).cte("written")


_claim = (
    select(claims.c.id, claims.c.tenant).where(claims.c.id == bindparam("claim_id")).cte("claim")
)
_UPSERT = Statement(select(_claim.c.id).add_cte(written(_claim)))
INSERT = Statement(_new.on_conflict_do_nothing().returning(effects.c.step))

of_claim = effects.c.claim_id == bindparam("claim_id")
same_effect = and_(
    of_claim,
    effects.c.step == bindparam("step"),
    effects.c.purpose == bindparam("purpose"),
    effects.c.ordinal == bindparam("ordinal"),
)
_tombstone = select(literal(1)).where(of_claim, effects.c.tombstoned_at.is_not(None)).exists()
IS_UNDOING = Statement(select(literal(1)).where(_tombstone))
"""Whether the operation is being undone, or was: no step may begin, and it cannot succeed."""
IS_TOO_LATE = Statement(
    select(literal(1)).where(_tombstone, ~select(literal(1)).where(same_effect).exists())
)
"""Whether the effect would be a new one of an operation that is being undone."""
LOCK = Statement(select(*EFFECT_COLUMNS).where(same_effect).with_for_update())
OF_CLAIM = Statement(
    select(*EFFECT_COLUMNS).where(of_claim).order_by(effects.c.created_at, effects.c.ordinal)
)

_captured = and_(
    effects.c.tenant == bindparam("tenant"),
    effects.c.provider == bindparam("provider"),
    effects.c.account == bindparam("account"),
    or_(effects.c.provider_reference == bindparam("undoes"), effects.c.key == bindparam("undoes")),
    effects.c.purpose == Purpose.ACTION.value,
    effects.c.undoes.is_(None),
)
_HOLD = Statement(
    update(effects)
    .where(_captured, effects.c.currency == bindparam("currency"))
    .values(refunded_minor=effects.c.refunded_minor + bindparam("amount_minor"))
    .returning(effects.c.claim_id)
)
_MARK_HELD = Statement(update(effects).where(same_effect).values(holds=True))
_NEVER_GIVEN = frozenset({EffectState.REJECTED, EffectState.PLANNED, EffectState.ABSENT})
"""States in which nothing was given back, and with a tombstone (or a no) nothing will be."""
_RELEASED = Statement(
    update(effects)
    .where(
        same_effect,
        effects.c.holds,
        effects.c.state == any_(literal(sorted(_NEVER_GIVEN), ARRAY(Text))),
    )
    .values(holds=False)
    .returning(effects.c.step)
)
_GIVE_BACK = Statement(
    update(effects)
    .where(_captured)
    .values(refunded_minor=effects.c.refunded_minor - bindparam("amount_minor"))
)


class RefundExceedsCapture(Exception):
    """More would be given back than was taken."""


def values(claim_id: int, tenant: str, row: EffectRecord, *, now: datetime) -> dict[str, Any]:
    """The column values of one effect."""
    return {
        **identity(claim_id, row),
        "tenant": tenant,
        "provider": row.provider,
        "account": row.account,
        "region": row.region,
        "guarantee": row.guarantee.value,
        "action": row.action,
        "key": row.key,
        "state": row.state.value,
        "request": row.request,
        "frozen_body": row.frozen_body,
        "amount_minor": row.request.get("amount_minor"),
        "currency": row.request.get("currency"),
        "undoes": row.undoes,
        "provider_reference": row.provider_reference,
        "sends": row.sends,
        "sent_at": row.sent_at,
        "last_sent_at": row.last_sent_at,
        "reason": row.reason,
        "tombstoned_at": now if row.tombstone else None,
        "now": now,
    }


def identity(claim_id: int, row: EffectRecord) -> dict[str, Any]:
    """The primary key of one effect."""
    return {
        "claim_id": claim_id,
        "step": row.step,
        "purpose": row.purpose.value,
        "ordinal": row.ordinal,
    }


def read(row: Record) -> EffectRecord:
    """One effect, as the workflow knows it."""
    return EffectRecord(
        step=row["step"],
        purpose=Purpose(row["purpose"]),
        ordinal=row["ordinal"],
        provider=row["provider"],
        account=row["account"],
        region=row["region"],
        guarantee=Guarantee(row["guarantee"]),
        action=row["action"],
        key=row["key"],
        state=EffectState(row["state"]),
        request=row["request"],
        frozen_body=row["frozen_body"],
        provider_reference=row["provider_reference"],
        undoes=row["undoes"],
        sends=row["sends"],
        sent_at=row["sent_at"],
        last_sent_at=row["last_sent_at"],
        reason=row["reason"],
        tombstone=row["tombstoned_at"] is not None,
    )


async def upsert(
    connection: Connection,
    claim_id: int,
    tenant: str,
    rows: Collection[EffectRecord],
    *,
    now: datetime,
) -> None:
    """Write effects inside the caller's transaction. States only move forward."""
    if rows:
        await connection.execute(*_UPSERT(claim_id=claim_id, now=now, **columns(rows, now=now)))
        for row in releasing(rows):
            await release(connection, claim_id, tenant, row)


def columns(rows: Iterable[EffectRecord], *, now: datetime) -> dict[str, list[Any]]:
    """The parameters of a statement that has `written` added to it."""
    found = [values(0, "", row, now=now) for row in rows]
    return {_PREFIX + name: [row[name] for row in found] for name in _GIVEN}


def releasing(rows: Iterable[EffectRecord]) -> list[EffectRecord]:
    """Those that, once written, give back what they took from a capture: see `release`."""
    return [
        row
        for row in rows
        if row.undoes is not None
        and row.state in _NEVER_GIVEN
        and (row.state is EffectState.REJECTED or row.tombstone)
    ]


async def hold(connection: Connection, claim_id: int, tenant: str, row: EffectRecord) -> None:
    """Take a refund's amount from what was captured, before the refund is sent.

    Inside the caller's transaction. Raises RefundExceedsCapture when the constraint says no.
    """
    if row.undoes is None or row.purpose is Purpose.DUPLICATE or "amount_minor" not in row.request:
        return
    try:
        held = await connection.fetchrow(*_HOLD(**_money(tenant, row)))
    except CheckViolationError as error:
        raise RefundExceedsCapture(row.undoes) from error
    if held is None:
        raise RefundExceedsCapture(row.undoes)
    await connection.execute(*_MARK_HELD(**identity(claim_id, row)))


async def release(connection: Connection, claim_id: int, tenant: str, row: EffectRecord) -> None:
    """Give back what a refund had taken that was refused, or never sent and never will be.

    Inside the caller's transaction; at most once.
    """
    if await connection.fetchrow(*_RELEASED(**identity(claim_id, row))) is not None:
        await connection.execute(*_GIVE_BACK(**_money(tenant, row)))


def _money(tenant: str, row: EffectRecord) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "provider": row.provider,
        "account": row.account,
        "undoes": row.undoes,
        "amount_minor": row.request.get("amount_minor"),
        "currency": row.request.get("currency"),
    }
