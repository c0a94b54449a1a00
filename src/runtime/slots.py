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

EAGER_MAX = 100
"""The same for runs whose first task came with the answer to their start: this process asked for
them itself, and a task that is refused costs Temporal a round trip more."""


class RunSlots(CustomSlotSupplier):
    """Slots for workflow tasks, of which those that wait for a provider do not count."""

    def __init__(self, calls: CallsUnderWay, *, slots_max: int) -> None:
        """None is taken. `slots_max`, in all: as many as there are slots for local activities, or
        runs would wait for those, and count as busy."""
        self._calls = calls
        self._slots_max = max(slots_max, 2 * BUSY_MAX)
        self._taken = 0
        self._lock = threading.Lock()  # Temporal's core gives back from threads of its own
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[asyncio.Future[None]] = []
        calls.listen(self._wake)

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:  # noqa: ARG002
        """A slot for a poll, when there is one."""
        self._loop = asyncio.get_running_loop()
        while not self._take(busy_max=BUSY_MAX):
            changed = self._loop.create_future()
            self._waiting.append(changed)
            await changed
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:  # noqa: ARG002
        """A slot for a task that came with an answer, if there is one now."""
        return SlotPermit() if self._take(busy_max=EAGER_MAX) else None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """A poll has brought a task: it has its slot already."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:  # noqa: ARG002
        """A task is done, or a poll has ended."""
        with self._lock:
            self._taken -= 1
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _take(self, *, busy_max: int) -> bool:
        with self._lock:
            free = self._taken - self._calls.count < busy_max and self._taken < self._slots_max
            self._taken += int(free)
        return free

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)
