"""Claims: who was first, what it meant, and what came of it. The hot path of the service."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from asyncpg import Record
from sqlalchemy import ARRAY, BigInteger, any_, bindparam, false, select, true, union_all
from sqlalchemy.dialects.postgresql import insert

from ledger import outbox
from ledger.database import Database, StorageUnavailable
from ledger.statements import Statement
from ledger.tables import claims
from operations.failpoints import Failpoint, fail_at
from operations.messages import EventType
from operations.states import ClaimState, Outcome

RELAY_GRACE_SECONDS = 5.0
"""How long a fresh claim is left to the process that made it before the relay takes care of it."""

SNAPSHOT_TRIES = 5
"""A claim that is neither ours nor visible is being committed this very moment: look again."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a client wants done, under which key."""

    tenant: str
    operation: str
    key: str
    fingerprint: bytes
    request: str = field(repr=False)
    """The canonical request."""
    profiles: str = field(repr=False)
    """The providers' profiles, as JSON."""
    tells: bool = True
    """Whether the tenant may have endpoints to tell. Where it has none, not looking saves a twelfth
    of the statement; see `docs/messages.md`."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The exact answer of a done operation."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of `claims`: one intent of one client, for ever."""

    id: int
    tenant: str
    operation: str
    key: str
    fingerprint: bytes
    request: str | None
    profiles: str | None
    state: ClaimState
    outcome: Outcome | None
    receipt: Receipt | None
    revision: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    fresh: bool = False
    """Whether this call made it."""

    @classmethod
    def from_row(cls, row: Record, *, fresh: bool = False) -> "Claim":
        """Read a row that has all of `CLAIM_COLUMNS`."""
        outcome = row["outcome"]
        return cls(
            id=row["id"],
            tenant=row["tenant"],
            operation=row["operation"],
            key=row["key"],
            fingerprint=row["fingerprint"],
            request=row["request"],
            profiles=row["profiles"],
            state=ClaimState(row["state"]),
            outcome=None if outcome is None else Outcome(outcome),
            receipt=_receipt(row),
            revision=row["revision"],
            created_at=row["created_at"],
            updated_at=row["updated_at"],
            expires_at=row["expires_at"],
            fresh=fresh,
        )


CLAIM_COLUMNS = tuple(column for column in claims.c if column.name != "check_at")

_inserted = (
    insert(claims)
    .values(
        tenant=bindparam("tenant"),
        operation=bindparam("operation"),
        key=bindparam("key"),
        fingerprint=bindparam("fingerprint"),
        request=bindparam("request"),
        profiles=bindparam("profiles"),
        state=ClaimState.ACCEPTED.value,
        created_at=bindparam("now"),
        updated_at=bindparam("now"),
        check_at=bindparam("check_at"),
    )
    .on_conflict_do_nothing(index_elements=["tenant", "operation", "key"])
    .returning(*CLAIM_COLUMNS)
    .cte("inserted")
)
_by_key = (
    (claims.c.tenant == bindparam("tenant"))
    & (claims.c.operation == bindparam("operation"))
    & (claims.c.key == bindparam("key"))
)
_CLAIM = Statement(
    union_all(
        select(true().label("fresh"), *(_inserted.c[column.name] for column in CLAIM_COLUMNS)),
        select(false().label("fresh"), *CLAIM_COLUMNS).where(_by_key),
    )
)
_CLAIM_AND_TELL = Statement(
    union_all(
        select(true().label("fresh"), *(_inserted.c[column.name] for column in CLAIM_COLUMNS)),
        select(false().label("fresh"), *CLAIM_COLUMNS).where(_by_key),
    ).add_cte(outbox.told(_inserted, EventType.ACCEPTED))
)
_READ = Statement(select(*CLAIM_COLUMNS).where(_by_key))
READ_MANY = Statement(
    select(*CLAIM_COLUMNS).where(claims.c.id == any_(bindparam("ids", type_=ARRAY(BigInteger))))
)


class Claims:
    """Claiming and reading. Every method raises StorageUnavailable when Postgres cannot answer."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def claim(self, intent: Intent, *, now: datetime) -> Claim:
        """Claim the key, or find the claim that was first, in one statement and transaction."""
        statement = _CLAIM_AND_TELL if intent.tells else _CLAIM
        arguments = statement(
            tenant=intent.tenant,
            operation=intent.operation,
            key=intent.key,
            fingerprint=intent.fingerprint,
            request=intent.request,
            profiles=intent.profiles,
            now=now,
            check_at=now + timedelta(seconds=RELAY_GRACE_SECONDS),
        )
        for attempt in range(SNAPSHOT_TRIES):
            fail_at(Failpoint.CLAIM_COMMITTING)
            async with self._database.connection() as connection:
                row = await connection.fetchrow(*arguments)
            fail_at(Failpoint.CLAIM_COMMITTED)
            if row is not None:
                return Claim.from_row(row, fresh=row["fresh"])
            await asyncio.sleep(0.002 * 2**attempt)
        raise StorageUnavailable("The claim that was first did not become visible in time")

    async def read(self, *, tenant: str, operation: str, key: str) -> Claim | None:
        """Read a claim by its key."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(*_READ(tenant=tenant, operation=operation, key=key))
        return None if row is None else Claim.from_row(row)

    async def read_many(self, claim_ids: Sequence[int]) -> tuple[Claim, ...]:
        """Read claims by their rows' identifiers, in no order; those that are gone are left out."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(*READ_MANY(ids=list(claim_ids)))
        return tuple(Claim.from_row(row) for row in rows)


def _receipt(row: Record) -> Receipt | None:
    status = row["receipt_status"]
    if status is None:
        return None
    headers = json.loads(row["receipt_headers"])
    return Receipt(
        status=status,
        headers=tuple((name, value) for name, value in headers),
        body=row["receipt_body"],
    )
