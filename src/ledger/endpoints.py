"""Tenants' endpoints: where events are sent, and how that goes."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from asyncpg import Record
from sqlalchemy import (
    BigInteger,
    Text,
    bindparam,
    delete,
    func,
    literal,
    null,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from ledger.database import Database
from ledger.message_tables import endpoints, outbox
from ledger.outbox import ping
from ledger.statements import Statement

ENDPOINTS_MAX = 20
"""For each tenant: every event is a row for each of them."""

ROTATION_HOURS = 24
"""How long the secret before counts beside the new one."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row of `endpoints`, without its secrets."""

    tenant: str
    id: str
    url: str
    enabled: bool
    revision: int
    failures: int
    failing_since: datetime | None
    last_error: str | None
    retry_at: datetime | None
    pending: int
    """Events that wait to be delivered."""
    created_at: datetime
    updated_at: datetime
    secret: str | None = field(default=None, repr=False)
    """Only in the answer of the call that made it."""


_pending = (
    select(func.count())
    .where(
        outbox.c.tenant == endpoints.c.tenant,
        outbox.c.endpoint == endpoints.c.id,
        outbox.c.delivered_at.is_(None),
    )
    .scalar_subquery()
    .label("pending")
)
_SHOWN = [
    endpoints.c[name]
    for name in (
        *("tenant", "id", "url", "enabled", "revision", "failures", "failing_since"),
        *("last_error", "retry_at", "created_at", "updated_at"),
    )
]
_of_tenant = endpoints.c.tenant == bindparam("tenant")
_this = _of_tenant & (endpoints.c.id == bindparam("id"))
_as_read = _this & (endpoints.c.revision == bindparam("known_revision"))
_READ = Statement(select(*_SHOWN, _pending).where(_this))
_LIST = Statement(select(*_SHOWN, _pending).where(_of_tenant).order_by(endpoints.c.id))
_room = (
    select(func.count()).where(endpoints.c.tenant == bindparam("tenant")).scalar_subquery()
    < ENDPOINTS_MAX
)
_now = bindparam("now", type_=endpoints.c.created_at.type)
_ADD = Statement(
    insert(endpoints)
    .from_select(
        ["tenant", "id", "url", "secret", "created_at", "updated_at"],
        select(
            bindparam("tenant", type_=Text),
            bindparam("id", type_=Text),
            bindparam("url", type_=Text),
            bindparam("secret", type_=Text),
            _now,
            _now,
        ).where(_room),
    )
    .on_conflict_do_nothing()
    .returning(endpoints.c.id)
)
_CHANGE = Statement(
    update(endpoints)
    .where(_as_read)
    .values(
        url=bindparam("url"),
        enabled=true(),
        failures=0,
        failing_since=null(),
        last_error=null(),
        retry_at=null(),
        revision=endpoints.c.revision + literal(1, BigInteger),
        updated_at=_now,
    )
    .returning(endpoints.c.id)
)
_ROTATE = Statement(
    update(endpoints)
    .where(_as_read)
    .values(
        secret=bindparam("secret"),
        previous_secret=endpoints.c.secret,
        previous_until=_now + literal(timedelta(hours=ROTATION_HOURS)),
        revision=endpoints.c.revision + literal(1, BigInteger),
        updated_at=_now,
    )
    .returning(endpoints.c.id)
)
_DELETE = Statement(delete(endpoints).where(_as_read).returning(endpoints.c.id))


class Endpoints:
    """Managing endpoints. Every method raises StorageUnavailable."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def read(self, *, tenant: str, endpoint: str) -> Endpoint | None:
        """One endpoint of a tenant."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(*_READ(tenant=tenant, id=endpoint))
        return None if row is None else _endpoint(row)

    async def list(self, *, tenant: str) -> tuple[Endpoint, ...]:
        """All endpoints of a tenant; there are few."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(*_LIST(tenant=tenant))
        return tuple(_endpoint(row) for row in rows)

    async def add(
        self, *, tenant: str, endpoint: str, url: str, secret: str, now: datetime
    ) -> Endpoint | None:
        """Add an endpoint, in one transaction; it is sent a ping. None when there is one of this
        name, or no room for another."""
        async with self._database.transaction() as connection:
            added = await connection.fetchval(
                *_ADD(tenant=tenant, id=endpoint, url=url, secret=secret, now=now)
            )
            if added is None:
                return None
            await ping(connection, tenant=tenant, endpoint=endpoint, sequence=1, now=now)
            row = await connection.fetchrow(*_READ(tenant=tenant, id=endpoint))
        assert row is not None
        return _endpoint(row, secret=secret)

    async def change(
        self, *, tenant: str, endpoint: str, url: str, revision: int, now: datetime
    ) -> Endpoint | None:
        """Set the address and switch it on, in one transaction; it is sent a ping. None when
        `revision` is not the present one."""
        async with self._database.transaction() as connection:
            changed = await connection.fetchval(
                *_CHANGE(tenant=tenant, id=endpoint, url=url, known_revision=revision, now=now)
            )
            if changed is None:
                return None
            await ping(connection, tenant=tenant, endpoint=endpoint, sequence=revision + 1, now=now)
            row = await connection.fetchrow(*_READ(tenant=tenant, id=endpoint))
        assert row is not None
        return _endpoint(row)

    async def rotate(
        self, *, tenant: str, endpoint: str, secret: str, revision: int, now: datetime
    ) -> Endpoint | None:
        """Give it a new secret, in one transaction; the one before counts for a day. None when
        `revision` is not the present one."""
        async with self._database.transaction() as connection:
            changed = await connection.fetchval(
                *_ROTATE(
                    tenant=tenant, id=endpoint, secret=secret, known_revision=revision, now=now
                )
            )
            if changed is None:
                return None
            row = await connection.fetchrow(*_READ(tenant=tenant, id=endpoint))
        assert row is not None
        return _endpoint(row, secret=secret)

    async def remove(self, *, tenant: str, endpoint: str, revision: int) -> bool:
        """Delete it, with all that waits to be delivered, in one transaction. False when `revision`
        is not the present one."""
        async with self._database.connection() as connection:
            gone = await connection.fetchval(
                *_DELETE(tenant=tenant, id=endpoint, known_revision=revision)
            )
        return gone is not None


def _endpoint(row: Record, *, secret: str | None = None) -> Endpoint:
    return Endpoint(**dict(row), secret=secret)
