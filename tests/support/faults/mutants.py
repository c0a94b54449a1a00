"""Mutants: the service with one of its guards taken out. Planted into children by the suite alone.

Each is one of the mistakes that `docs/guarantees.md` names; the suite has to notice every one.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

_MUTANTS: dict[str, Callable[[], None]] = {}


def _mutant(plant: Callable[[], None]) -> Callable[[], None]:
    _MUTANTS[plant.__name__.removeprefix("_").replace("_", "-")] = plant
    return plant


def plant(name: str) -> None:
    """Take the guard out of this process. Raises KeyError for a name that is none."""
    _MUTANTS[name]()


def names() -> tuple[str, ...]:
    """All there are."""
    return tuple(_MUTANTS)


@_mutant
def _attempt_in_the_derived_key() -> None:
    """The key that a provider sees changes with every attempt."""
    from temporalio import activity

    from activities.steps import StepActivities
    from operations.contracts import PERFORM_STEP, StepAnswer, StepCall

    perform = StepActivities.perform

    async def perform_under_another_key(self: StepActivities, call: Any) -> Any:
        attempt = activity.info().attempt
        if attempt > 1:
            key = f"{call.effect.key[:-3]}{attempt:03d}"
            request = {**call.effect.request, "reference": key}
            effect = call.effect.model_copy(update={"key": key, "request": request})
            call = call.model_copy(update={"effect": effect})
        return await perform(self, call)

    # Temporal reads the types at run time, and this module's annotations are not in reach then.
    perform_under_another_key.__annotations__ = {"call": StepCall, "return": StepAnswer}
    StepActivities.perform = activity.defn(name=PERFORM_STEP)(perform_under_another_key)


@_mutant
def _refund_without_a_lookup() -> None:
    """A cancelled operation undoes what it knows of: what is unknown is not looked up first."""
    _leave_unknowns()


@_mutant
def _negative_lookup_trusted_at_once() -> None:
    """ "Not found" is taken for "never happened", at the first look and before the horizon."""
    from operations import effects
    from operations.effects import Effect

    def at_once(self: Effect) -> datetime | None:
        return self.sent_at

    effects.ABSENCES_NEEDED = 1
    Effect.horizon = at_once


@_mutant
def _unknown_becomes_failed_by_a_timer() -> None:
    """What did not answer in time is written down as refused."""
    from operations.contracts import Kind
    from operations.effects import Effect

    learns = Effect.learns

    def gives_up(self: Effect, answer: Any) -> Effect:
        if answer.kind is Kind.UNKNOWN:
            answer = answer.model_copy(update={"kind": Kind.DECLINED, "code": "timed_out"})
        return learns(self, answer)

    Effect.learns = gives_up


@_mutant
def _undo_registered_after_the_action() -> None:
    """Only what is known to have succeeded has an undo: "may have run" counts as "did not"."""
    from operations.states import EffectState
    from workflows.saga import Saga

    undo = Saga._undo

    async def undo_what_succeeded(self: Saga, step: Any) -> None:
        action = self.journal.action(step.name)
        if action is not None and action.state is EffectState.CONFIRMED:
            await undo(self, step)

    Saga._undo = undo_what_succeeded
    _leave_unknowns()


def _leave_unknowns() -> None:
    """A cancel interrupts a step whose outcome is unknown, as an exception would."""
    from operations.decisions import STOP
    from operations.states import EffectState
    from workflows import settling

    next_move = settling.next_move

    def stop_at_once(effect: Any, *, now: datetime, stopping: bool = False) -> Any:
        if stopping and effect.state is EffectState.UNKNOWN:
            return STOP
        return next_move(effect, now=now, stopping=stopping)

    settling.next_move = stop_at_once


@_mutant
def _allow_duplicate_runs() -> None:
    """A workflow ID may be used again after its run has ended."""
    from temporalio.common import WorkflowIDReusePolicy

    from runtime.temporal import TemporalExecutor

    async def has_run(self: TemporalExecutor, claim: Any) -> bool:
        await self._start(claim, WorkflowIDReusePolicy.ALLOW_DUPLICATE, recovered=False)
        return True

    TemporalExecutor.has_run = has_run


@_mutant
def _receipt_outside_the_business_transaction() -> None:
    """The receipt is committed first, and the business's own row after it."""
    from ledger.progress import Progresses
    from operations.failpoints import Failpoint

    complete = Progresses.complete

    async def in_two_steps(
        self: Progresses, completion: Any, *, now: datetime, reset: bool = False
    ) -> Any:
        from operations.failpoints import fail_at

        async with self._database.connection() as connection:
            state = await connection.fetchval(
                "SELECT state FROM claims WHERE id = $1", completion.claim_id
            )
        receipt_only = completion.model_copy(update={"answer": None})
        end = await complete(self, receipt_only, now=now, reset=reset)
        if state == "done":
            return end  # as the real one: what has ended is not written again
        fail_at(Failpoint.COMPLETION_COMMITTED)
        if completion.answer is not None:
            async with self._database.transaction() as connection:
                await connection.execute(
                    "INSERT INTO business_rows (claim_id, tenant, operation, answer, created_at)"
                    " VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
                    completion.claim_id,
                    completion.tenant,
                    completion.operation,
                    completion.answer,
                    now,
                )
        return end

    Progresses.complete = in_two_steps


@_mutant
def _fingerprint_not_compared_when_attaching() -> None:
    """Who attaches to a running operation may ask for something else."""
    from api import boundary

    claim_key = boundary.claim_key

    async def believed(submission: Any, *, service: Any) -> Any:
        claim = await claim_key(submission, service=service)
        if claim.receipt is None:
            return replace(claim, fingerprint=submission.intent.fingerprint)
        return claim

    boundary.claim_key = believed


@_mutant
def _webhook_without_its_unique_row() -> None:
    """Every message counts as a new one."""
    import uuid

    from ledger import inbox

    values = inbox._values

    def never_the_same(message: Any) -> dict[str, Any]:
        known = values(message)
        return {**known, "version": f"{known['version']}#{uuid.uuid4().hex}"}

    inbox._values = never_the_same


@_mutant
def _reconciliation_skips_completed_operations() -> None:
    """What is done is taken for right."""
    from activities import reconciliation

    match = reconciliation.match

    def match_open_ones(view: Any) -> Any:
        done = {effect.key for effect in view.effects if effect.is_over}
        return [finding for finding in match(view) if finding.effect_key not in done]

    reconciliation.match = match_open_ones
