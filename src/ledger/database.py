"""The connection pool: bounds on every wait, and one error for "Postgres cannot answer now"."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
from asyncpg.exceptions import (
    IdleInTransactionSessionTimeoutError,
    InsufficientPrivilegeError,
    InsufficientResourcesError,
    InterfaceError,
    InternalClientError,
    InvalidAuthorizationSpecificationError,
    InvalidCatalogNameError,
    OperatorInterventionError,
    PostgresConnectionError,
    PostgresSystemError,
    ReadOnlySQLTransactionError,
    TransactionRollbackError,
    UndefinedColumnError,
    UndefinedTableError,
)
from asyncpg.pool import PoolConnectionProxy

if TYPE_CHECKING:
    Connection = PoolConnectionProxy[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]
else:
    Connection = PoolConnectionProxy
    Pool = asyncpg.Pool

UNREACHABLE = (
    IdleInTransactionSessionTimeoutError,
    InsufficientPrivilegeError,
    InsufficientResourcesError,
    InterfaceError,
    InternalClientError,
    InvalidAuthorizationSpecificationError,
    InvalidCatalogNameError,
    OperatorInterventionError,
    PostgresConnectionError,
    PostgresSystemError,
    ReadOnlySQLTransactionError,
    TransactionRollbackError,
    UndefinedColumnError,
    UndefinedTableError,
    TimeoutError,
    OSError,
)
"""What asyncpg raises when the database is gone, going, coming, full, not ours to write, not
migrated yet, or asks for the same transaction once more."""


class StorageUnavailable(Exception):
    """Postgres cannot answer now. Whether a commit under way took place is not known."""


class Overtaken(StorageUnavailable):
    """Postgres asks for the same transaction once more: others were in its way (a deadlock)."""


class Database:
    """A pool of asyncpg connections. Nothing is connected until the first use."""

    def __init__(self, pool: Pool, *, acquire_timeout_seconds: float) -> None:
        """Use `Database.open`."""
        self._pool = pool
        self._acquire_timeout_seconds = acquire_timeout_seconds

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        connections_max: int = 10,
        acquire_timeout_seconds: float = 3.0,
        command_timeout_seconds: float = 10.0,
        application_name: str = "tallystick",
    ) -> "Database":
        """Make the pool. Postgres need not be up yet."""
        pool = await asyncpg.create_pool(
            url,
            min_size=0,
            max_size=connections_max,
            command_timeout=command_timeout_seconds,
            timeout=acquire_timeout_seconds,
            max_inactive_connection_lifetime=300.0,
            server_settings={"application_name": application_name},
            init=_prepare,
            reset=_keep,
        )
        return cls(pool, acquire_timeout_seconds=acquire_timeout_seconds)

    async def close(self) -> None:
        """Close every connection; those still busy after two seconds are cut."""
        try:
            await asyncio.wait_for(self._pool.close(), timeout=2.0)
        except TimeoutError:
            self._pool.terminate()

    def connection(self) -> "Lease":
        """A connection, each statement its own transaction. Raises StorageUnavailable."""
        return Lease(self._pool, timeout_seconds=self._acquire_timeout_seconds)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """A connection inside one transaction. Raises StorageUnavailable."""
        async with self.connection() as connection, connection.transaction():
            yield connection


class Lease:
    """A connection of the pool for as long as the context lasts.

    The pool's own bound on the wait makes a task of every acquisition; a plain timeout does not.
    """

    __slots__ = ("_connection", "_pool", "_timeout_seconds")

    def __init__(self, pool: Pool, *, timeout_seconds: float) -> None:
        """Nothing is acquired yet."""
        self._pool = pool
        self._timeout_seconds = timeout_seconds

    async def __aenter__(self) -> Connection:
        """Acquire it. Raises StorageUnavailable."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                self._connection: Connection = await self._pool.acquire()
        except UNREACHABLE as error:
            raise _unavailable(error) from error
        return self._connection

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        """Give it back. Raises StorageUnavailable for what asyncpg raised meanwhile."""
        try:
            await self._pool.release(self._connection, timeout=self._timeout_seconds)
        except UNREACHABLE as lost:
            error = error or lost
        if isinstance(error, UNREACHABLE):
            raise _unavailable(error) from error


def _unavailable(error: BaseException) -> StorageUnavailable:
    kind = Overtaken if isinstance(error, TransactionRollbackError) else StorageUnavailable
    return kind(f"Postgres cannot answer: {type(error).__name__}")


async def _prepare(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """JSON columns are Python values. (A session has no other state: see `_keep`.)"""
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=_to_json, decoder=json.loads
    )


async def _keep(_connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Nothing to reset: we only ever SET LOCAL, so a released connection needs no round trip."""


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
