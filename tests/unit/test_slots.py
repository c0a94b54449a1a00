"""Slots for workflow tasks: those that wait for a provider do not count, and each is given back."""

import asyncio
import contextlib
from typing import Any

from activities.calls import CallsUnderWay
from runtime.slots import BUSY_MAX, EAGER_MAX, RunSlots

ANY: Any = None
"""The context of a reservation: nothing in it matters."""


async def test_a_worker_takes_so_many_and_the_next_waits_until_one_is_given_back() -> None:
    supplier = RunSlots(CallsUnderWay(), slots_max=200)
    for _ in range(BUSY_MAX):
        await supplier.reserve_slot(ANY)
    next_one = asyncio.create_task(supplier.reserve_slot(ANY))
    await asyncio.sleep(0)
    assert not next_one.done()
    await asyncio.to_thread(supplier.release_slot, ANY)  # as Temporal's core does it
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
    supplier.release_slot(ANY)
    await supplier.reserve_slot(ANY)
    last = asyncio.create_task(supplier.reserve_slot(ANY))
    await asyncio.sleep(0)
    assert not last.done()
    last.cancel()
