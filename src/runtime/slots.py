"""How many workflow tasks a worker works on at once.

A run of keyed steps is one workflow task, held open while its provider is called. With a fixed
number of slots, either a few slow calls would hold up all runs, or a flood of runs would be taken
in at once and share the processor, where Temporal's fairness between tenants cannot reach them any
more. So what waits for a provider does not count.
"""

import asyncio
import threading

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)

from activities.calls import CallsUnderWay

BUSY_MAX = 12
"""Runs that want the processor, and polls for more. Enough to keep a process busy, and few enough
that who comes next waits a fraction of a second."""

SLOTS_MAX = 1000
"""In all. A run that waits for its provider costs memory."""


class RunSlots(CustomSlotSupplier):
    """Slots for workflow tasks, of which those that wait for a provider do not count."""

    def __init__(self, calls: CallsUnderWay) -> None:
        """None is taken."""
        self._calls = calls
        self._taken = 0
        self._lock = threading.Lock()  # Temporal's core gives back from threads of its own
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[asyncio.Future[None]] = []
        calls.listen(self._wake)

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:  # noqa: ARG002
        """A slot for a poll, when there is one."""
        self._loop = asyncio.get_running_loop()
        while not self._take():
            changed = self._loop.create_future()
            self._waiting.append(changed)
            await changed
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002
        """A slot for a task that came with an answer, if there is one now."""
        return SlotPermit() if self._take() else None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """A poll has brought a task: it has its slot already."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:  # noqa: ARG002
        """A task is done, or a poll has ended."""
        with self._lock:
            self._taken -= 1
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _take(self) -> bool:
        with self._lock:
            free = self._taken - self._calls.count < BUSY_MAX and self._taken < SLOTS_MAX
            self._taken += int(free)
        return free

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)
