"""How a run calls its activities: names, timeouts and retries in one place."""

from datetime import timedelta
from typing import cast

from temporalio import workflow
from temporalio.common import RetryPolicy

from operations.contracts import (
    COMPLETE_OPERATION,
    LOOK_UP_STEP,
    PERFORM_STEP,
    RECALL_OPERATION,
    RECORD_PROGRESS,
    Completion,
    Progress,
    Recollection,
    Recorded,
    RunEnd,
    StepAnswer,
    StepCall,
)

ACTIVITY_MARGIN_SECONDS = 5.0
"""An activity may take this much longer than the request in it: the commit before the send, a slow
pool, a clock. A request that outlives its activity would run beside its retry (hazard 9)."""

HEARTBEAT_SECONDS = 4.0
"""A dead worker is noticed after this; activities beat every second while they wait."""

LEDGER_TIMEOUT = timedelta(seconds=10)
"""One ledger transaction, the wait for a connection included."""

PERSISTENT = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=15),
)
"""For what must happen sometime: a ledger that is down comes back. Also for steps, whose attempts
are made safe by the key or by the effect row, not by counting them."""

LOCAL_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=2),
)

_RECORDED = cast("type[Recorded | None]", Recorded | None)
"""Runs from before there was an answer have none in their histories."""


async def perform_fast(call: StepCall, *, summary: str) -> StepAnswer:
    """Send once, as a local activity: no round trip through the server. For keyed steps only."""
    seconds = call.profile.send_timeout_seconds + ACTIVITY_MARGIN_SECONDS
    return await workflow.execute_local_activity(
        PERFORM_STEP,
        call,
        result_type=StepAnswer,
        start_to_close_timeout=timedelta(seconds=seconds),
        retry_policy=LOCAL_RETRIES,
        summary=summary,
    )


async def perform(call: StepCall, *, summary: str) -> StepAnswer:
    """Send once, as a regular activity: the server keeps its result."""
    seconds = call.profile.send_timeout_seconds + ACTIVITY_MARGIN_SECONDS
    return await workflow.execute_activity(
        PERFORM_STEP,
        call,
        result_type=StepAnswer,
        start_to_close_timeout=timedelta(seconds=seconds),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS),
        retry_policy=PERSISTENT,
        summary=summary,
    )


async def look_up(call: StepCall, *, summary: str) -> StepAnswer:
    """Ask the provider's books once."""
    seconds = call.profile.send_timeout_seconds + ACTIVITY_MARGIN_SECONDS
    return await workflow.execute_activity(
        LOOK_UP_STEP,
        call,
        result_type=StepAnswer,
        start_to_close_timeout=timedelta(seconds=seconds),
        retry_policy=PERSISTENT,
        summary=summary,
    )


async def record_tombstones(progress: Progress, *, summary: str) -> Recorded:
    """Write where the operation stands, and forbid further sends. A regular activity: it begins
    when all that local activities have sent so far is in the history, so that no worker that takes
    over sends again after the tombstone."""
    return (
        await workflow.execute_activity(
            RECORD_PROGRESS,
            progress,
            result_type=_RECORDED,
            start_to_close_timeout=LEDGER_TIMEOUT,
            retry_policy=PERSISTENT,
            summary=summary,
        )
        or Recorded()
    )


async def record(progress: Progress, *, summary: str) -> Recorded:
    """Write where the operation stands."""
    return (
        await workflow.execute_local_activity(
            RECORD_PROGRESS,
            progress,
            result_type=_RECORDED,
            start_to_close_timeout=LEDGER_TIMEOUT,
            retry_policy=LOCAL_RETRIES,
            summary=summary,
        )
        or Recorded()
    )


async def recall(claim_id: int) -> Recollection:
    """Read what earlier runs of the operation have written."""
    return await workflow.execute_local_activity(
        RECALL_OPERATION,
        claim_id,
        result_type=Recollection,
        start_to_close_timeout=LEDGER_TIMEOUT,
        retry_policy=LOCAL_RETRIES,
        summary="what earlier runs have done",
    )


async def complete(completion: Completion) -> RunEnd:
    """Write business rows, effects and the receipt, in one transaction."""
    return await workflow.execute_local_activity(
        COMPLETE_OPERATION,
        completion,
        result_type=RunEnd,
        start_to_close_timeout=LEDGER_TIMEOUT,
        retry_policy=LOCAL_RETRIES,
        summary=f"receipt: {completion.receipt.status} {completion.outcome}",
    )
