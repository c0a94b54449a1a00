"""The end of retention: a receipt's contents go, its key stays spent for ever.

A tombstone is the claim's own row: its unique key keeps refusing, and it answers 410. Nobody
deletes it: an old key must never become a new charge. Only done operations expire; what is open or
parked never does.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, func, literal, null, select, update
from sqlalchemy.dialects.postgresql import JSONB

from ledger.database import Database
from ledger.statements import Statement
from ledger.tables import claims, effects
from operations.states import ClaimState

_due = (
    select(claims.c.id)
    .where(
        claims.c.state == ClaimState.DONE.value,
        claims.c.expires_at <= bindparam("now"),
    )
    .order_by(claims.c.expires_at)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
    .cte("due")
)
_expired = (
    update(claims)
    .where(claims.c.id == _due.c.id)
    .values(
        state=ClaimState.EXPIRED.value,
        request=null(),
        profiles=null(),
        outcome=null(),
        receipt_status=null(),
        receipt_headers=null(),
        receipt_body=null(),
        revision=claims.c.revision + 1,
        updated_at=bindparam("now"),
    )
    .returning(claims.c.id)
    .cte("expired")
)
_cleared = (
    update(effects)
    .where(effects.c.claim_id == _expired.c.id)
    .values(request=literal({}, JSONB), frozen_body=null())
    .returning(effects.c.claim_id)
    .cte("cleared")
)
_EXPIRE = Statement(select(func.count()).select_from(_expired).add_cte(_cleared))


@dataclass(frozen=True, slots=True)
class Housekeepings:
    """Statements of housekeeping."""

    database: Database

    async def expire(self, *, now: datetime, limit: int) -> int:
        """Clear up to `limit` claims whose retention is over at `now`, in one transaction.

        Returns how many. Of an effect, its state, references and amounts stay, which refunds and
        reconciliation need; its request goes. Rows that somebody else has locked are left for the
        next time: no claim waits for this. Raises StorageUnavailable.
        """
        async with self.database.connection() as connection:
            count: int = await connection.fetchval(*_EXPIRE(now=now, limit=limit))
        return count
