"""What the relay asks: which open claims are due for a look at their run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import (
    ARRAY,
    BigInteger,
    any_,
    bindparam,
    func,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import INTERVAL
from sqlalchemy.sql.elements import Grouping

from ledger.claims import CLAIM_COLUMNS, Claim
from ledger.database import Database
from ledger.statements import Statement
from ledger.tables import claims

CHECK_SECONDS_MIN = 5
CHECK_SECONDS_MAX = 300
"""A claim is looked at again after half its age, but at least every five minutes: a run that was
terminated young is found at once, and ten thousand parked operations cost 33 calls a second."""

_due = (
    select(claims.c.id)
    .where(claims.c.check_at <= bindparam("now"))
    .order_by(claims.c.check_at)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
    .scalar_subquery()
)
_age = Grouping(bindparam("now", type_=claims.c.created_at.type) - claims.c.created_at)
_half_age = _age.op("*", return_type=INTERVAL())(literal_column("0.5"))
_TAKE_DUE = Statement(
    update(claims)
    .where(claims.c.id.in_(_due))
    .values(
        check_at=bindparam("now", type_=claims.c.created_at.type)
        + func.least(
            func.greatest(_half_age, literal(timedelta(seconds=CHECK_SECONDS_MIN), INTERVAL)),
            literal(timedelta(seconds=CHECK_SECONDS_MAX), INTERVAL),
        )
    )
    .returning(*CLAIM_COLUMNS)
)
_still_open = (
    select(claims.c.id)
    .where(
        claims.c.id == any_(bindparam("ids", type_=ARRAY(BigInteger))),
        claims.c.check_at.is_not(None),
    )
    .with_for_update(skip_locked=True)
    .scalar_subquery()
)
_CHECK_AGAIN = Statement(
    update(claims).where(claims.c.id.in_(_still_open)).values(check_at=bindparam("at"))
)


@dataclass(frozen=True, slots=True)
class Relays:
    """Statements of the relay."""

    database: Database

    async def take_due(self, *, now: datetime, limit: int) -> tuple[Claim, ...]:
        """Take up to `limit` open claims whose run is to be checked, and set their next check.

        In one transaction; two relays never take the same one. Raises StorageUnavailable.
        """
        async with self.database.connection() as connection:
            rows = await connection.fetch(*_TAKE_DUE(now=now, limit=limit))
        return tuple(Claim.from_row(row) for row in rows)

    async def check_again(self, claim_ids: Sequence[int], *, at: datetime) -> None:
        """Set the next check of open claims; those that somebody works on are left out.

        Raises StorageUnavailable.
        """
        async with self.database.connection() as connection:
            await connection.execute(*_CHECK_AGAIN(ids=list(claim_ids), at=at))
