"""Housekeeping's Temporal Schedule: every worker makes sure that there is one."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import structlog
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from temporalio.common import Priority
from temporalio.service import RPCError

from operations.housekeeping import HOUSEKEEPING_RUN

EVERY = timedelta(minutes=10)
RUN_TIMEOUT = timedelta(minutes=9)
"""Below the interval: a run that hangs does not silently stop the next one."""

CATCH_UP = timedelta(minutes=1)
"""After an outage one run is enough: it finds all that has become due meanwhile."""

CHECK_SECONDS = 300.0
"""How often the schedule is looked for again: a Temporal that was wiped gets it back."""

_log = structlog.get_logger(__name__)


def schedule_id(task_queue: str) -> str:
    """One schedule for each deployment: its task queue names it."""
    return f"housekeeping/{task_queue}"


def keeping_schedule(client: Client, *, task_queue: str) -> Callable[[], Coroutine[Any, Any, None]]:
    """A loop that keeps the schedule in being."""

    async def keep() -> None:
        while True:
            try:
                await ensure_schedule(client, task_queue=task_queue)
            except (RPCError, RuntimeError) as error:
                _log.warning("housekeeping.not_scheduled", reason=str(error))
            await asyncio.sleep(CHECK_SECONDS)

    return keep


async def ensure_schedule(client: Client, *, task_queue: str) -> None:
    """Make the schedule unless there is one. Raises RPCError."""
    run = ScheduleActionStartWorkflow(
        HOUSEKEEPING_RUN,
        id=f"housekeeping-run/{task_queue}",
        task_queue=task_queue,
        execution_timeout=RUN_TIMEOUT,
        static_summary="clear receipts whose retention is over",
        priority=Priority(priority_key=5),
    )
    schedule = Schedule(
        action=run,
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=EVERY)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
    )
    try:
        await client.create_schedule(schedule_id(task_queue), schedule)
    except ScheduleAlreadyRunningError:
        return
