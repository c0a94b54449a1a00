"""Calls that arrive while others are under way are made together, in one.

Nobody waits for a batch to fill: whoever comes to a free lane goes at once and alone. So one call
at a time is as fast as without batches, and the busier it gets, the less each call costs.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ledger.database import StorageUnavailable

LANES = 2
"""Batches under way at once, in one process and of one kind. Few, so that batches form; more than
one, so that the next is being made while one waits for its commit."""

SIZE_MAX = 64

WAIT_SECONDS = 3.0
"""Who finds no lane for so long is refused: Postgres hangs, or cannot keep up."""

WAITING_MAX = 2000
"""So many can wait for a lane."""

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Waiting(Generic[Asked, Answer]):
    asked: Asked
    marks: tuple[Hashable, ...]
    answer: asyncio.Future[Answer]
    since: float


class Batches(Generic[Asked, Answer]):
    """One kind of call, a few batches of it at a time."""

    def __init__(
        self,
        perform: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]],
        *,
        marks: Callable[[Asked], Iterable[Hashable]],
        lanes: int = LANES,
        size_max: int = SIZE_MAX,
        waiting_max: int = WAITING_MAX,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """`perform` answers in the order in which it was asked; no two that share one of their
        `marks` are asked of it at the same time. Who waited longer than `wait_seconds` for that to
        begin is refused, and so is who finds `waiting_max` before him."""
        self._perform = perform
        self._marks = marks
        self._free_lanes = lanes
        self._size_max = size_max
        self._waiting_max = waiting_max
        self._wait_seconds = wait_seconds
        self._waiting: deque[_Waiting[Asked, Answer]] = deque()
        self._under_way: set[Hashable] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def call(self, asked: Asked) -> Answer:
        """Perform it, with others if there are any. Raises what `perform` raises for it, and
        StorageUnavailable for all of them, or when its turn did not come in time."""
        marks = tuple(self._marks(asked))
        if self._free_lanes and self._under_way.isdisjoint(marks):
            return await self._call_alone(asked, marks)
        if len(self._waiting) >= self._waiting_max:
            raise _too_busy()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append(_Waiting(asked, marks, future, since=loop.time()))
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._wait_seconds, self._refuse_the_overdue)
        return await future

    async def _call_alone(self, asked: Asked, marks: tuple[Hashable, ...]) -> Answer:
        self._free_lanes -= 1
        self._under_way.update(marks)
        try:
            [answer] = await self._perform([asked])
        finally:
            self._under_way.difference_update(marks)
            self._leave_lane()
        return answer

    def _leave_lane(self) -> None:
        """Leave the lane to those who wait, if there are any."""
        batch = self._next_batch()
        if not batch:
            self._free_lanes += 1
            return
        task = asyncio.create_task(self._serve_in_lane(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_in_lane(self, batch: list[_Waiting[Asked, Answer]]) -> None:
        try:
            await self._serve(batch)
        finally:
            self._under_way.difference_update(mark for each in batch for mark in each.marks)
            self._leave_lane()

    async def _serve(self, batch: list[_Waiting[Asked, Answer]]) -> None:
        try:
            answers = await self._perform([each.asked for each in batch])
            for each, answer in zip(batch, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)
        except StorageUnavailable as error:
            for each in batch:
                _fail(each, error)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            await self._find_who_fails(batch, error)
        finally:
            for each in batch:
                each.answer.cancel()  # only where nothing was set: this lane is being cancelled

    async def _find_who_fails(self, batch: list[_Waiting[Asked, Answer]], error: Exception) -> None:
        """An error that no outage explains is about one of them: the others are not to suffer.
        What had been committed before the error is found as done already."""
        if len(batch) == 1:
            _fail(batch[0], error)
            return
        for each in batch:
            await self._serve([each])

    def _next_batch(self) -> list[_Waiting[Asked, Answer]]:
        """Those who wait longest, and share no mark with each other or with what is under way."""
        batch: list[_Waiting[Asked, Answer]] = []
        left: list[_Waiting[Asked, Answer]] = []
        while self._waiting and len(batch) < self._size_max:
            first = self._waiting.popleft()
            if first.answer.done():
                continue  # whoever asked has gone
            if self._under_way.isdisjoint(first.marks):
                self._under_way.update(first.marks)
                batch.append(first)
            else:
                left.append(first)
        self._waiting.extendleft(reversed(left))
        return batch

    def _refuse_the_overdue(self) -> None:
        """Tell those who waited too long, and look again when the next will have."""
        loop = asyncio.get_running_loop()
        while self._waiting and self._waiting[0].since + self._wait_seconds <= loop.time():
            _fail(self._waiting.popleft(), _too_busy())
        self._sweeper = None
        if self._waiting:
            due = self._waiting[0].since + self._wait_seconds
            self._sweeper = loop.call_at(due, self._refuse_the_overdue)


def _fail(waiting: "_Waiting[Asked, Answer]", error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)


def _too_busy() -> StorageUnavailable:
    return StorageUnavailable("Postgres is too busy, or away")
