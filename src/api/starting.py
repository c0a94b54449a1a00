"""Starting runs, and claiming keys, when very many ask at once or Temporal is away."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace

from api.limits import Scope
from ledger.claims import Claim

CONCURRENT_STARTS = 16
"""Temporal answers a few starts fast, or hundreds late."""

PAUSE_SECONDS = 1.0
"""After a start failed, nobody else tries for so long: the relay will."""


class Turns:
    """So many at once; then tenants take turns, and each of them in the order of asking."""

    def __init__(self, *, at_once: int) -> None:
        """Nobody is in, and nobody waits."""
        self._free = at_once
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, tenant: str) -> AsyncGenerator[None]:
        """Wait for a turn of `tenant`, and keep it for as long as the body takes."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(tenant)
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, tenant: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(tenant, deque())
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                queue.remove(turn)
                if not queue and self._waiting.get(tenant) is queue:
                    del self._waiting[tenant]
            else:
                self._leave()
            raise

    def _leave(self) -> None:
        """Give the place to whoever is next."""
        while self._waiting:
            tenant, queue = next(iter(self._waiting.items()))
            turn = queue.popleft()
            del self._waiting[tenant]
            if queue:
                self._waiting[tenant] = queue  # behind all other tenants
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Starts:
    """How starts of runs are held back: a few at a time, none while Temporal is away."""

    def __init__(self) -> None:
        """Temporal is thought to be there."""
        self._turns = Turns(at_once=CONCURRENT_STARTS)
        self._paused_until = float("-inf")

    def turn(self, tenant: str) -> contextlib.AbstractAsyncContextManager[None]:
        """The turn of one of `tenant`'s starts."""
        return self._turns.turn(tenant)

    @property
    def paused(self) -> bool:
        """Whether Temporal was away just now."""
        return asyncio.get_running_loop().time() < self._paused_until

    def pause(self) -> None:
        """Temporal is away: nobody else tries for a moment."""
        self._paused_until = asyncio.get_running_loop().time() + PAUSE_SECONDS


class Joins:
    """Requests that claim the same key at the same moment in this process: one claims for all."""

    def __init__(self) -> None:
        """Nobody claims."""
        self._leading: dict[Scope, asyncio.Future[Claim]] = {}

    async def join(self, scope: Scope) -> Claim | None:
        """What the request that claims `scope` right now finds; None when there is no such request,
        or it came to nothing."""
        leader = self._leading.get(scope)
        if leader is None:
            return None
        await asyncio.wait({leader})
        if leader.cancelled():
            return None
        return replace(leader.result(), fresh=False)

    @contextlib.contextmanager
    def lead(self, scope: Scope) -> Generator[asyncio.Future[Claim]]:
        """Claim `scope` for all who join; set the future's result to what was found."""
        if scope in self._leading:
            yield asyncio.get_running_loop().create_future()
            return
        found: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        self._leading[scope] = found
        try:
            yield found
        finally:
            del self._leading[scope]
            found.cancel()
