"""Who may start a run now: a few at a time, tenants in turn, and for each what the room allows."""

import asyncio
from dataclasses import dataclass, field

import pytest

from api import turns
from api.turns import ALONE_OPEN, LATELY_SECONDS, OPEN_MAX, Room, Turns


@dataclass
class Clock:
    """Time that stands still."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@dataclass
class Front:
    """Who was let in, in order; each stays until `leave`, and its run is open afterwards."""

    turns: Turns
    came: list[str] = field(default_factory=list[str])
    unneeded: list[int] = field(default_factory=list[int])
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    starts: dict[int, asyncio.Task[None]] = field(default_factory=dict[int, asyncio.Task[None]])

    def send(self, *tenants: str) -> None:
        """A start for each name; runs are numbered from 0."""
        for tenant in tenants:
            run = len(self.starts)
            self.starts[run] = asyncio.create_task(self._come(tenant, run))

    async def _come(self, tenant: str, run: int) -> None:
        async with self.turns.turn(tenant, run) as turn:
            if not turn.needed:
                self.unneeded.append(run)
                return
            self.came.append(tenant)
            await self.leave.wait()
            turn.started = True


async def settle() -> None:
    """Let everybody go as far as they get."""
    for _ in range(10):
        await asyncio.sleep(0)


def room_for(runs: float) -> Room:
    """Room for so many, as if it had been learnt."""
    room = Room()
    room.runs = runs
    return room


async def test_a_tenant_that_asks_much_is_followed_by_who_asked_once() -> None:
    front = Front(Turns(at_once=1))
    front.send("flood", "flood", "flood", "flood", "calm", "still")
    await settle()
    assert front.came == ["flood"]
    front.leave.set()
    await asyncio.gather(*front.starts.values())
    assert front.came == ["flood", "flood", "calm", "still", "flood", "flood"]


@pytest.mark.parametrize("at_once", [1, 3])
async def test_no_more_calls_are_made_at_once_than_may_be(at_once: int) -> None:
    front = Front(Turns(at_once=at_once))
    front.send(*(f"tenant-{number}" for number in range(5)))
    await settle()
    assert len(front.came) == at_once
    front.leave.set()
    await asyncio.gather(*front.starts.values())
    assert len(front.came) == 5


async def test_who_leaves_while_waiting_or_just_let_in_holds_up_nobody() -> None:
    front = Front(Turns(at_once=1))
    front.send("first")
    await settle()
    front.send("gone", "let in", "last")
    await settle()
    front.starts[1].cancel()
    front.leave.set()
    await front.starts[0]
    front.starts[2].cancel()
    await asyncio.wait(front.starts.values(), timeout=10)
    assert front.came[-1] == "last"
    assert not front.turns.waiting
    async with asyncio.timeout(1), front.turns.turn("next", 9) as turn:
        assert turn.needed


async def test_beside_others_a_tenant_starts_no_more_before_its_runs_have_ended() -> None:
    front = Front(Turns(at_once=16, room=room_for(6)))
    front.leave.set()
    front.send("calm", "still", "flood", "flood", "flood", "flood")
    await settle()
    assert front.came == ["calm", "still", "flood", "flood"]
    front.send("calm")
    await settle()
    assert front.came[-1] == "calm"
    front.turns.changed([2])
    await settle()
    assert front.came[-1] == "flood"
    assert list(front.turns.waiting) == [5]


async def test_a_tenant_alone_may_have_more_open_and_forgets_the_others_in_a_while() -> None:
    clock = Clock()
    front = Front(Turns(at_once=100, room=room_for(1), clock=clock))
    front.leave.set()
    front.send("calm", *["flood"] * 20)
    await settle()
    assert front.came == ["calm", "flood"]
    clock.now += LATELY_SECONDS + 1
    front.send("flood")
    front.turns.changed([0])
    await settle()
    assert front.came.count("flood") == ALONE_OPEN


async def test_a_run_that_stays_open_waits_for_somebody_and_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "OPEN_SECONDS", 0.0)
    front = Front(Turns(at_once=1, room=room_for(1)))
    front.leave.set()
    front.send("calm", "slow", "slow", "slow")
    async with asyncio.timeout(10):
        await asyncio.gather(*front.starts.values())
    assert front.came == ["calm", "slow", "slow", "slow"]


async def test_what_ended_before_its_start_was_answered_is_not_open_afterwards() -> None:
    front = Front(Turns(at_once=16, room=room_for(1)))
    front.send("calm", "fast", "fast")
    await settle()
    front.turns.changed([1])
    await settle()
    assert front.came == ["calm", "fast", "fast"]


async def test_a_run_that_somebody_else_started_needs_no_turn() -> None:
    front = Front(Turns(at_once=1))
    front.send("first", "second")
    await settle()
    front.turns.changed([1])
    await front.starts[1]
    assert front.unneeded == [1]
    async with front.turns.turn("first", 0) as turn:
        assert not turn.needed
    front.leave.set()
    await front.starts[0]


async def test_a_start_that_failed_leaves_no_run_open() -> None:
    front = Turns(at_once=1, room=room_for(1))
    async with front.turn("calm", 0):
        pass
    for run in range(5):
        async with asyncio.timeout(1), front.turn("flood", run):
            pass


async def test_who_has_too_many_waiting_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAITING_MAX", 2)
    front = Front(Turns(at_once=1))
    front.send("flood", "flood", "flood", "calm")
    await settle()
    assert front.turns.is_full("flood")
    assert not front.turns.is_full("calm")
    front.leave.set()
    await asyncio.gather(*front.starts.values())
    assert not front.turns.is_full("flood")


async def test_a_backlog_that_is_worked_off_keeps_its_tenant_among_those_who_share() -> None:
    clock = Clock()
    front = Front(Turns(room=room_for(1), clock=clock))
    front.leave.set()
    front.send(*["backlog"] * (ALONE_OPEN + 2))
    await settle()
    clock.now += LATELY_SECONDS - 1
    front.turns.changed([0])
    await settle()
    clock.now += 2
    front.send("calm")
    await settle()
    assert front.turns.may_have_open() == 1


def test_the_room_shrinks_while_starts_are_slow_and_grows_while_they_are_fast_and_wanted() -> None:
    room = Room()
    room.learn(0.005, at=0.0, wanted=False)
    before = room.runs
    for number in range(200):
        room.learn(0.1, at=number * 0.01, wanted=True)
    assert room.runs == 1.0
    for number in range(100):
        room.learn(0.006, at=2 + number * 0.01, wanted=False)
    assert room.runs == 1.0, "nobody wanted more"
    for number in range(400):
        room.learn(0.006, at=3 + number * 0.01, wanted=True)
    assert before < room.runs <= OPEN_MAX


def test_what_a_start_took_at_best_is_forgotten() -> None:
    """A server further away is not taken for a busy one for ever."""
    room = Room()
    room.learn(0.002, at=0.0, wanted=True)
    for second in range(4 * 3600):
        room.learn(0.05, at=float(second), wanted=True)
    assert room.runs > 100
