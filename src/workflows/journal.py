"""What a run knows of its effects, and which of it the ledger knows too."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from operations.contracts import Decision, EffectRecord, Run
from operations.declaration import SagaOperation, Step
from operations.effects import Effect
from operations.guarantees import Guarantee, OnUnknown
from operations.keys import Purpose, derived_key
from operations.states import EffectState, Verdict

Identity = tuple[str, Purpose, int]

REPEATABLE = frozenset({Guarantee.KEYED, Guarantee.NATURAL})
"""What may be sent without a row: the provider makes a repeat harmless."""


class Journal:
    """The effects of one run, in the order in which they were planned."""

    def __init__(self, operation: SagaOperation, run: Run, *, workflow_id: str) -> None:
        """Nothing is planned yet."""
        self._operation = operation
        self._run = run
        self._workflow_id = workflow_id
        self._effects: dict[Identity, Effect] = {}
        self._recorded: dict[Identity, EffectRecord] = {}

    def __getitem__(self, identity: Identity) -> Effect:
        """The effect as it is known now."""
        return self._effects[identity]

    def put(self, effect: Effect) -> Effect:
        """Keep what has become known of `effect`, and return it."""
        self._effects[effect.identity] = effect
        return effect

    def action(self, step: str) -> Effect | None:
        """The latest effect of the step's action, if it was planned."""
        return self._latest(step, Purpose.ACTION)

    def duplicates(self, step: str) -> tuple[Effect, ...]:
        """The undos of what was found beyond the one effect that is kept."""
        return tuple(e for e in self.all() if e.step == step and e.purpose is Purpose.DUPLICATE)

    def all(self) -> tuple[Effect, ...]:
        """Every effect, in the order of planning."""
        return tuple(self._effects.values())

    def plan(
        self,
        step: Step,
        request: Mapping[str, Any],
        *,
        purpose: Purpose = Purpose.ACTION,
        ordinal: int = 0,
    ) -> Effect:
        """Register an effect before anything is sent. One that is known already stays as it is."""
        known = self._effects.get((step.name, purpose, ordinal))
        if known is not None:
            return known
        key = derived_key(
            workflow_id=self._workflow_id, step=step.name, ordinal=ordinal, purpose=purpose
        )
        undo = step.undo.action if step.undo is not None else step.action
        target = step.undo.target if step.undo is not None else None
        if purpose is Purpose.ACTION:
            target = step.takes_back
        return self.put(
            Effect(
                step=step.name,
                action=step.action if purpose is Purpose.ACTION else undo,
                key=key,
                profile=self._run.profiles[step.provider],
                request={**request, "reference": key},
                purpose=purpose,
                ordinal=ordinal,
                on_unknown=step.on_unknown if purpose is Purpose.ACTION else OnUnknown.PARK,
                undoes=request.get(target) if target is not None else None,
            )
        )

    def renew(self, effect: Effect) -> Effect:
        """The same wish under a new key: after a no, and an explicit decision (hazard 4)."""
        return self.plan(
            self._operation.step(effect.step),
            effect.request,
            purpose=effect.purpose,
            ordinal=effect.ordinal + 1,
        )

    def recall(self, rows: Iterable[EffectRecord]) -> None:
        """Take up what earlier runs recorded. What this run knows by itself stays."""
        for row in rows:
            step = self._operation.step(row.step)
            effect = Effect.recalled(
                row,
                profile=self._run.profiles[step.provider],
                on_unknown=step.on_unknown if row.purpose is Purpose.ACTION else OnUnknown.PARK,
            )
            known = self._effects.get(effect.identity)
            if known is None or known.state is EffectState.PLANNED:
                self._effects[effect.identity] = effect
                self._recorded[effect.identity] = row

    def suspect_unplanned_steps(self, *, now: datetime) -> None:
        """After a reset or a recovery, steps that this run never reached may have been performed by
        an earlier one: they are unknown, to be looked up. Not those that are never sent without a
        row: `recall` would have found it."""
        for step in self._operation.steps:
            self.suspect(step, now=now)

    def suspect(self, step: Step, *, now: datetime) -> Effect | None:
        """What is known of a step after a reset or a recovery; None when it was never sent."""
        rowless = self._run.profiles[step.provider].guarantee in REPEATABLE
        known = self.action(step.name)
        if known is not None or not rowless:
            return known
        since = self._run.accepted_at
        return self.put(
            replace(self.plan(step, {}), state=EffectState.UNKNOWN, sent_at=since, last_sent_at=now)
        )

    def entomb(self) -> None:
        """Forbid any further send of an action, unless only a resend can tell what happened."""
        for effect in self.all():
            if effect.purpose is Purpose.ACTION and not effect.needs_resend:
                self.put(replace(effect, tombstone=True))

    def has_tombstone(self) -> bool:
        """Whether an earlier run had begun to undo."""
        return any(effect.tombstone for effect in self.all())

    def refusal(self) -> Effect | None:
        """The definite no that a required step got, if one did."""
        steps = [step for step in self._operation.steps if step.required]
        actions = [self.action(step.name) for step in steps]
        return next((e for e in actions if e and e.state is EffectState.REJECTED), None)

    def has_parked(self, *, but: Collection[str] = ()) -> bool:
        """Whether a person must decide about some effect, those of the steps `but` aside."""
        return any(e.state is EffectState.PARKED and e.step not in but for e in self.all())

    def has_undone(self) -> bool:
        """Whether something was done, and undone since."""
        return any(effect.state is EffectState.COMPENSATED for effect in self.all())

    def pivot_confirmed(self) -> bool:
        """Whether the pivot step has succeeded."""
        pivots = [self.action(step.name) for step in self._operation.steps if step.pivot]
        return any(e is not None and e.state is EffectState.CONFIRMED for e in pivots)

    def unrecorded(self, *, but: Identity | None = None) -> tuple[EffectRecord, ...]:
        """What the ledger does not know yet."""
        rows = ((effect.identity, effect.record()) for effect in self.all())
        return tuple(
            row for identity, row in rows if identity != but and self._recorded.get(identity) != row
        )

    def recorded(self, rows: Iterable[EffectRecord]) -> None:
        """Remember that the ledger knows `rows` now."""
        for row in rows:
            self._recorded[row.step, row.purpose, row.ordinal] = row

    def why_not_decide(self, decision: Decision) -> str | None:
        """Why a verdict about a step would be refused now; None when it would be taken."""
        effect = self._latest(decision.step, decision.purpose)
        if effect is None:
            return f"The step {decision.step!r} has not been reached"
        if decision.about not in {"", effect.key}:
            return f"The verdict is about an earlier effect of {decision.step!r}"
        if not effect.is_undecided:
            return f"There is nothing to decide: {decision.step!r} is {effect.state}"
        if decision.verdict is Verdict.CONFIRMED and not decision.provider_reference:
            return "A confirmed effect needs the provider's reference"
        blind = effect.profile.guarantee is Guarantee.BLIND
        if decision.verdict is Verdict.RETRY and blind and effect.sends and not effect.refused:
            return "A blind provider cannot be asked again: say confirmed, absent or abandon"
        return None

    def is_undecided(self, decision: Decision) -> bool:
        """Whether what the verdict was about is still not known."""
        effect = self._latest(decision.step, decision.purpose)
        return effect is not None and effect.is_undecided

    def _latest(self, step: str, purpose: Purpose) -> Effect | None:
        found = [e for e in self._effects.values() if e.step == step and e.purpose is purpose]
        return found[-1] if found else None
