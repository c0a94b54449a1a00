"""Starting runs, and claiming keys, when very many ask at once or Temporal is away."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import replace

from api.limits import Scope
from ledger.claims import Claim

CONCURRENT_STARTS = 16
"""Temporal answers a few starts fast, or hundreds late."""

TURN_SECONDS_MAX = 2.0
"""How long a start waits for its turn. Then Temporal is asked after all, and keeps the order among
tenants; the relay would ask soon."""

PAUSE_SECONDS = 1.0
"""After a start failed, nobody else tries for so long: the relay will."""


class Turns:
    """Who may go next: tenants take turns, and each of them in the order of asking."""

    def __init__(self, *, at_once: int, has_room: Callable[[int], bool]) -> None:
        """Nobody waits. `at_once` may be under way; `has_room`, asked with how many are, can say
        that one more would only be in the way. Call `look` when it would answer otherwise."""
        self._at_once = at_once
        self._has_room = has_room
        self._under_way = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, tenant: str, *, seconds_max: float) -> AsyncGenerator[None]:
        """Wait for a turn, `seconds_max` at the most, and keep it for as long as the body takes."""
        if self._waiting or not self._is_open():
            await self._wait(tenant, seconds_max=seconds_max)
        else:
            self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self.look()

    def look(self) -> None:
        """Let in whoever is next, for as long as there is room."""
        while self._waiting and self._is_open():
            tenant, queue = next(iter(self._waiting.items()))
            turn = queue.popleft()
            del self._waiting[tenant]
            if queue:
                self._waiting[tenant] = queue  # behind all other tenants
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)

    def _is_open(self) -> bool:
        return self._under_way < self._at_once and self._has_room(self._under_way)

    async def _wait(self, tenant: str, *, seconds_max: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self.look()
        try:
            await asyncio.wait({turn}, timeout=seconds_max)
        except asyncio.CancelledError:
            if turn.done():
                self._under_way -= 1
                self.look()
            turn.cancel()
            raise
        if not turn.done():
            turn.cancel()
            self._under_way += 1


class Starts:
    """How starts of runs are held back: a few at a time, none while Temporal is away."""

    def __init__(self, *, has_room: Callable[[int], bool] = lambda _under_way: True) -> None:
        """Temporal is thought to be there. `has_room`: see `Turns`."""
        self.turns = Turns(at_once=CONCURRENT_STARTS, has_room=has_room)
        self._paused_until = float("-inf")

    def turn(self, tenant: str) -> contextlib.AbstractAsyncContextManager[None]:
        """The turn of one of `tenant`'s starts."""
        return self.turns.turn(tenant, seconds_max=TURN_SECONDS_MAX)

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
