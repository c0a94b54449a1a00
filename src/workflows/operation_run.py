"""What every operation's workflow shares: the forward path, the way back, and the receipt."""

import asyncio
from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar, cast

from temporalio import workflow

from operations.contracts import (
    CANCEL_UPDATE,
    RESOLVE_UPDATE,
    CancelRequest,
    Completion,
    Decision,
    Run,
    RunEnd,
    StoredReceipt,
)
from operations.declaration import Answer, Request, SagaOperation
from operations.receipts import problem_receipt, success_receipt
from operations.states import Outcome
from workflows import calls
from workflows.endings import Abandoned, AlreadyDone, Ending
from workflows.saga import Saga

R = TypeVar("R", bound=Request)


class OperationRun(ABC, Generic[R]):
    """One run of one operation. A subclass says which, and performs its steps."""

    operation: ClassVar[SagaOperation]

    def __init__(self, run: Run) -> None:
        """Set up before any handler can be called."""
        self.context = run
        self.saga = Saga(self.operation, run)

    @abstractmethod
    async def perform(self, request: R) -> Answer:
        """Perform the steps through `self.saga` and return the answer."""

    async def settle(self) -> RunEnd:
        """Run to the receipt. A cancel from outside is a wish, so it may arrive at any time, twice,
        and during compensation, and never tears the run apart."""
        work = asyncio.create_task(self._work())
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                self.saga.cancel(CancelRequest(requested_by="Temporal"))
        return work.result()

    @workflow.update(name=RESOLVE_UPDATE)
    async def resolve(self, decision: Decision) -> None:
        """Take a verdict about a step; returns when it is recorded."""
        await self.saga.settler.decide(decision)

    @resolve.validator
    def _check_verdict(self, decision: Decision) -> None:
        reason = self.saga.settler.why_not_decide(decision)
        if reason is not None:
            raise ValueError(reason)

    @workflow.update(name=CANCEL_UPDATE)
    async def cancel(self, request: CancelRequest) -> None:
        """Ask for a cancel; returns when it is recorded."""
        await self.saga.settler.cancel(request)

    @cancel.validator
    def _check_cancel(self, request: CancelRequest) -> None:  # noqa: ARG002 - Temporal passes it
        reason = self.saga.why_not_cancel()
        if reason is not None:
            raise ValueError(reason)

    async def _work(self) -> RunEnd:
        try:
            end = await self._forward()
        except AlreadyDone as done:
            end = done.end
        await workflow.wait_condition(workflow.all_handlers_finished)
        return end

    async def _forward(self) -> RunEnd:
        try:
            if self.context.recovered:
                await self.saga.settler.recall()
            request = self.operation.request.model_validate_json(self.context.request_json)
            answer = await self.perform(cast("R", request))
            await self.saga.finish()
            return await self._complete(Outcome.SUCCEEDED, self._success(answer), answer)
        except Ending as ending:
            return await self._back(ending)

    async def _back(self, ending: Ending) -> RunEnd:
        """Undo what was done, and end with a truthful no."""
        if not leaves_the_rest(ending, pivot_passed=self.saga.settler.pivot_passed):
            await self.saga.compensate()
        outcome = self._outcome(ending)
        receipt = problem_receipt(outcome, detail=ending.detail, step=ending.step, code=ending.code)
        return await self._complete(outcome, receipt, None)

    def _outcome(self, ending: Ending) -> Outcome:
        if self.saga.abandoned:
            return Outcome.ABANDONED
        if ending.outcome is Outcome.DECLINED and self.saga.journal.has_undone():
            return Outcome.COMPENSATED
        return ending.outcome

    def _success(self, answer: Answer) -> StoredReceipt:
        return success_receipt(
            answer.model_dump(mode="json"),
            status=self.operation.success_status,
            operation=self.operation.name,
            key=self.context.key,
        )

    async def _complete(
        self, outcome: Outcome, receipt: StoredReceipt, answer: Answer | None
    ) -> RunEnd:
        self.saga.settler.teller.tell(outcome)
        end = await calls.complete(
            Completion(
                claim_id=self.context.claim_id,
                tenant=self.context.tenant,
                operation=self.operation.name,
                workflow_id=self.saga.settler.workflow_id,
                outcome=outcome,
                receipt=receipt,
                effects=self.saga.journal.unrecorded(),
                answer=None if answer is None else answer.model_dump(mode="json"),
                retention_days=self.operation.retention_days,
                first_run_id=workflow.info().first_execution_run_id,
            )
        )
        if end.fenced:
            await self.saga.settler.recall()  # raises how the earlier history goes on to end
        return end


def leaves_the_rest(ending: Ending, *, pivot_passed: bool) -> bool:
    """Whether the other steps stay as they are: only when a step is given up after the pivot, from
    which there is no way back, and nothing was being undone by then. Every other ending says that
    what was done has been undone, so it has to be, also where an earlier run had confirmed the
    pivot while it was undoing."""
    return pivot_passed and isinstance(ending, Abandoned) and not ending.undoing
