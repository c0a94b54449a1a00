"""Starting runs, and claiming keys, when very many ask at once or Temporal is away."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from api.limits import Scope
from api.turns import Turns
from ledger.claims import Claim
from ledger.database import StorageUnavailable
from ledger.relay import Relays

KEEP_SECONDS = 2.0
KEPT_FOR = timedelta(seconds=5)
"""How often the relay is told, and for how long: a process that is gone is noticed soon."""

KEPT_AT_ONCE = 500
"""In one statement."""

CLOSE_SECONDS = 3.0
"""Longer than a start may take."""

PAUSE_SECONDS = 1.0
"""After a start failed, nobody else tries for so long: the relay will."""


class Starts:
    """How starts of runs are held back: in turns, and none while Temporal is away."""

    def __init__(self) -> None:
        """Temporal is thought to be there."""
        self.turns = Turns()
        self._paused_until = float("-inf")
        self._under_way: dict[asyncio.Task[None], int] = {}

    def begin(self, claim_id: int, start: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let a start go on, whoever waits for it or leaves."""
        task = asyncio.create_task(start)
        self._under_way[task] = claim_id
        task.add_done_callback(self._under_way.pop)
        return task

    async def keep(self, relay: Relays, *, now: Callable[[], datetime]) -> None:
        """Tell the relay, for as long as it runs, what waits here for long: it is not to start it
        as well. What is not told any more, because this process is gone, it starts."""
        before: frozenset[int] = frozenset()
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            waiting = frozenset(self.turns.waiting)
            kept, before = sorted(waiting & before), waiting
            with contextlib.suppress(StorageUnavailable):
                for first in range(0, len(kept), KEPT_AT_ONCE):
                    some = kept[first : first + KEPT_AT_ONCE]
                    await relay.check_again(some, at=now() + KEPT_FOR)

    async def close(self, relay: Relays, *, now: Callable[[], datetime]) -> None:
        """Finish the calls that are made, and leave to the relay, at once, what waits."""
        waiting = set(self.turns.waiting)
        calls = [task for task, claim_id in self._under_way.items() if claim_id not in waiting]
        if calls:
            await asyncio.wait(calls, timeout=CLOSE_SECONDS)
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if waiting:
            with contextlib.suppress(StorageUnavailable):
                await relay.check_again(sorted(waiting), at=now())

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
