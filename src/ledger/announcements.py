"""Telling waiting requests, in whatever process, that a claim changed: NOTIFY, after the commit.

Not inside the transaction: Postgres commits notifying transactions one at a time. An announcement
that is lost delays a waiter until its next sweep, and nothing else.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection

import asyncpg
import structlog

from ledger.database import UNREACHABLE, Database, StorageUnavailable

CHANNEL = "tallystick_claims"
IDS_PER_MESSAGE_MAX = 300
"""A payload may have 8000 bytes, an identifier 19 digits and a comma."""

RECONNECT_SECONDS = 0.5

_log = structlog.get_logger(__name__)
_TELL = "SELECT pg_notify($1, $2)"


class Announcer:
    """Announces changed claims, many in one message when they come fast."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database
        self._changed: set[int] = set()
        self._telling: asyncio.Task[None] | None = None

    def announce(self, claim_id: int) -> None:
        """Tell, soon, that a claim has changed. Returns at once and never fails."""
        self._changed.add(claim_id)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def close(self) -> None:
        """Wait for what is being told."""
        if self._telling is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._telling

    async def _tell(self) -> None:
        while self._changed:
            some = [
                self._changed.pop() for _ in range(min(len(self._changed), IDS_PER_MESSAGE_MAX))
            ]
            try:
                async with self._database.connection() as connection:
                    await connection.execute(_TELL, CHANNEL, ",".join(map(str, some)))
            except StorageUnavailable as error:
                _log.warning("announcement.lost", claims=len(some), reason=str(error))


class Listener:
    """Hears of changed claims on a connection of its own, for as long as it runs."""

    def __init__(self, url: str, hear: Callable[[Collection[int]], None]) -> None:
        """Call `hear` with the identifiers of changed claims."""
        self._url = url
        self._hear = hear

    async def run(self) -> None:
        """Listen until cancelled, connecting again when the connection is lost."""
        while True:
            try:
                await self._listen()
            except UNREACHABLE as error:
                _log.warning("listener.disconnected", reason=type(error).__name__)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self) -> None:
        lost = asyncio.Event()
        connection = await asyncpg.connect(self._url, timeout=3.0)
        try:
            connection.add_termination_listener(lambda _connection: lost.set())
            await connection.add_listener(CHANNEL, self._heard)
            await lost.wait()
        finally:
            connection.terminate()

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._hear([int(claim_id) for claim_id in str(payload).split(",")])
