"""The saga: perform steps in order; when that cannot go on, undo in reverse what was done.

The undo of a step is registered before its action, so "may have run" counts as "ran"; it undoes
only what a look-up or a recorded provider reference confirms.
"""

import asyncio
from dataclasses import replace
from typing import Any

from temporalio import workflow

from operations.contracts import CancelRequest, Run
from operations.declaration import SagaOperation, Step
from operations.effects import Effect
from operations.guarantees import OnUnknown
from operations.keys import Purpose
from operations.states import EffectState
from workflows.endings import Abandoned, Cancelled, OutcomeUnknown, Refused
from workflows.settling import Settler

UNDO_HEAD_START_SECONDS = 10.0
"""An undo that has not ended by then goes on beside the next one: it does not stop the others."""

PIVOT_BEFORE_CANCEL = "pivot-before-cancel"
"""A run honours a cancel only when it knows where it stands. Older histories did so at once."""

LOOK_AGAIN = "look-again"
"""What was sent again is looked up before the end. Older histories trusted the horizon."""


class Saga:
    """The steps of one operation."""

    def __init__(self, operation: SagaOperation, run: Run) -> None:
        """Nothing has been performed yet."""
        self.operation = operation
        self.settler = Settler(operation, run)
        self.journal = self.settler.journal
        self.abandoned = False

    async def perform(self, step: Step, **request: Any) -> str:
        """Perform `step` and return the provider's reference for it.

        A step that is not required returns "" when it was refused, or accepted as unknown.
        Raises an Ending when the operation cannot go on, AlreadyDone when an earlier run ended it.
        """
        if self.settler.stopping:
            await self._honour_cancel()
        effect = await self.settler.settle(self.journal.plan(step, request).identity)
        while self._stuck_after_pivot(step, effect):
            effect = await self.settler.settle(await self.settler.park(effect))
        await self._undo_duplicates(step, effect)
        return self._conclude(step, effect)

    async def finish(self) -> None:
        """Every step is performed: from here on there is no cancel. Raises Cancelled when one was
        taken before that."""
        for step in self.operation.steps:
            action = self.journal.action(step.name)
            if action is not None and self._may_have_come_late(step, action):
                await self._undo_duplicates(step, await self.settler.look_again(action))
        if self.settler.stopping:
            await self._honour_cancel()
        self.settler.completing = True

    async def _honour_cancel(self) -> None:
        """Raise Cancelled, unless an earlier run proves to have passed the pivot."""
        if workflow.patched(PIVOT_BEFORE_CANCEL):
            await self.settler.make_cancel_known()
            await self._find_out_about_the_pivot()
        if self.settler.stopping:
            raise self._cancelled()

    async def _find_out_about_the_pivot(self) -> None:
        """An earlier run, or a history that was reset, may have passed it without a row: from there
        is no way back, and "cancelled" would not be true."""
        if not self.settler.interrupted_before:
            return
        await self.settler.recall()
        pivot = self.operation.pivot
        suspected = pivot and self.journal.suspect(pivot, now=workflow.now())
        if suspected:
            await self.settler.settle(suspected.identity)
            self.settler.pivot_passed = self.journal.pivot_confirmed()

    async def compensate(self) -> None:
        """Undo, in reverse, what may have been done. Ends when every effect is settled."""
        self.settler.compensating = True
        await self._entomb()
        undoing: list[asyncio.Task[None]] = []
        for step in reversed(self.operation.steps):
            if self.journal.action(step.name) is not None:
                task = asyncio.create_task(self._undo(step))
                undoing.append(task)
                await workflow.wait([task], timeout=UNDO_HEAD_START_SECONDS)
        for task in undoing:
            await task

    async def _entomb(self) -> None:
        """Forbid every further send in the ledger. A run whose history was reset may learn of that
        from this very write: what the earlier history may have done is taken up then, too."""
        if self.settler.interrupted_before:
            await self._take_up_what_is_suspected()
            return
        self.journal.entomb()
        await self.settler.record("undoing what was done", entombing=True)
        if self.settler.interrupted_before:
            await self._take_up_what_is_suspected()

    async def _take_up_what_is_suspected(self) -> None:
        await self.settler.recall()
        self.journal.suspect_unplanned_steps(now=workflow.now())
        self.journal.entomb()
        await self.settler.record("undoing what was done", entombing=True)

    def cancel(self, request: CancelRequest) -> None:
        """Ask for a cancel: honoured before the next step, and never after the pivot."""
        self.settler.cancel_request = self.settler.cancel_request or request

    def why_not_cancel(self) -> str | None:
        """Why a cancel would be refused now; None when it would be taken."""
        if self.settler.completing:
            return "Every step has been performed, and the receipt is being written"
        if self.settler.compensating:
            return "What was done is being undone already"
        if self.settler.pivot_passed:
            return "The pivot step has succeeded: from here on the operation only goes forward"
        return None

    def _conclude(self, step: Step, effect: Effect) -> str:
        match effect.state:
            case EffectState.CONFIRMED:
                self.settler.pivot_passed = self.settler.pivot_passed or step.pivot
                return effect.provider_reference or ""
            case EffectState.REJECTED:
                if step.required:
                    raise Refused.by(effect)
                return ""
            case EffectState.UNKNOWN if step.on_unknown is OnUnknown.ACCEPT_DUPLICATES:
                return ""
            case EffectState.UNKNOWN if not self.settler.stopping:
                raise OutcomeUnknown(
                    f"Whether {step.name!r} happened cannot be known", step=step.name
                )
            case _:
                raise self._cancelled()

    def _stuck_after_pivot(self, step: Step, effect: Effect) -> bool:
        """After the pivot there is only forward: a refusal is for a person to decide."""
        refused = effect.state is EffectState.REJECTED and step.required
        return refused and self.settler.pivot_passed

    def _cancelled(self) -> Cancelled:
        return Cancelled.by(self.settler.cancel_request or CancelRequest())

    async def _undo(self, step: Step) -> None:
        """Find out what the step's action did, and take it back."""
        if step.name in self.settler.given_up:
            self.abandoned = True
            return
        try:
            action = await self._settled_action(step)
            if action is not None:
                await self._undo_duplicates(step, action)
                await self._take_back(step, action)
        except Abandoned:
            self.abandoned = True

    async def _settled_action(self, step: Step) -> Effect | None:
        action = self.journal.action(step.name)
        if action is None:
            return None
        settled = await self.settler.settle(action.identity)
        entombed = self.journal.put(replace(settled, tombstone=True))
        if self._may_have_come_late(step, entombed):
            return await self.settler.look_again(entombed)
        return entombed

    def _may_have_come_late(self, step: Step, action: Effect) -> bool:
        """Whether the books have to be asked once more, as late as can be: before the end."""
        return step.undo is not None and action.may_be_twice and workflow.patched(LOOK_AGAIN)

    async def _undo_duplicates(self, step: Step, action: Effect) -> None:
        """Take back what stands twice in the provider's books: one effect is kept."""
        if step.undo is None:
            return
        known = self.journal.duplicates(step.name)
        targets = {undo.undoes for undo in known}
        found = [reference for reference in action.duplicates if reference not in targets]
        first = max((undo.ordinal for undo in known), default=0) + 1
        for ordinal, reference in enumerate(found, start=first):
            request = step.undo.request(provider_reference=reference, forward=action.request)
            self.journal.plan(step, request, purpose=Purpose.DUPLICATE, ordinal=ordinal)
        doubled = self.journal.duplicates(step.name)
        if action.duplicates:
            await self.settler.record(f"{step.name} was found {len(action.duplicates) + 1} times")
        for undo in doubled:
            await self._settle_undo(undo)

    async def _take_back(self, step: Step, action: Effect) -> None:
        """Undo a confirmed effect by the provider's own reference, an unknown one by ours."""
        if step.undo is None:
            return
        if action.state is EffectState.CONFIRMED and action.provider_reference:
            target = action.key if step.undo.by_reference else action.provider_reference
        elif action.state is EffectState.UNKNOWN and step.undo.by_reference:
            target = action.key
            await self._outlive_the_request(action)
        else:
            return
        request = step.undo.request(provider_reference=target, forward=action.request)
        undone = await self._settle_undo(self.journal.plan(step, request, purpose=Purpose.UNDO))
        if undone.state is EffectState.CONFIRMED:
            self.journal.put(action.becomes(EffectState.COMPENSATED, tombstone=True))

    async def _settle_undo(self, undo: Effect) -> Effect:
        """Settle an undo. One that is refused waits for a person, and does not stop the others."""
        undone = await self.settler.settle(undo.identity)
        while undone.state is EffectState.REJECTED:
            undone = await self.settler.settle(await self.settler.park(undone))
        return undone

    async def _outlive_the_request(self, action: Effect) -> None:
        """A cancel by reference can overtake the request it cancels: wait for the horizon."""
        horizon = action.horizon()
        if horizon is not None and horizon > workflow.now():
            await workflow.sleep(horizon - workflow.now())
