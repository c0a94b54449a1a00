"""Claims: who was first, what it meant, and what came of it. The hot path of the service."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from asyncpg import Record
from asyncpg.exceptions import ForeignKeyViolationError, LockNotAvailableError
from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    Select,
    and_,
    any_,
    bindparam,
    exists,
    false,
    literal,
    literal_column,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.elements import ColumnElement

from ledger import outbox
from ledger.batches import Batches
from ledger.database import Database, Overtaken, StorageUnavailable
from ledger.statements import Statement, lock_wait_is_bounded, milliseconds, rows_given
from ledger.tables import claims
from operations.failpoints import Failpoint, fail_at
from operations.messages import EventType
from operations.states import ClaimState, Outcome

RELAY_GRACE_SECONDS = 5.0
"""How long a fresh claim is left to the process that made it before the relay takes care of it."""

SHORT_WAIT_SECONDS = 0.1
"""How long a statement that several share waits for a lock: they are not to wait for somebody
else's row. Who did not get through with it goes on alone."""

LOCK_WAIT_SECONDS = 2.0
"""How long a claim waits alone for whoever claims the same key: that takes milliseconds."""

ALONE_MAX = 4
"""So many go on alone at a time."""

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


_Asking = tuple[Intent, datetime]
"""What is to be claimed, and when."""

CLAIM_COLUMNS = tuple(column for column in claims.c if column.name != "check_at")


def first_claims(asked: CTE) -> Select[*tuple[Any, ...]]:
    """The claims whose keys are in `asked`. One by one through the unique index: a planner that has
    never seen the table full would scan it."""
    first = (
        select(*CLAIM_COLUMNS)
        .where(*(claims.c[name] == asked.c[name] for name in SCOPE))
        .limit(literal_column("1"))
        .lateral("first")
    )
    return select(*first.c).select_from(asked.join(first, true()))


SCOPE = ("tenant", "operation", "key")
"""What no two claims share."""


def same_key(some: CTE, other: CTE) -> ColumnElement[bool]:
    """Whether two rows are about the same key."""
    return and_(*(some.c[name] == other.c[name] for name in SCOPE))


_ASKED = ("tenant", "operation", "key", "fingerprint", "request", "profiles")
_asked = rows_given({name: claims.c[name].type for name in (*_ASKED, "created_at", "check_at")})
_known = first_claims(_asked).cte("known")
_inserted = (
    insert(claims)
    .from_select(
        [*_ASKED, "created_at", "updated_at", "check_at", "state"],
        select(
            *(_asked.c[name] for name in (*_ASKED, "created_at", "created_at", "check_at")),
            literal(ClaimState.ACCEPTED.value),
        ).where(
            # Also an insert that does nothing waits for whoever is changing the row.
            ~exists(select(_known.c.id).where(same_key(_known, _asked))),
            lock_wait_is_bounded(),
        ),
    )
    .on_conflict_do_nothing(index_elements=SCOPE)
    .returning(*CLAIM_COLUMNS)
    .cte("inserted")
)
_claimed = union_all(
    select(true().label("fresh"), *(_inserted.c[column.name] for column in CLAIM_COLUMNS)),
    select(false().label("fresh"), *(_known.c[column.name] for column in CLAIM_COLUMNS)),
)
_CLAIM = Statement(_claimed)
_CLAIM_AND_TELL = Statement(_claimed.add_cte(outbox.told(_inserted, EventType.ACCEPTED)))
_by_key = (
    (claims.c.tenant == bindparam("tenant"))
    & (claims.c.operation == bindparam("operation"))
    & (claims.c.key == bindparam("key"))
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
        self._telling = self._batches(tells=True)
        self._silent = self._batches(tells=False)
        self._alone = asyncio.Semaphore(ALONE_MAX)

    async def claim(self, intent: Intent, *, now: datetime) -> Claim:
        """Claim the key, or find the claim that was first, in one statement and transaction: our
        own, or one for all who claim at this moment."""
        batches = self._telling if intent.tells else self._silent
        claim = await batches.call((intent, now))
        return claim or await self._claim_alone(intent, now=now)

    async def _claim_alone(self, intent: Intent, *, now: datetime) -> Claim:
        """What did not get through with others: somebody is claiming the key this very moment."""
        for attempt in range(SNAPSHOT_TRIES):
            try:
                async with self._alone:
                    [claim] = await self._commit(
                        [(intent, now)], tells=intent.tells, lock_wait=LOCK_WAIT_SECONDS
                    )
            except LockNotAvailableError as error:
                raise StorageUnavailable("The key is being claimed by somebody slow") from error
            except Overtaken:
                claim = None
            except ForeignKeyViolationError as error:
                _raise_unless_endpoint_is_gone(error)
                claim = None
            if claim is not None:
                return claim
            await asyncio.sleep(0.002 * 2**attempt)
        raise StorageUnavailable("The claim that was first did not become visible in time")

    def _batches(self, *, tells: bool) -> Batches[_Asking, Claim | None]:
        return Batches(
            lambda asked: self._all_or_none(asked, tells=tells),
            marks=lambda asking: (_scope_of(asking),),
        )

    async def _all_or_none(
        self, asked: Sequence[_Asking], *, tells: bool
    ) -> Sequence[Claim | None]:
        """All of them; None: did not get through at once, or is too new to be seen."""
        try:
            return await self._commit(asked, tells=tells, lock_wait=SHORT_WAIT_SECONDS)
        except (LockNotAvailableError, Overtaken):
            return [None] * len(asked)
        except ForeignKeyViolationError as error:
            _raise_unless_endpoint_is_gone(error)
            return [None] * len(asked)

    async def _commit(
        self, asked: Sequence[_Asking], *, tells: bool, lock_wait: float
    ) -> Sequence[Claim | None]:
        """One statement, one transaction."""
        columns: dict[str, Any] = {**_columns(asked), "lock_wait": milliseconds(lock_wait)}
        if tells:
            columns["now"] = max(now for _, now in asked)
        statement = _CLAIM_AND_TELL if tells else _CLAIM
        fail_at(Failpoint.CLAIM_COMMITTING)
        async with self._database.connection() as connection:
            rows = await connection.fetch(*statement(**columns))
        fail_at(Failpoint.CLAIM_COMMITTED)
        found = (Claim.from_row(row, fresh=row["fresh"]) for row in rows)
        by_scope = {(claim.tenant, claim.operation, claim.key): claim for claim in found}
        return [by_scope.get(_scope_of(each)) for each in asked]

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


def _raise_unless_endpoint_is_gone(error: ForeignKeyViolationError) -> None:
    """An endpoint that is being deleted can be seen, and not be told any more: look again."""
    if not outbox.is_about_endpoints(error):
        raise error


def _scope_of(asking: _Asking) -> tuple[str, str, str]:
    intent = asking[0]
    return intent.tenant, intent.operation, intent.key


def _columns(asked: Sequence[_Asking]) -> dict[str, list[Any]]:
    """Column by column. In order of the unique key, so that no two batches wait for each other."""
    ordered = sorted(asked, key=_scope_of)
    grace = timedelta(seconds=RELAY_GRACE_SECONDS)
    return {
        **{name: [getattr(intent, name) for intent, _ in ordered] for name in _ASKED},
        "created_at": [now for _, now in ordered],
        "check_at": [now + grace for _, now in ordered],
    }


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
