"""Who may start a run now: few calls at once, tenants in turn, and for each no more open runs than
the deployment bears.

A flood that is started as fast as it comes keeps every part busy with what is not its turn: with
Temporal's writes, and with a worker that works on many runs at a time. Taking turns at each of
these places is not enough then. So a run counts against its tenant from its start until its end,
or until it has been open for so long that it must be waiting for somebody else; and what a tenant
may have open shrinks while Temporal takes longer to take a run, and grows while it does not.
"""

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from dataclasses import dataclass
from statistics import median

CONCURRENT_STARTS = 16
"""Temporal answers a few starts fast, or hundreds late."""

OPEN_SECONDS = 0.3
"""A run that is still open after this waits for a provider, and costs nobody anything."""

LATELY_SECONDS = 10.0
"""A tenant that started something so recently shares with the others."""

ALONE_OPEN = 12
"""What a tenant may have open when there is no other: enough to keep a process busy."""

OPEN_AT_FIRST = 16.0
OPEN_MAX = 1000.0

WAITING_MAX = 1000
"""Of one tenant, in one process. Then it is refused new operations."""

SLOW_FACTOR = 1.5
SLOW_SECONDS = 0.006
"""A start is slow that takes so many times what one takes at best, and so much longer."""

_USUAL_OF = 15
_SHRINKING = 0.95
_GROWING = 1.03
_FORGETTING_PER_SECOND = 0.001
"""Of the best time: what was measured beside another server is forgotten in about an hour."""


class Room:
    """How many runs may be open at once, learnt from how long their starts take.

    After TCP Vegas: a queue somewhere shows as a delay, long before anything is refused.
    """

    def __init__(self) -> None:
        """Nothing is known: begin in the middle."""
        self.runs = OPEN_AT_FIRST
        self._best_seconds = float("inf")
        self._latest: deque[float] = deque(maxlen=_USUAL_OF)
        self._learnt_at = 0.0

    def learn(self, seconds: float, *, at: float, wanted: bool) -> None:
        """A start took `seconds`. `wanted`: somebody waits for more room."""
        forgotten = 1 + _FORGETTING_PER_SECOND * (at - self._learnt_at)
        self._best_seconds = min(self._best_seconds * forgotten, seconds)
        self._learnt_at = at
        self._latest.append(seconds)
        if median(self._latest) > SLOW_FACTOR * self._best_seconds + SLOW_SECONDS:
            self.runs = max(1.0, self.runs * _SHRINKING)
        elif wanted:
            self.runs = min(OPEN_MAX, self.runs * _GROWING + 0.1)


@dataclass(slots=True)
class Turn:
    """One start whose turn it is."""

    needed: bool
    """False when the run has come to something meanwhile, without this start."""
    started: bool = False
    """Set it when the start succeeded: the run is open from then on."""


class Turns:
    """So many calls at once; and tenants take turns, each in the order of asking."""

    def __init__(
        self,
        *,
        at_once: int = CONCURRENT_STARTS,
        room: Room | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is open, and nobody waits."""
        self.room = room or Room()
        self._clock = clock
        self._free = at_once
        self._waiting: OrderedDict[str, deque[tuple[int, asyncio.Future[bool]]]] = OrderedDict()
        self._waits: dict[int, asyncio.Future[bool]] = {}
        self._open: dict[int, str] = {}
        self._open_of: Counter[str] = Counter()
        self._lately: OrderedDict[str, float] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn(self, tenant: str, run: int) -> AsyncGenerator[Turn]:
        """Wait until a start of `tenant` may go on, and keep its place for the length of the body.

        `run` is whatever `changed` will be told.
        """
        if not await self._come(tenant, run):
            yield Turn(needed=False)
            return
        began, turn = self._clock(), Turn(needed=True)
        try:
            yield turn
        finally:
            self._free += 1
            if turn.started:
                now = self._clock()
                self.room.learn(now - began, at=now, wanted=self._free > 1 and bool(self._waiting))
                asyncio.get_running_loop().call_later(OPEN_SECONDS, self.changed, (run,))
            else:
                self._close(run)
            self._let_in()

    def changed(self, runs: Iterable[int]) -> None:
        """These runs have ended, or wait for somebody: they are not open any more."""
        for run in runs:
            waits = self._waits.get(run)
            if waits is not None and not waits.done():
                waits.set_result(False)
            if self._close(run):
                self._let_in()

    def is_full(self, tenant: str) -> bool:
        """Whether as many starts of `tenant` wait here as are kept."""
        return len(self._waiting.get(tenant, ())) >= WAITING_MAX

    @property
    def waiting(self) -> Collection[int]:
        """The runs that wait for their turn, in the order of asking."""
        return self._waits.keys()

    def may_have_open(self) -> int:
        """How many runs one tenant may have open now."""
        tenants = self._count_lately()
        if tenants <= 1:
            return max(ALONE_OPEN, int(self.room.runs))
        return max(1, int(self.room.runs / tenants))

    async def _come(self, tenant: str, run: int) -> bool:
        """Return when it is the turn of `run`; False when it needs none any more."""
        if run in self._open or run in self._waits:
            return False
        self._note(tenant)
        queue = self._waiting.get(tenant)
        if not queue and self._may_go(tenant, most=self.may_have_open()):
            self._go(tenant, run)
            return True
        return await self._wait(tenant, run)

    async def _wait(self, tenant: str, run: int) -> bool:
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append((run, turn))
        self._waits[run] = turn
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result():  # let in at this very moment
                self._free += 1
                self._close(run)
            self._let_in()
            raise
        finally:
            del self._waits[run]

    def _may_go(self, tenant: str, *, most: int) -> bool:
        return self._free > 0 and self._open_of[tenant] < most

    def _go(self, tenant: str, run: int) -> None:
        self._note(tenant)
        self._free -= 1
        self._open[run] = tenant
        self._open_of[tenant] += 1

    def _close(self, run: int) -> bool:
        tenant = self._open.pop(run, None)
        if tenant is None:
            return False
        self._open_of[tenant] -= 1
        if not self._open_of[tenant]:
            del self._open_of[tenant]
        return True

    def _let_in(self) -> None:
        """Give the free places to those who are next, one for each tenant in turn."""
        most, went = self.may_have_open(), True
        while went and self._free:
            went = False
            for tenant in list(self._waiting):
                went |= self._let_in_one(tenant, most=most)

    def _let_in_one(self, tenant: str, *, most: int) -> bool:
        queue = self._waiting[tenant]
        while queue and queue[0][1].done():
            queue.popleft()
        goes = bool(queue) and self._may_go(tenant, most=most)
        if goes:
            run, turn = queue.popleft()
            self._go(tenant, run)
            turn.set_result(True)
            self._waiting.move_to_end(tenant)
        if not queue:
            del self._waiting[tenant]
        return goes

    def _note(self, tenant: str) -> None:
        """The tenant is one of those who share, for a while."""
        self._lately[tenant] = self._clock()
        self._lately.move_to_end(tenant)

    def _count_lately(self) -> int:
        long_ago = self._clock() - LATELY_SECONDS
        while self._lately and next(iter(self._lately.values())) < long_ago:
            self._lately.popitem(last=False)
        return len(self._lately)
