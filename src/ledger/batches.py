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

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Waiting(Generic[Asked, Answer]):
    asked: Asked
    answer: asyncio.Future[Answer]
    since: float


class Batches(Generic[Asked, Answer]):
    """One kind of call, a few batches of it at a time."""

    def __init__(
        self,
        perform: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]],
        *,
        marks: Callable[[Asked], Iterable[Hashable]],
        lanes: int,
        size_max: int,
        wait_seconds: float,
    ) -> None:
        """`perform` answers in the order in which it was asked; no two that share one of their
        `marks` are asked of it together. Who waited longer than `wait_seconds` is refused."""
        self._perform = perform
        self._marks = marks
        self._free_lanes = lanes
        self._size_max = size_max
        self._wait_seconds = wait_seconds
        self._waiting: deque[_Waiting[Asked, Answer]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, asked: Asked) -> Answer:
        """Perform it, with others if there are any. Raises what `perform` raises, for all of them,
        and StorageUnavailable when no lane became free in time."""
        if self._free_lanes and not self._waiting:
            self._free_lanes -= 1
            try:
                [answer] = await self._perform([asked])
            finally:
                self._leave_lane()
            return answer
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append(_Waiting(asked, future, since=loop.time()))
        return await future

    def _leave_lane(self) -> None:
        """Leave the lane to those who wait, if there are any."""
        if not self._waiting:
            self._free_lanes += 1
            return
        task = asyncio.create_task(self._serve_waiting())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_waiting(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                if batch:
                    await self._serve(batch)
        finally:
            self._free_lanes += 1

    async def _serve(self, batch: list[_Waiting[Asked, Answer]]) -> None:
        try:
            answers = await self._perform([each.asked for each in batch])
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            for each in batch:
                _fail(each.answer, error)
        else:
            for each, answer in zip(batch, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)
        finally:
            for each in batch:
                each.answer.cancel()  # only where nothing was set: this lane is being cancelled

    def _next_batch(self) -> list[_Waiting[Asked, Answer]]:
        """Those who wait longest. Who waited too long is told so; a twin is left for next time."""
        batch: list[_Waiting[Asked, Answer]] = []
        twins: list[_Waiting[Asked, Answer]] = []
        marked: set[Hashable] = set()
        too_old = asyncio.get_running_loop().time() - self._wait_seconds
        while self._waiting and len(batch) < self._size_max and len(twins) < self._size_max:
            first = self._waiting.popleft()
            if first.answer.done():
                continue  # whoever asked has gone
            if first.since < too_old:
                _fail(first.answer, StorageUnavailable("Postgres is too busy, or away"))
            elif marked.isdisjoint(marks := tuple(self._marks(first.asked))):
                marked.update(marks)
                batch.append(first)
            else:
                twins.append(first)
        self._waiting.extendleft(reversed(twins))
        return batch


def _fail(answer: "asyncio.Future[Answer]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
