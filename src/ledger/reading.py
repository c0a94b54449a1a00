"""What people and programs read: an operation's effects, and pages of operations."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Text, bindparam, cast, or_, select

from ledger import effect_rows
from ledger.claims import CLAIM_COLUMNS, Claim
from ledger.database import Database
from ledger.statements import Statement
from ledger.tables import claims
from operations.contracts import EffectRecord

_PAGE = Statement(
    select(*CLAIM_COLUMNS)
    .where(
        claims.c.tenant == bindparam("tenant"),
        claims.c.id < bindparam("before_id"),
        or_(
            cast(bindparam("operation"), Text).is_(None),
            claims.c.operation == bindparam("operation"),
        ),
        or_(cast(bindparam("state"), Text).is_(None), claims.c.state == bindparam("state")),
        claims.c.created_at > bindparam("created_after"),
    )
    .order_by(claims.c.id.desc())
    .limit(bindparam("limit"))
)


@dataclass(frozen=True, slots=True)
class Readings:
    """Reads that nothing depends on. Every method raises StorageUnavailable."""

    database: Database

    async def effects(self, claim_id: int) -> tuple[EffectRecord, ...]:
        """All effects of an operation, oldest first."""
        async with self.database.connection() as connection:
            rows = await connection.fetch(*effect_rows.OF_CLAIM(claim_id=claim_id))
        return tuple(effect_rows.read(row) for row in rows)

    async def page(
        self,
        *,
        tenant: str,
        operation: str | None,
        state: str | None,
        created_after: datetime,
        before_id: int,
        limit: int,
    ) -> tuple[Claim, ...]:
        """Up to `limit` claims of a tenant, newest first, older than the row `before_id`."""
        async with self.database.connection() as connection:
            rows = await connection.fetch(
                *_PAGE(
                    tenant=tenant,
                    operation=operation,
                    state=state,
                    created_after=created_after,
                    before_id=before_id,
                    limit=limit,
                )
            )
        return tuple(Claim.from_row(row) for row in rows)
