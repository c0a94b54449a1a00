"""Settling one effect: make the moves that `operations.decisions` names, until nothing is left to
find out. Every answer and every verdict goes through the journal, and trouble into the ledger."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from operations.contracts import CancelRequest, Decision, Kind, Run, RunEnd, StepAnswer, StepCall
from operations.decisions import MoveKind, next_move
from operations.declaration import SagaOperation
from operations.effects import Effect
from operations.keys import Purpose
from operations.states import ClaimState, EffectState, Verdict
from workflows import calls, elsewhere
from workflows.endings import Abandoned, AlreadyDone, Cancelled, Fenced, Refused
from workflows.journal import REPEATABLE, Identity, Journal
from workflows.telling import Teller
from workflows.verdicts import Ticket, Verdicts

_VISIBLE = frozenset({EffectState.PLANNED, EffectState.UNKNOWN, EffectState.ABSENT})
"""States after a call that mean trouble: people want to see them while they last."""

LOOKS_AGAIN = 3
"""How often books that cannot be read are asked for what came late. Reconciliation asks later."""


class Settler:
    """Settles effects of one run, one at a time or side by side."""

    def __init__(self, operation: SagaOperation, run: Run) -> None:
        """Nothing is known yet but the request."""
        self.operation = operation
        self.run = run
        self.workflow_id = workflow.info().workflow_id
        self.journal = Journal(operation, run, workflow_id=self.workflow_id)
        self.teller = Teller(run, self.journal)
        self.cancel_request: CancelRequest | None = None
        self.pivot_passed = False
        self.compensating = False
        self.completing = False
        """Whether the receipt is being written: from then on the operation is over."""
        self.interrupted_before = run.recovered
        """Whether an earlier run, or a history that was reset, may have done more than we know."""
        self.given_up: set[str] = set()
        """Steps an operator gave up on: left as they are."""
        self._by_rows = run.recovered
        """Whether each send is recorded first, because something was not plain sailing."""
        self._suspect = False
        """Whether a send may have happened that has no row."""
        self._verdicts = Verdicts()
        self._recording = asyncio.Lock()
        """One at a time: a slow write must not overwrite a later one's state."""

    @property
    def stopping(self) -> bool:
        """Whether nothing new may begin: the operation is cancelled or being undone."""
        return self.compensating or (self.cancel_request is not None and not self.pivot_passed)

    def why_not_decide(self, decision: Decision) -> str | None:
        """Why a verdict would be refused now; None when it would be taken."""
        not_now = self._verdicts.why_not((decision.step, decision.purpose))
        return self.journal.why_not_decide(decision) or not_now

    async def decide(self, decision: Decision) -> None:
        """Take a verdict; the effect's settling acts on it at once. Returns when it is recorded.

        Raises ApplicationError when the effect was settled before that: nothing was decided then.
        """
        stamped = decision.model_copy(update={"decided_at": workflow.now()})
        ticket = self._verdicts.give(stamped)
        await workflow.wait_condition(lambda: ticket.is_over)
        if ticket.overtaken:
            raise ApplicationError(
                f"{decision.step!r} was settled at this very moment, without the verdict",
                type="verdict.overtaken",
            )

    async def cancel(self, request: CancelRequest) -> None:
        """Take a wish to cancel, and return when it is recorded with whose it is."""
        stamped = request.model_copy(update={"requested_at": workflow.now()})
        self.cancel_request = self.cancel_request or stamped
        await self.record("a cancel was asked for", cancel=stamped)

    async def make_cancel_known(self) -> None:
        """Return when the wish to cancel is recorded; one of Temporal's own is not yet.
        From then on the run knows whether its history was reset."""
        wish = self.cancel_request
        if wish is not None and wish.requested_at is None:
            self.cancel_request = wish.model_copy(update={"requested_at": workflow.now()})
            await self.record("a cancel was asked for", cancel=self.cancel_request)
        async with self._recording:
            return

    async def settle(self, identity: Identity) -> Effect:
        """Move until there is nothing left to find out. Raises Abandoned, Fenced, AlreadyDone."""
        with self._verdicts.attended(identity[:2]):
            return await self._settle(identity)

    async def _settle(self, identity: Identity) -> Effect:
        while True:
            effect = self.journal[identity]
            stopping = self._stops(effect)
            move = next_move(effect, now=workflow.now(), stopping=stopping)
            match move.kind:
                case MoveKind.STOP:
                    return effect
                case MoveKind.PARK:
                    identity = await self.park(effect)
                case MoveKind.SEND | MoveKind.LOOK_UP:
                    if move.after_seconds:
                        changed = await self._pause(effect, seconds=move.after_seconds)
                        if changed is not None:
                            identity = changed
                            continue
                    await self._call(effect, move.kind)

    async def look_again(self, effect: Effect) -> Effect:
        """Ask the books once more for a confirmed effect, a few times if they cannot be read: has
        another come late under its reference?"""
        answer = await self._ask_books(effect)
        for _ in range(LOOKS_AGAIN):
            if answer.kind is not Kind.UNREADABLE:
                break
            await workflow.sleep(effect.profile.lookup_interval_seconds)
            answer = await self._ask_books(effect)
        return self.journal.put(effect.seen_again(answer))

    async def park(self, effect: Effect) -> Identity:
        """Wait until a person, or the provider's records, decide. No timer ends this."""
        slot = (effect.step, effect.purpose)
        parked = self.journal.put(effect.becomes(EffectState.PARKED))
        with self._verdicts.attended(slot):
            await self.record(f"{effect.step} waits for a decision")
            await workflow.wait_condition(
                lambda: slot in self._verdicts or (effect.never_sent and self._stops(effect))
            )
            verdict = self._verdicts.take(slot)
            if verdict is not None:
                return await self._apply(parked, verdict)
        self.journal.put(replace(parked, state=EffectState.PLANNED))
        return parked.identity

    async def record(
        self,
        summary: str,
        *,
        decision: Decision | None = None,
        cancel: CancelRequest | None = None,
        entombing: bool = False,
    ) -> None:
        """Write what the ledger does not know yet, and where the operation stands."""
        async with self._recording:
            rows = self.journal.unrecorded()
            progress = self.teller.progress(self.where(), rows, decision, cancel)
            write = calls.record_tombstones if entombing else calls.record
            written = await write(progress, summary=summary)
            self.interrupted_before = self.interrupted_before or written.reset
            self.journal.recorded(rows)
            self.teller.tell(self.where())

    def where(self) -> ClaimState:
        """Where the operation stands."""
        if self.journal.has_parked(but=self.given_up):
            return ClaimState.PARKED
        return ClaimState.COMPENSATING if self.compensating else ClaimState.ACCEPTED

    async def recall(self) -> None:
        """Take up what earlier runs have written.

        Raises AlreadyDone, or how an earlier run came to end, unless this one is undoing already.
        """
        memory = await calls.recall(self.run.claim_id)
        if memory.outcome is not None and memory.status is not None:
            raise AlreadyDone(RunEnd(outcome=memory.outcome, status=memory.status))
        self.interrupted_before = self._by_rows = True
        self.journal.recall(memory.effects)
        self.pivot_passed = self.journal.pivot_confirmed()
        self.cancel_request = self.cancel_request or memory.cancel
        entombed = self.journal.has_tombstone() or any(row.tombstone for row in memory.effects)
        undoing = memory.state is ClaimState.COMPENSATING or entombed
        # What has become known since then is undone like everything else.
        self.given_up.update(v.step for v in memory.abandoned if self.journal.is_undecided(v))
        if self.compensating:
            return
        for verdict in memory.abandoned:
            if verdict.purpose is not Purpose.UNDO:
                raise Abandoned.by(verdict, undoing=undoing)
        if undoing:
            refused = self.journal.refusal()
            if refused is not None:
                raise Refused.by(refused)
            if memory.cancel is not None:
                raise Cancelled.by(memory.cancel)
            raise Fenced("An earlier run of this operation had begun to undo it")

    def _stops(self, effect: Effect) -> bool:
        return self.stopping and effect.purpose is Purpose.ACTION

    async def _call(self, effect: Effect, kind: MoveKind) -> None:
        call = self._step_call(effect)
        summary = f"{effect.action} at {effect.profile.provider}"
        step = self.operation.step(effect.step)
        if kind is MoveKind.LOOK_UP:
            answer = await self._ask_books(effect)
        elif step.is_elsewhere:
            answer = await elsewhere.perform(step, call, summary=summary)
            self._note_written(call, answer)
        elif call.recorded:
            answer = await calls.perform(call, summary=summary)
            self._note_written(call, answer)
        else:
            answer = await calls.perform_fast(call, summary=summary)
        await self._learn(effect, self._doubted(effect, call, answer))

    def _doubted(self, effect: Effect, call: StepCall, answer: StepAnswer) -> StepAnswer:
        """ "Not applied" speaks for this request alone. Where an attempt before it may have left no
        row (its worker died, or its run), the effect has become unknown."""
        certain = call.recorded and not self.interrupted_before
        repeatable = effect.profile.guarantee in REPEATABLE and effect.purpose is Purpose.ACTION
        if answer.kind is not Kind.UNAVAILABLE or certain or not repeatable:
            return answer
        return answer.model_copy(update={"sent_at": answer.sent_at or answer.at})

    async def _ask_books(self, effect: Effect) -> StepAnswer:
        call = self._step_call(effect)
        summary = f"look up {effect.action} at {effect.profile.provider}"
        step = self.operation.step(effect.step)
        if step.is_elsewhere:
            return await elsewhere.look_up(step, call, summary=summary)
        return await calls.look_up(call, summary=summary)

    def _note_written(self, call: StepCall, answer: StepAnswer) -> None:
        """A send that the ledger refused has written nothing: tell it again later."""
        if not answer.rolled_back:
            self.journal.recorded(call.also)

    def _step_call(self, effect: Effect) -> StepCall:
        """What to send: fast while all is well, with a row committed first otherwise."""
        repeatable = effect.profile.guarantee in REPEATABLE
        age_seconds = (workflow.now() - self.run.accepted_at).total_seconds()
        if not self._by_rows and age_seconds >= effect.profile.keyed_resend_seconds:
            self._by_rows = self._suspect = True
        # What takes back another effect is held against it in the ledger, before it leaves.
        # So is what is sent elsewhere: a send that waits in their queue is one that may exist.
        here = not self.operation.step(effect.step).is_elsewhere
        first = effect.purpose is Purpose.ACTION and effect.undoes is None
        rowless = repeatable and first and here
        recorded = self._by_rows or not rowless
        if rowless and (not recorded or self._suspect or self.interrupted_before):
            # It may have left before, without a row: its key has lived since then, at the longest.
            effect = replace(effect, sent_at=effect.sent_at or self.run.accepted_at)
        return StepCall(
            claim_id=self.run.claim_id,
            workflow_id=self.workflow_id,
            tenant=self.run.tenant,
            effect=effect.record(),
            profile=effect.profile,
            recorded=recorded,
            suspect=self._suspect and rowless,
            first_run_id=workflow.info().first_execution_run_id,
            also=self.journal.unrecorded(but=effect.identity) if recorded else (),
        )

    async def _learn(self, effect: Effect, answer: StepAnswer) -> None:
        """Take in an answer. Trouble is recorded, so that everybody can see it."""
        learned = self.journal.put(effect.learns(answer))
        self.interrupted_before = self.interrupted_before or answer.reset
        if answer.kind is Kind.FENCED:
            await self.recall()
        if learned.state in _VISIBLE:
            self._by_rows = True
            if learned.state is not effect.state or learned.failures == 1:
                await self.record(f"{effect.step} is {learned.state}: {learned.reason}"[:200])

    async def _pause(self, effect: Effect, *, seconds: float) -> Identity | None:
        """Wait, unless a verdict or a cancel comes first: then the effect to go on with."""
        slot = (effect.step, effect.purpose)
        stops = self._stops(effect)
        try:
            await workflow.wait_condition(
                lambda: slot in self._verdicts or self._stops(effect) != stops,
                timeout=timedelta(seconds=seconds),
            )
        except TimeoutError:
            return None
        verdict = self._verdicts.take(slot)
        return effect.identity if verdict is None else await self._apply(effect, verdict)

    async def _apply(self, effect: Effect, verdict: Ticket) -> Identity:
        """Do what the verdict says, recorded with who, when and the evidence."""
        decision = verdict.decision
        if decision.verdict is Verdict.RETRY and effect.refused:
            self.journal.put(effect.becomes(EffectState.REJECTED))  # gives back what it held
            decided = self.journal.renew(effect)
        else:
            decided = effect.decided(decision)
        self.journal.put(decided)
        await self.record(f"{effect.step}: {decision.verdict}", decision=decision)
        verdict.recorded = True
        if decision.verdict is Verdict.ABANDON:
            self.given_up.add(effect.step)
            raise Abandoned.by(decision)
        return decided.identity
