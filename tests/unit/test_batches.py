"""Calls in batches: who comes alone goes at once; who comes meanwhile shares the next call."""

import asyncio
from collections.abc import Sequence

import pytest

from ledger.batches import Batches
from ledger.database import StorageUnavailable


class Desk:
    """What performs the calls: it holds each until it is let go, and notes who came together."""

    def __init__(self) -> None:
        """Nobody has come."""
        self.served: list[list[str]] = []
        self.gates: list[asyncio.Event] = []
        self.came = asyncio.Condition()
        self.fails = False

    async def perform(self, asked: Sequence[str]) -> Sequence[str]:
        """Answer in upper case, when it is let go."""
        self.served.append(list(asked))
        self.gates.append(asyncio.Event())
        async with self.came:
            self.came.notify_all()
        await self.gates[len(self.served) - 1].wait()
        if self.fails:
            raise StorageUnavailable("away")
        return [each.upper() for each in asked]

    async def has(self, count: int) -> None:
        """Wait until so many calls have come."""
        async with self.came:
            await self.came.wait_for(lambda: len(self.served) >= count)


def batches(
    desk: Desk,
    *,
    lanes: int = 1,
    size_max: int = 10,
    waiting_max: int = 100,
    wait_seconds: float = 30.0,
) -> Batches[str, str]:
    return Batches(
        desk.perform,
        marks=lambda each: (each.lower(),),
        lanes=lanes,
        size_max=size_max,
        waiting_max=waiting_max,
        wait_seconds=wait_seconds,
    )


async def asking(calls: Batches[str, str], *asked: str) -> list[asyncio.Task[str]]:
    """Ask for each; returns when all wait."""
    tasks = [asyncio.create_task(calls.call(each)) for each in asked]
    await asyncio.sleep(0)
    return tasks


async def test_who_comes_to_a_free_lane_goes_at_once_and_the_others_together() -> None:
    desk = Desk()
    calls = batches(desk)
    tasks = await asking(calls, "a", "b", "c")
    await desk.has(1)
    desk.gates[0].set()
    await desk.has(2)
    desk.gates[1].set()
    assert await asyncio.gather(*tasks) == ["A", "B", "C"]
    assert desk.served == [["a"], ["b", "c"]]


async def test_a_batch_has_a_bound_and_no_twins() -> None:
    desk = Desk()
    calls = batches(desk, size_max=2)
    tasks = await asking(calls, "first", "b", "B", "c", "d")
    for count in range(1, 4):
        await desk.has(count)
        desk.gates[count - 1].set()
    assert await asyncio.gather(*tasks) == ["FIRST", "B", "B", "C", "D"]
    assert desk.served == [["first"], ["b", "c"], ["B", "d"]]


async def test_a_failure_is_told_to_everybody_in_it_and_to_nobody_else() -> None:
    desk = Desk()
    calls = batches(desk)
    alone, *together = await asking(calls, "a", "b", "c")
    await desk.has(1)
    desk.gates[0].set()
    assert await alone == "A"
    await desk.has(2)
    desk.fails = True
    desk.gates[1].set()
    for task in together:
        with pytest.raises(StorageUnavailable):
            await task
    desk.fails = False
    (again,) = await asking(calls, "b")
    await desk.has(3)
    desk.gates[2].set()
    assert await again == "B"


async def test_an_error_about_one_of_them_is_told_to_that_one_only() -> None:
    served: list[list[str]] = []

    async def perform(asked: Sequence[str]) -> Sequence[str]:
        served.append(list(asked))
        await asyncio.sleep(0)
        if "bad" in asked:
            raise ValueError("bad")
        return list(asked)

    calls = Batches(
        perform,
        marks=lambda each: (each,),
        lanes=1,
        size_max=10,
        waiting_max=100,
        wait_seconds=30.0,
    )
    tasks = await asking(calls, "first", "good", "bad", "fine")
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in answers] == ["first", "good", "bad", "fine"]
    assert isinstance(answers[2], ValueError)
    assert served == [["first"], ["good", "bad", "fine"], ["good"], ["bad"], ["fine"]]


async def test_who_gives_up_is_not_served_and_holds_up_nobody() -> None:
    desk = Desk()
    calls = batches(desk)
    first, gone, stays = await asking(calls, "a", "b", "c")
    await desk.has(1)
    gone.cancel()
    await asyncio.wait({gone})
    desk.gates[0].set()
    await desk.has(2)
    desk.gates[1].set()
    assert await asyncio.gather(first, stays) == ["A", "C"]
    assert desk.served == [["a"], ["c"]]


async def test_the_lane_of_somebody_who_gives_up_goes_to_those_who_wait() -> None:
    desk = Desk()
    calls = batches(desk)
    first, waits = await asking(calls, "a", "b")
    await desk.has(1)
    first.cancel()
    await desk.has(2)
    desk.gates[1].set()
    assert await waits == "B"


async def test_who_waits_too_long_is_refused_while_the_lane_is_still_taken() -> None:
    desk = Desk()
    calls = batches(desk, wait_seconds=0.01)
    first, late = await asking(calls, "a", "b")
    await desk.has(1)
    with pytest.raises(StorageUnavailable):
        await late
    desk.gates[0].set()
    assert await first == "A"
    assert desk.served == [["a"]]


async def test_who_finds_too_many_before_him_is_refused_at_once() -> None:
    desk = Desk()
    calls = batches(desk, waiting_max=1)
    first, waits, refused = await asking(calls, "a", "b", "c")
    with pytest.raises(StorageUnavailable):
        await refused
    desk.gates[0].set()
    await desk.has(2)
    desk.gates[1].set()
    assert await asyncio.gather(first, waits) == ["A", "B"]


async def test_a_twin_of_what_is_under_way_waits_and_strangers_do_not() -> None:
    desk = Desk()
    calls = batches(desk, lanes=2)
    first, twin, stranger = await asking(calls, "a", "A", "b")
    await desk.has(2)
    desk.gates[1].set()
    assert await stranger == "B"
    assert not twin.done()
    desk.gates[0].set()
    await desk.has(3)
    desk.gates[2].set()
    assert await asyncio.gather(first, twin) == ["A", "A"]
    assert desk.served == [["a"], ["b"], ["A"]]
