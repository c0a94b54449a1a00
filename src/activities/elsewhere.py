"""Sends that another team's worker performs: their rows are committed here, before and after."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio import activity

from ledger.ledger import Ledger
from ledger.sends import Permit
from operations.contracts import BEGIN_SEND, TAKE_BACK_SEND, SendPermit, StepAnswer, StepCall


@dataclass(frozen=True, slots=True)
class ElsewhereActivities:
    """The ledger's part in a step that is performed on another task queue."""

    ledger: Ledger

    @activity.defn(name=BEGIN_SEND)
    async def begin(self, call: StepCall) -> SendPermit:
        """Commit the row that says "this may exist", or say why nothing may leave."""
        body = call.effect.frozen_body or _frozen(call)
        reset = activity.info().workflow_run_id != call.first_run_id
        permit = await self.ledger.sends.begin(call, body=body, now=datetime.now(UTC), reset=reset)
        if isinstance(permit, StepAnswer):
            return SendPermit(answer=permit.model_copy(update={"reset": reset}))
        return SendPermit(
            sends=permit.sends,
            sent_at=permit.sent_at,
            frozen_body=permit.frozen_body,
            reset=reset,
        )

    @activity.defn(name=TAKE_BACK_SEND)
    async def take_back(self, call: StepCall, permit: SendPermit, reason: str) -> None:
        """Take back the mark of a request that left no effect."""
        now = datetime.now(UTC)
        mark = Permit(
            sends=permit.sends, sent_at=permit.sent_at or now, frozen_body=permit.frozen_body
        )
        await self.ledger.sends.not_applied(call, mark, reason=reason, now=now)


def _frozen(call: StepCall) -> str:
    """The request's bytes: sorted members, no white space. The same on every resend."""
    return json.dumps(
        call.effect.request, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
