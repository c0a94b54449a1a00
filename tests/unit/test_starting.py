"""Starts of runs: tenants take turns, a few at a time, and nobody waits for ever."""

import asyncio
from dataclasses import dataclass, field

import pytest

from api.starting import Turns

LONG, SHORT = 30.0, 0.01


@dataclass
class Front:
    """Who was let in, in order; each stays until `leave`."""

    turns: Turns
    came: list[str] = field(default_factory=list[str])
    leave: asyncio.Event = field(default_factory=asyncio.Event)

    async def come(self, tenant: str, *, seconds_max: float = LONG) -> None:
        """One start."""
        async with self.turns.turn(tenant, seconds_max=seconds_max):
            self.came.append(tenant)
            await self.leave.wait()


async def settle() -> None:
    """Let everybody go as far as they get."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_tenant_that_asks_much_is_followed_by_who_asked_once() -> None:
    front = Front(Turns(at_once=1, has_room=lambda _under_way: True))
    names = ("flood", "flood", "flood", "flood", "calm", "still")
    starts = [asyncio.create_task(front.come(name)) for name in names]
    await settle()
    assert front.came == ["flood"]
    front.leave.set()
    await asyncio.gather(*starts)
    assert front.came == ["flood", "flood", "calm", "still", "flood", "flood"]


@pytest.mark.parametrize("room", [0, 1, 3])
async def test_no_more_are_let_in_than_there_is_room_for(room: int) -> None:
    front = Front(Turns(at_once=3, has_room=lambda under_way: under_way < room))
    waiting = [asyncio.create_task(front.come(f"tenant-{number}")) for number in range(5)]
    await settle()
    assert len(front.came) == room
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_who_has_waited_long_enough_goes_and_counts() -> None:
    front = Front(Turns(at_once=1, has_room=lambda _under_way: True))
    first = asyncio.create_task(front.come("first"))
    await settle()
    late = asyncio.create_task(front.come("late", seconds_max=SHORT))
    patient = asyncio.create_task(front.come("patient"))
    await asyncio.sleep(SHORT * 5)
    assert front.came == ["first", "late"]
    front.leave.set()
    await asyncio.gather(first, late, patient)
    assert front.came == ["first", "late", "patient"]
    async with front.turns.turn("next", seconds_max=LONG):
        pass


async def test_who_leaves_while_waiting_or_just_let_in_holds_up_nobody() -> None:
    front = Front(Turns(at_once=1, has_room=lambda _under_way: True))
    first = asyncio.create_task(front.come("first"))
    await settle()
    gone, let_in = (asyncio.create_task(front.come(name)) for name in ("gone", "let in"))
    last = asyncio.create_task(front.come("last"))
    await settle()
    gone.cancel()
    front.leave.set()
    await first
    let_in.cancel()
    await asyncio.wait([gone, let_in, last], timeout=LONG)
    assert front.came[-1] == "last"
