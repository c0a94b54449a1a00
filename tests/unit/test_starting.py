"""Starts of runs: a few at a time, tenants take turns, and who leaves holds up nobody."""

import asyncio
from dataclasses import dataclass, field

import pytest

from api.starting import Turns


@dataclass
class Front:
    """Who was let in, in order; each stays until `leave`."""

    turns: Turns
    came: list[str] = field(default_factory=list[str])
    leave: asyncio.Event = field(default_factory=asyncio.Event)

    async def come(self, tenant: str) -> None:
        """One start."""
        async with self.turns.turn(tenant):
            self.came.append(tenant)
            await self.leave.wait()


async def settle() -> None:
    """Let everybody go as far as they get."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_tenant_that_asks_much_is_followed_by_who_asked_once() -> None:
    front = Front(Turns(at_once=1))
    names = ("flood", "flood", "flood", "flood", "calm", "still")
    starts = [asyncio.create_task(front.come(name)) for name in names]
    await settle()
    assert front.came == ["flood"]
    front.leave.set()
    await asyncio.gather(*starts)
    assert front.came == ["flood", "flood", "calm", "still", "flood", "flood"]


@pytest.mark.parametrize("at_once", [1, 3])
async def test_no_more_are_in_than_may_be(at_once: int) -> None:
    front = Front(Turns(at_once=at_once))
    starts = [asyncio.create_task(front.come(f"tenant-{number}")) for number in range(5)]
    await settle()
    assert len(front.came) == at_once
    front.leave.set()
    await asyncio.gather(*starts)
    assert len(front.came) == 5


async def test_who_leaves_while_waiting_or_just_let_in_holds_up_nobody() -> None:
    front = Front(Turns(at_once=1))
    first = asyncio.create_task(front.come("first"))
    await settle()
    gone, let_in = (asyncio.create_task(front.come(name)) for name in ("gone", "let in"))
    last = asyncio.create_task(front.come("last"))
    await settle()
    gone.cancel()
    front.leave.set()
    await first
    let_in.cancel()
    await asyncio.wait([gone, let_in, last], timeout=10)
    assert front.came[-1] == "last"
    assert front.turns._waiting == {}
    async with asyncio.timeout(1), front.turns.turn("next"):
        assert front.turns._free == 0
