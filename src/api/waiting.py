"""Requests that wait for an operation. One read serves all who wait for the same claim."""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterable

import structlog

from ledger.claims import Claim, Claims
from ledger.database import StorageUnavailable

SWEEP_SECONDS = 1.0
"""How late a waiter is told when an announcement was lost."""

READ_AT_ONCE_MAX = 500

_log = structlog.get_logger(__name__)


class Watch:
    """One claim that somebody waits for."""

    def __init__(self, draining: asyncio.Event) -> None:
        """Nothing is known yet."""
        self._draining = draining
        self._latest: Claim | None = None
        self._changed = asyncio.Event()
        self._given_up_until = float("-inf")
        self.waiters = 0

    @property
    def given_up(self) -> bool:
        """Whether there was no run to wait for just now."""
        return asyncio.get_running_loop().time() < self._given_up_until

    def give_up(self, *, seconds: float) -> None:
        """There is no run, and will not be for `seconds`: let those go who wait for its end."""
        self._given_up_until = asyncio.get_running_loop().time() + seconds
        self.wake()

    def show(self, claim: Claim) -> None:
        """Tell everybody who waits what the claim looks like now."""
        if self._latest is None or claim.revision > self._latest.revision:
            self._latest = claim
            self.wake()

    def wake(self) -> None:
        """Let everybody look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until(self, holds: Callable[[Claim], bool], *, seconds: float) -> Claim:
        """The claim once `holds` is true of it, or as it is known when `seconds` are over."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        while True:
            latest, changed = self._latest, self._changed
            assert latest is not None
            left = deadline - clock()
            if holds(latest) or left <= 0 or self._draining.is_set():
                return latest
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), timeout=left)


class Waiters:
    """Everybody in this process who waits for a claim to change."""

    def __init__(self, claims: Claims) -> None:
        """Nobody waits yet."""
        self._claims = claims
        self._watches: dict[int, Watch] = {}
        self._stale: set[int] = set()
        self._wake = asyncio.Event()
        self._draining = asyncio.Event()

    def hear(self, claim_ids: Iterable[int]) -> None:
        """Claims have changed: read those that somebody waits for."""
        heard = [claim_id for claim_id in claim_ids if claim_id in self._watches]
        if heard:
            self._stale.update(heard)
            self._wake.set()

    @property
    def draining(self) -> bool:
        """Whether everybody is being let go."""
        return self._draining.is_set()

    def give_up(self, claim_id: int, *, seconds: float) -> None:
        """There is no run of the claim: let those go who wait for it."""
        watch = self._watches.get(claim_id)
        if watch is not None:
            watch.give_up(seconds=seconds)

    def count(self) -> int:
        """How many requests and streams wait or watch."""
        return sum(watch.waiters for watch in self._watches.values())

    def drain(self) -> None:
        """Let everybody go, now and from now on: the process is about to stop."""
        self._draining.set()
        for watch in self._watches.values():
            watch.wake()

    async def serve(self) -> None:
        """Read changed claims for as long as it runs, and all watched ones every second."""
        while True:
            try:
                await asyncio.wait_for(self._wake.wait(), timeout=SWEEP_SECONDS)
            except TimeoutError:
                self._stale.update(self._watches)
            self._wake.clear()
            try:
                await self._read_stale()
            except StorageUnavailable as error:
                _log.warning("waiters.not_read", waiting=len(self._watches), reason=str(error))

    @contextlib.contextmanager
    def watch(self, claim: Claim) -> Generator[Watch]:
        """Watch a claim: no change from here on is missed, and one before is found at once."""
        watch = self._watches.setdefault(claim.id, Watch(self._draining))
        watch.waiters += 1
        watch.show(claim)
        if not claim.fresh:
            self.hear([claim.id])
        try:
            yield watch
        finally:
            watch.waiters -= 1
            if watch.waiters == 0:
                self._watches.pop(claim.id, None)

    async def _read_stale(self) -> None:
        while self._stale:
            some = [self._stale.pop() for _ in range(min(len(self._stale), READ_AT_ONCE_MAX))]
            for claim in await self._claims.read_many(some):
                watch = self._watches.get(claim.id)
                if watch is not None:
                    watch.show(claim)
