"""Slots for workflow tasks: those that wait for a provider do not count, and each is given back."""

import asyncio
from typing import Any

import pytest

from activities.calls import CallsUnderWay
from runtime import slots
from runtime.slots import BUSY_MAX, RunSlots

ANY: Any = None
"""The context of a reservation: nothing in it matters."""


async def test_a_worker_takes_so_many_and_the_next_waits_until_one_is_given_back() -> None:
    supplier = RunSlots(CallsUnderWay())
    for _ in range(BUSY_MAX):
        await supplier.reserve_slot(ANY)
    assert supplier.try_reserve_slot(ANY) is None
    next_one = asyncio.create_task(supplier.reserve_slot(ANY))
    await asyncio.sleep(0)
    await asyncio.to_thread(supplier.release_slot, ANY)  # as Temporal's core does it
    await next_one
    assert supplier.try_reserve_slot(ANY) is None


async def test_what_waits_for_a_provider_makes_room_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slots, "SLOTS_MAX", BUSY_MAX + 1)
    calls = CallsUnderWay()
    supplier = RunSlots(calls)
    for _ in range(BUSY_MAX):
        await supplier.reserve_slot(ANY)
    next_one = asyncio.create_task(supplier.reserve_slot(ANY))
    await asyncio.sleep(0)
    with calls.one(), calls.one():
        await next_one
        assert supplier.try_reserve_slot(ANY) is None
    assert calls.count == 0


async def test_a_reservation_that_is_cancelled_takes_nothing() -> None:
    supplier = RunSlots(CallsUnderWay())
    for _ in range(BUSY_MAX):
        await supplier.reserve_slot(ANY)
    gone = asyncio.create_task(supplier.reserve_slot(ANY))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    supplier.release_slot(ANY)
    assert supplier.try_reserve_slot(ANY) is not None
    assert supplier.try_reserve_slot(ANY) is None
