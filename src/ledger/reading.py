"""What people and programs read: operations with their effects, and pages of operations."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from asyncpg import Record
from sqlalchemy import ARRAY, BigInteger, Text, any_, bindparam, func, select, true, tuple_
from sqlalchemy.sql.selectable import TableValuedAlias

from ledger import effect_rows
from ledger.claims import CLAIM_COLUMNS, READ_MANY, Claim
from ledger.database import Connection, Database
from ledger.statements import Statement
from ledger.tables import claims, effects
from ledger.verdicts import Recorded, decisions_of
from operations.contracts import EffectRecord


def _listed(parameter: str) -> TableValuedAlias:
    """The members of an array parameter as rows with the column `value`."""
    members = func.unnest(bindparam(parameter, type_=ARRAY(Text)))
    return members.table_valued("value").render_derived(name=f"wanted_{parameter}")


_operations = _listed("operations")
_states = _listed("states")
_newest = (
    select(claims.c.id, claims.c.created_at)
    .where(
        claims.c.tenant == bindparam("tenant"),
        claims.c.operation == _operations.c.value,
        claims.c.state == _states.c.value,
        claims.c.created_at > bindparam("created_after"),
        tuple_(claims.c.created_at, claims.c.id)
        < tuple_(
            bindparam("before_at", type_=claims.c.created_at.type),
            bindparam("before_id", type_=BigInteger),
        ),
    )
    .order_by(claims.c.created_at.desc(), claims.c.id.desc())
    .limit(bindparam("limit"))
    .correlate(_operations, _states)
    .lateral("newest")
)
_page = (
    select(_newest.c.id)
    .select_from(_operations.join(_states, true()).join(_newest, true()))
    .order_by(_newest.c.created_at.desc(), _newest.c.id.desc())
    .limit(bindparam("limit"))
    .subquery("page")
)
PAGE = Statement(
    select(*CLAIM_COLUMNS)
    .join(_page, _page.c.id == claims.c.id)
    .order_by(claims.c.created_at.desc(), claims.c.id.desc())
)
"""At most `limit` entries of one index for each operation and state, however many rows there are:
the filters are lists, so that one index serves them all."""

_EFFECTS = Statement(
    select(claims.c.id.label("of_claim"), claims.c.revision, *effect_rows.EFFECT_COLUMNS)
    .select_from(claims.outerjoin(effects, effects.c.claim_id == claims.c.id))
    .where(claims.c.id == any_(bindparam("ids", type_=ARRAY(BigInteger))))
    .order_by(effects.c.created_at, effects.c.ordinal)
)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the list, newest first: behind the operation accepted then."""

    created_at: datetime
    claim_id: int


@dataclass(frozen=True, slots=True)
class Account:
    """A claim and its effects, as they stood at one moment."""

    claim: Claim
    effects: tuple[EffectRecord, ...]
    decisions: tuple[Recorded, ...] = ()


@dataclass(frozen=True, slots=True)
class Readings:
    """Reads that nothing depends on. Every method raises StorageUnavailable."""

    database: Database

    async def account(self, claim: Claim) -> Account:
        """The claim as it is now, or was just now, with its effects at that same moment."""
        return (await self.accounts([claim]))[0]

    async def accounts(self, found: Sequence[Claim]) -> tuple[Account, ...]:
        """The claims, in their order, each with its effects at one moment; in one statement.

        A claim that has changed since it was read is read anew with its effects, in one snapshot:
        an ETag that names one revision must not go with the content of another.
        """
        if not found:
            return ()
        ids = [claim.id for claim in found]
        async with self.database.connection() as connection:
            known = {claim.id: claim for claim in found}
            decided = await decisions_of(connection, ids)
            revisions, rows = await _effects(connection, ids)
            if any(revisions.get(claim.id) != claim.revision for claim in found):
                async with connection.transaction(isolation="repeatable_read", readonly=True):
                    fresh = await connection.fetch(*READ_MANY(ids=ids))
                    known |= {row["id"]: Claim.from_row(row) for row in fresh}
                    _, rows = await _effects(connection, ids)
                    decided = await decisions_of(connection, ids)
        return tuple(
            Account(
                claim=known[claim_id],
                effects=rows.get(claim_id, ()),
                decisions=decided.get(claim_id, ()),
            )
            for claim_id in ids
        )

    async def page(
        self,
        *,
        tenant: str,
        operations: Sequence[str],
        states: Sequence[str],
        created_after: datetime,
        before: Position,
        limit: int,
    ) -> tuple[Claim, ...]:
        """Up to `limit` claims of a tenant, newest first, behind `before`.

        Only those of `operations` and in `states` that were accepted after `created_after`.
        """
        async with self.database.connection() as connection:
            rows = await connection.fetch(
                *PAGE(
                    tenant=tenant,
                    operations=list(operations),
                    states=list(states),
                    created_after=created_after,
                    before_at=before.created_at,
                    before_id=before.claim_id,
                    limit=limit,
                )
            )
        return tuple(Claim.from_row(row) for row in rows)


async def _effects(
    connection: Connection, ids: Sequence[int]
) -> tuple[dict[int, int], dict[int, tuple[EffectRecord, ...]]]:
    """Revisions and effects by claim, oldest effect first."""
    rows = await connection.fetch(*_EFFECTS(ids=list(ids)))
    revisions: dict[int, int] = {}
    found: dict[int, list[Record]] = {}
    for row in rows:
        revisions[row["of_claim"]] = row["revision"]
        if row["step"] is not None:
            found.setdefault(row["of_claim"], []).append(row)
    read = {claim: tuple(effect_rows.read(row) for row in of) for claim, of in found.items()}
    return revisions, read
