"""Slots for workflow tasks: those that wait for a provider do not count, and each is given back."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

from temporalio.worker import SlotPermit, SlotReleaseContext

from activities.calls import CallsUnderWay
from runtime.slots import BUSY_MAX, EAGER_MAX, STARTED_MAX, RunPermit, RunSlots

ANY: Any = None
"""The context of a reservation: nothing in it matters."""


def given_back(permit: SlotPermit | None = None) -> SlotReleaseContext:
    """What the core says when it gives a slot back."""
    return SlotReleaseContext(slot_info=None, permit=permit or RunPermit())


def came_for(permit: SlotPermit) -> Any:
    """What the core says when a task has come; the SDK's type is a protocol."""
    return SimpleNamespace(permit=permit, slot_info=None)


async def test_a_worker_takes_so_many_and_the_next_waits_until_one_is_given_back() -> None:
    supplier = RunSlots(CallsUnderWay(), slots_max=200)
    for _ in range(BUSY_MAX):
        await supplier.reserve_slot(ANY)
    next_one = asyncio.create_task(supplier.reserve_slot(ANY))
    await asyncio.sleep(0)
    assert not next_one.done()
    await asyncio.to_thread(supplier.release_slot, given_back())  # as Temporal's core does it
    await next_one


async def test_tasks_that_came_with_a_start_have_a_bound_of_their_own() -> None:
    supplier = RunSlots(CallsUnderWay(), slots_max=200)
    taken = [supplier.try_reserve_slot(ANY) for _ in range(EAGER_MAX + 1)]
    assert taken.index(None) == EAGER_MAX


async def test_what_waits_for_a_provider_makes_room_up_to_a_bound() -> None:
    calls = CallsUnderWay()
    slots_max = 2 * BUSY_MAX
    supplier = RunSlots(calls, slots_max=slots_max)
    for _ in range(BUSY_MAX):
        await supplier.reserve_slot(ANY)
    next_one = asyncio.create_task(supplier.reserve_slot(ANY))
    await asyncio.sleep(0)
    with contextlib.ExitStack() as waiting:
        for _ in range(slots_max):
            waiting.enter_context(calls.one())
        await next_one
        taken = [supplier.try_reserve_slot(ANY) for _ in range(slots_max)]
        assert taken.index(None) == slots_max - BUSY_MAX - 1
    assert calls.count == 0


async def test_a_reservation_that_is_cancelled_takes_nothing() -> None:
    supplier = RunSlots(CallsUnderWay(), slots_max=200)
    for _ in range(BUSY_MAX):
        await supplier.reserve_slot(ANY)
    gone = asyncio.create_task(supplier.reserve_slot(ANY))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    supplier.release_slot(given_back())
    await supplier.reserve_slot(ANY)
    last = asyncio.create_task(supplier.reserve_slot(ANY))
    await asyncio.sleep(0)
    assert not last.done()
    last.cancel()


async def test_there_is_room_for_a_start_while_few_runs_want_the_processor() -> None:
    calls = CallsUnderWay()
    supplier = RunSlots(calls, slots_max=200)
    looked: list[bool] = []
    supplier.listen(lambda: looked.append(supplier.has_room(0)))
    permits = [await supplier.reserve_slot(ANY) for _ in range(STARTED_MAX + 1)]
    assert supplier.has_room(0), "a poll that has brought nothing is no work"
    for permit in permits[1:]:
        supplier.mark_slot_used(came_for(permit))
        supplier.mark_slot_used(came_for(permit))
    assert not supplier.has_room(0)
    with calls.one():
        assert looked.pop(), "who waits for a provider makes room, and says so"
        assert supplier.has_room(0)
        assert not supplier.has_room(1), "what is being started will want it"
    supplier.release_slot(given_back(permits[1]))
    await asyncio.sleep(0)
    assert looked.pop(), "a run that is done makes room, and says so"
    supplier.release_slot(given_back(permits[0]))
    assert not supplier.has_room(1), "a poll that ends makes none"
