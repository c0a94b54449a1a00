"""Starting runs, and claiming keys, when very many ask at once or Temporal is away."""

import asyncio
import contextlib
from collections.abc import Generator
from dataclasses import replace

from api.limits import Scope
from ledger.claims import Claim

CONCURRENT_STARTS = 16
"""Temporal answers a few starts fast, or hundreds late."""

PAUSE_SECONDS = 1.0
"""After a start failed, nobody else tries for so long: the relay will."""


class Starts:
    """How starts of runs are held back: a few at a time, none while Temporal is away."""

    def __init__(self) -> None:
        """Temporal is thought to be there."""
        self.gate = asyncio.Semaphore(CONCURRENT_STARTS)
        self._paused_until = float("-inf")

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
