"""Steps elsewhere: an activity on another team's task queue performs them, named by contract.

`docs/remote-steps.md` is the contract. What their worker says is checked here: an answer that is
not one, an error or a timeout leaves the outcome unknown, like a lost reply of any provider.
"""

from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from operations.contracts import (
    BEGIN_SEND,
    LOOK_UP_SUFFIX,
    TAKE_BACK_SEND,
    Kind,
    SendPermit,
    StepAnswer,
    StepCall,
)
from operations.declaration import Step
from workflows.calls import ACTIVITY_MARGIN_SECONDS, LEDGER_TIMEOUT, LOCAL_RETRIES

ONCE = RetryPolicy(maximum_attempts=1)
"""Temporal never repeats such a call by itself: whether it may be, the guarantee decides."""

_AFTER_A_SEND = frozenset(
    {Kind.CONFIRMED, Kind.DECLINED, Kind.UNAVAILABLE, Kind.UNKNOWN, Kind.MISMATCH}
)
_AFTER_A_LOOK_UP = frozenset({Kind.CONFIRMED, Kind.NOT_FOUND, Kind.UNREADABLE})


async def perform(step: Step, call: StepCall, *, summary: str) -> StepAnswer:
    """Commit the row, have their worker send once, and say what is known then."""
    permit = await _begin(call, summary=summary)
    if permit.answer is not None:
        return permit.answer
    effect = call.effect.model_copy(
        update={
            "frozen_body": permit.frozen_body,
            "sends": permit.sends,
            "sent_at": permit.sent_at,
        }
    )
    said = await _ask(step, call.model_copy(update={"effect": effect, "also": ()}), summary=summary)
    if said.kind not in _AFTER_A_SEND:
        said = said.model_copy(
            update={"kind": Kind.UNKNOWN, "reason": f"{said.kind} is no answer to a send"}
        )
    if said.kind is Kind.UNAVAILABLE:
        await _take_back(call, permit, reason=said.reason or "", summary=summary)
        return said.model_copy(update={"sent_at": None, "reset": permit.reset})
    return said.model_copy(
        update={
            "sent_at": permit.sent_at,
            "frozen_body": permit.frozen_body,
            "reset": permit.reset,
        }
    )


async def look_up(step: Step, call: StepCall, *, summary: str) -> StepAnswer:
    """Have their worker ask the books once."""
    said = await _ask(step, call, summary=summary, suffix=LOOK_UP_SUFFIX)
    if said.kind not in _AFTER_A_LOOK_UP:
        said = said.model_copy(update={"kind": Kind.UNREADABLE})
    return said.model_copy(update={"sent_at": None})


async def _ask(step: Step, call: StepCall, *, summary: str, suffix: str = "") -> StepAnswer:
    """One attempt. The time is ours: their clock does not decide when "absent" counts."""
    profile = call.profile
    heartbeat = profile.heartbeat_timeout_seconds
    assert step.activity is not None
    try:
        said: Any = await workflow.execute_activity(
            step.activity + suffix,
            call,
            task_queue=step.task_queue,
            schedule_to_start_timeout=timedelta(seconds=profile.pickup_timeout_seconds),
            start_to_close_timeout=timedelta(
                seconds=profile.send_timeout_seconds + ACTIVITY_MARGIN_SECONDS
            ),
            heartbeat_timeout=None if heartbeat is None else timedelta(seconds=heartbeat),
            retry_policy=ONCE,
            summary=summary,
        )
    except ActivityError as error:
        return _failed(step, error)
    return _read(step, said)


def _read(step: Step, said: Any) -> StepAnswer:
    """Their answer, checked. One that cannot be read tells nothing."""
    now = workflow.now()
    try:
        answer = StepAnswer.model_validate({**said, "at": now})
    except (ValidationError, TypeError):
        return StepAnswer(
            kind=Kind.UNKNOWN, at=now, reason=f"{step.activity} gave an answer we cannot read"
        )
    if answer.kind is Kind.CONFIRMED and not answer.provider_reference:
        return StepAnswer(
            kind=Kind.UNKNOWN, at=now, reason=f"{step.activity} confirmed without a reference"
        )
    return answer


def _failed(step: Step, error: ActivityError) -> StepAnswer:
    """What a failed activity tells: nothing, unless no worker had taken it."""
    cause = error.cause
    now = workflow.now()
    if isinstance(cause, ActivityTimeoutError):
        if cause.type is TimeoutType.SCHEDULE_TO_START:
            why = f"No worker on {step.task_queue} took {step.activity} in time"
            return StepAnswer(kind=Kind.UNAVAILABLE, at=now, reason=why)
        return StepAnswer(kind=Kind.UNKNOWN, at=now, reason=f"{step.activity} did not answer")
    what = cause.type if isinstance(cause, ApplicationError) else type(cause).__name__
    return StepAnswer(kind=Kind.UNKNOWN, at=now, reason=f"{step.activity} failed: {what}")


async def _begin(call: StepCall, *, summary: str) -> SendPermit:
    return await workflow.execute_local_activity(
        BEGIN_SEND,
        call,
        result_type=SendPermit,
        start_to_close_timeout=LEDGER_TIMEOUT,
        retry_policy=LOCAL_RETRIES,
        summary=f"before {summary}",
    )


async def _take_back(call: StepCall, permit: SendPermit, *, reason: str, summary: str) -> None:
    await workflow.execute_local_activity(
        TAKE_BACK_SEND,
        args=[call, permit, reason],
        start_to_close_timeout=LEDGER_TIMEOUT,
        retry_policy=LOCAL_RETRIES,
        summary=f"not sent: {summary}",
    )
