"""What reconciliation does by itself: only about exact matches, and each once.

Every remedy is claimed in the ledger before it is carried out, and the provider's books are looked
at again, live, before anything is sent: a page of a list may be minutes old.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol, assert_never

import structlog

from activities.steps import send_body
from ledger.ledger import Ledger
from ledger.reconciliation_actions import Action, ActionRefused
from ledger.reconciliation_findings import FindingRow
from ledger.reconciliation_runs import RunRow
from ledger.verdicts import ROBOT
from operations.contracts import Decision, Kind, StepAnswer
from operations.decisions import MoveKind, next_move
from operations.declaration import Operation, SagaOperation, Undo
from operations.effects import Effect
from operations.errors import Unavailable
from operations.halves import OurEffect
from operations.keys import Purpose, derived_key
from operations.reconciliation import FindingKind, Remedy, RemedyState, Turn
from operations.states import EffectState, Outcome, Verdict
from providers.contract import Provider, ProviderRecord

PLANNED_PER_TURN = 50
LEAVES_WITHIN_SECONDS = 2.0
"""A request leaves this soon after we began to write it down, or not at all: a worker that was
frozen in between must not send after others have looked up and found nothing (hazard 9)."""

MOVES_PER_TURN = 6
PAUSE_SECONDS_MAX = 15.0
"""A remedy that has to wait longer is taken up again by the next run."""

_log = structlog.get_logger(__name__)


class Told(StrEnum):
    """What became of a verdict that was sent to an operation's run."""

    TAKEN = "taken"
    REFUSED = "refused"
    """The run has another view: it is finding out by itself."""
    NO_RUN = "no_run"
    UNREACHABLE = "unreachable"


class Teller(Protocol):
    """Sends verdicts to operations."""

    async def tell(self, effect: OurEffect, decision: Decision) -> Told:
        """Give the run of the effect's operation a verdict. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Later:
    """The remedy goes on after a pause."""

    seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Remedied:
    """The remedy has come to an end."""

    state: RemedyState
    note: str


Progress = Later | Remedied


@dataclass(frozen=True, slots=True)
class Remedies:
    """Carries out what findings plan."""

    ledger: Ledger
    operations: Mapping[str, Operation]
    teller: Teller

    async def carry_out(self, run: RunRow, provider: Provider) -> Turn:
        """Go on with every planned remedy of a provider; finished when none has to wait."""
        findings = self.ledger.reconciliation.findings
        behind, pauses = 0, list[float]()
        while page := await findings.planned(
            run.provider, behind_id=behind, limit=PLANNED_PER_TURN
        ):
            for finding in page:
                progress = await self._carry_out_one(finding, provider)
                if isinstance(progress, Later):
                    pauses.append(progress.seconds)
                    continue
                _log.info("reconciliation.remedy", finding=finding.id, state=progress.state)
                await findings.remedied(
                    finding, to=progress.state, note=progress.note, run_id=run.id, now=_now()
                )
            behind = page[-1].id
        if not pauses:
            return Turn(finished=True)
        pause = min(max(min(pauses), 0.2), PAUSE_SECONDS_MAX)
        return Turn(finished=False, pause_seconds=pause, remark=f"{len(pauses)} remedies wait")

    async def _carry_out_one(self, finding: FindingRow, provider: Provider) -> Progress:
        profile = provider.profile
        effect = await self.ledger.reconciliation.pages.effect(
            profile.provider, profile.account, finding.effect_key or ""
        )
        if effect is None:
            return Remedied(RemedyState.REFUSED, "Its effect is not in the ledger any more")
        try:
            records = await provider.look_up(effect.action, key=effect.key)
        except Unavailable as error:
            return Later(error.retry_after_seconds or 2.0)
        record = next((found for found in records if found.id == finding.record_id), None)
        if record is None:
            return Remedied(
                RemedyState.REFUSED, "A look-up under our reference does not show the record"
            )
        match finding.remedy:
            case Remedy.RESOLVE:
                return await self._resolve(effect, record)
            case Remedy.UNDO:
                return await self._undo(finding, effect, records, record, provider)
            case Remedy.NONE:
                return Remedied(RemedyState.REFUSED, "It waits for a person")
            case _:
                assert_never(finding.remedy)

    async def _resolve(self, effect: OurEffect, record: ProviderRecord) -> Progress:
        """Tell the operation; where its run is gone, write it into the ledger for the next one."""
        if effect.state is EffectState.CONFIRMED:
            return Remedied(RemedyState.DONE, "The operation has found it out by itself")
        decision = Decision(
            step=effect.step,
            purpose=effect.purpose,
            verdict=Verdict.CONFIRMED,
            provider_reference=record.id,
            evidence=f"Reconciliation found {record.id} under our reference {effect.key}",
            about=effect.key,
            decided_by=ROBOT,
        )
        told = Told.NO_RUN if effect.is_over else await self.teller.tell(effect, decision)
        match told:
            case Told.TAKEN:
                return Remedied(RemedyState.DONE, f"The operation was told of {record.id}")
            case Told.REFUSED | Told.UNREACHABLE:
                return Later()
            case Told.NO_RUN:
                found = {"amount_minor": record.amount_minor, "currency": record.currency}
                written = await self.ledger.reconciliation.actions.settle_in_ledger(
                    effect, decision, found, now=_now()
                )
                note = f"Written down as {record.id}" if written else "It was known already"
                return Remedied(RemedyState.DONE, note)
            case _:
                assert_never(told)

    async def _undo(
        self,
        finding: FindingRow,
        effect: OurEffect,
        records: tuple[ProviderRecord, ...],
        record: ProviderRecord,
        provider: Provider,
    ) -> Progress:
        """Take back a record that must not stand, under a key of its own."""
        if finding.kind is FindingKind.DUPLICATE and not _has_another(effect, records, record):
            return Remedied(RemedyState.REFUSED, "The record to keep is not there any more")
        undo = self._undo_effect(finding, effect, record, provider)
        if undo is None:
            return Remedied(RemedyState.REFUSED, "Its operation declares no undo")
        claimed = await self.ledger.reconciliation.actions.claim_undo(
            finding, effect, undo, now=_now()
        )
        if isinstance(claimed, ActionRefused):
            return Remedied(RemedyState.REFUSED, claimed.reason)
        progress = await self._drive(claimed, provider)
        done = isinstance(progress, Remedied) and progress.state is RemedyState.DONE
        if done and finding.kind is FindingKind.LATE:
            await self.ledger.reconciliation.actions.taken_back(effect, now=_now())
        return progress

    def _undo_effect(
        self, finding: FindingRow, effect: OurEffect, record: ProviderRecord, provider: Provider
    ) -> Effect | None:
        declared = _undo_of(self.operations.get(effect.operation), effect.step)
        if declared is None:
            return None
        profile = provider.profile
        key = derived_key(
            workflow_id=f"reconciliation/{profile.provider}/{profile.account}",
            step=record.id,
            ordinal=0,
            purpose=Purpose.UNDO,
        )
        found = {"amount_minor": record.amount_minor, "currency": record.currency}
        forward = {name: value for name, value in found.items() if value is not None}
        request = declared.request(provider_reference=record.id, forward=forward)
        late = finding.kind is FindingKind.LATE
        return Effect(
            step=effect.step,
            action=declared.action,
            key=key,
            profile=profile,
            request={**request, "reference": key},
            purpose=Purpose.UNDO if late else Purpose.DUPLICATE,
            undoes=record.id,
        )

    async def _drive(self, action: Action, provider: Provider) -> Progress:
        """Make the undo's next moves, by the same table as every other effect."""
        for _ in range(MOVES_PER_TURN):
            effect = action.effect
            move = next_move(effect, now=_now())
            if move.kind is MoveKind.STOP or move.kind is MoveKind.PARK:
                return await self._ended(action)
            waited = (_now() - action.updated_at).total_seconds()
            if waited < move.after_seconds:
                return Later(move.after_seconds - waited)
            if move.kind is MoveKind.SEND:
                moved = await self._send(action, provider)
            else:
                moved = await self._look_up(action, provider)
            if moved is None:
                return Later()
            action = moved
        return Later()

    async def _send(self, action: Action, provider: Provider) -> Action | None:
        """Write down that the request may exist, then send it; None when another run does."""
        before, began = action.effect, time.monotonic()
        body = before.frozen_body or provider.freeze(before.action, before.request).decode()
        at = _now()
        unsure = StepAnswer(
            kind=Kind.UNKNOWN, at=at, sent_at=at, frozen_body=body, reason="It is being sent"
        )
        sent = await self._write(action, before.learns(unsure))
        if sent is None or time.monotonic() - began > LEAVES_WITHIN_SECONDS:
            return None
        answer = await send_body(
            provider, before.action, key=before.key, body=body, sent_at=before.sent_at or at
        )
        return await self._write(sent, before.learns(answer))

    async def _look_up(self, action: Action, provider: Provider) -> Action | None:
        effect = action.effect
        try:
            records = await provider.look_up(effect.action, key=effect.key)
        except Unavailable as error:
            answer = StepAnswer(kind=Kind.UNREADABLE, at=_now(), reason=error.reason)
        else:
            answer = StepAnswer(kind=Kind.NOT_FOUND, at=_now(), reason="It is not shown")
            if records:
                first = min(records, key=lambda record: (record.created_at, record.id))
                answer = StepAnswer(kind=Kind.CONFIRMED, at=_now(), provider_reference=first.id)
        return await self._write(action, effect.learns(answer))

    async def _write(self, action: Action, effect: Effect) -> Action | None:
        return await self.ledger.reconciliation.actions.move(
            action, effect, settled=False, now=_now()
        )

    async def _ended(self, action: Action) -> Progress:
        effect = action.effect
        if not action.settled:
            await self.ledger.reconciliation.actions.move(action, effect, settled=True, now=_now())
        if effect.state is EffectState.CONFIRMED:
            return Remedied(RemedyState.DONE, f"Taken back as {effect.provider_reference}, once")
        return Remedied(
            RemedyState.REFUSED, f"The undo is {effect.state.value}: {effect.reason or 'no reason'}"
        )


def undoable_actions(operations: Mapping[str, Operation], *, provider: str) -> frozenset[str]:
    """What operations do at a provider that they also declare how to take back."""
    return frozenset(
        step.action
        for operation in operations.values()
        if isinstance(operation, SagaOperation)
        for step in operation.steps
        if step.provider == provider and step.undo is not None
    )


def _undo_of(operation: Operation | None, step: str) -> Undo | None:
    if not isinstance(operation, SagaOperation):
        return None
    return next((known.undo for known in operation.steps if known.name == step), None)


def _has_another(
    effect: OurEffect, records: tuple[ProviderRecord, ...], record: ProviderRecord
) -> bool:
    """Whether the record that stays is there, live: the one we hold for the effect."""
    others = {found.id for found in records if found.id != record.id}
    if effect.provider_reference is None:
        return bool(others) and effect.outcome is Outcome.SUCCEEDED
    return effect.provider_reference in others


def _now() -> datetime:
    return datetime.now(UTC)
