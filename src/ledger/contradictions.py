"""Kept messages that contradict our books: they settled nothing, and a person should know."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asyncpg import Record
from sqlalchemy import BigInteger, Text, bindparam, or_, select

from ledger.database import Database
from ledger.message_tables import CONTRADICTS, inbox
from ledger.statements import Statement
from ledger.tables import claims
from operations.messages import Reading

_provider = bindparam("provider", type_=Text)
_COLUMNS = (
    *(inbox.c.id, inbox.c.provider, inbox.c.entity, inbox.c.version, inbox.c.state),
    *(inbox.c.event, inbox.c.reading, inbox.c.reference, inbox.c.provider_reference),
    *(inbox.c.amount_minor, inbox.c.currency, inbox.c.received_at, inbox.c.step),
    *(claims.c.tenant, claims.c.operation, claims.c.key),
)
_PAGE = Statement(
    select(*_COLUMNS)
    .join(claims, claims.c.id == inbox.c.claim_id)
    .where(
        CONTRADICTS,
        inbox.c.id < bindparam("before_id", type_=BigInteger),
        or_(_provider.is_(None), inbox.c.provider == _provider),
    )
    .order_by(inbox.c.id.desc())
    .limit(bindparam("limit", type_=BigInteger))
)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What a message said of an effect of ours, without the message itself."""

    id: int
    provider: str
    entity: str
    version: str
    state: str
    event: str
    reading: Reading
    reference: str | None
    provider_reference: str | None
    amount_minor: int | None
    currency: str | None
    received_at: datetime
    tenant: str
    operation: str
    key: str
    step: str


@dataclass(frozen=True, slots=True)
class Contradictions:
    """Listing them. Raises StorageUnavailable."""

    database: Database

    async def page(
        self, *, provider: str | None, before_id: int, limit: int
    ) -> tuple[Contradiction, ...]:
        """Up to `limit` of them, newest first, older than the row `before_id`."""
        async with self.database.connection() as connection:
            rows = await connection.fetch(
                *_PAGE(provider=provider, before_id=before_id, limit=limit)
            )
        return tuple(_read(row) for row in rows)


def _read(row: Record) -> Contradiction:
    values: dict[str, Any] = {**dict(row), "reading": Reading(row["reading"])}
    return Contradiction(**values)
