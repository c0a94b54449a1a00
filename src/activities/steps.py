"""`step.perform` and `step.look_up`: one call to a provider, and what it told us, as a value.

Provider errors become answers here; they never fail an activity. What fails one (the ledger is
down, a bug) is retried by Temporal, safely: a keyed call by its key, others by their effect row.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog
from temporalio import activity

from activities.beating import beats
from activities.calls import CallsUnderWay
from ledger.ledger import Ledger
from ledger.sends import LEAVES_WITHIN, Permit
from operations.contracts import LOOK_UP_STEP, PERFORM_STEP, Kind, StepAnswer, StepCall
from operations.errors import Declined, EffectUnknown, KeyMismatch, ProviderError, Unavailable
from operations.failpoints import Failpoint, fail_at
from operations.guarantees import ProviderProfile
from operations.keys import Purpose
from providers.contract import Provider, ProviderRecord

STALE_SECONDS = LEAVES_WITHIN.total_seconds()
"""A request leaves this soon after we began, or not at all; see `ledger.sends`."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StepActivities:
    """The activities that call providers."""

    ledger: Ledger
    providers: Mapping[str, Provider]
    calls: CallsUnderWay = field(default_factory=CallsUnderWay)
    """Those of local activities."""

    @activity.defn(name=PERFORM_STEP)
    @beats
    async def perform(self, call: StepCall) -> StepAnswer:
        """Send one request, with its row committed first where that is asked for."""
        reset = activity.info().workflow_run_id != call.first_run_id
        provider = self._provider(call)
        if provider is None:
            answer = _not_configured(call, Kind.UNAVAILABLE)
            return answer.model_copy(update={"reset": reset})
        try:
            if call.recorded:
                answer = await self._perform_recorded(provider, call, reset=reset)
            else:
                answer = await self._perform_plainly(provider, call, reset=reset)
        except Declined as no:
            answer = StepAnswer(
                kind=Kind.DECLINED,
                at=_now(),
                code=no.code,
                reason=no.reason,
                rolled_back=True,
            )
        fail_at(Failpoint.STEP_ANSWERING)
        return answer.model_copy(update={"reset": reset})

    @activity.defn(name=LOOK_UP_STEP)
    async def look_up(self, call: StepCall) -> StepAnswer:
        """Ask the provider's books for an effect, once."""
        effect = call.effect
        provider = self._provider(call)
        if provider is None:
            return _not_configured(call, Kind.UNREADABLE)
        fail_at(Failpoint.LOOK_UP_LEAVING)
        try:
            records = await provider.look_up(effect.action, key=effect.key)
            fail_at(Failpoint.LOOK_UP_REPLIED)
        except ProviderError as error:
            return StepAnswer(
                kind=Kind.UNREADABLE,
                at=_now(),
                reason=error.reason,
                retry_after_seconds=error.retry_after_seconds,
            )
        if not records:
            name = effect.provider
            return StepAnswer(kind=Kind.NOT_FOUND, at=_now(), reason=f"{name} does not show it")
        return _found(records)

    async def _perform_recorded(
        self, provider: Provider, call: StepCall, *, reset: bool
    ) -> StepAnswer:
        body = call.effect.frozen_body or _freeze(provider, call)
        began = time.monotonic()
        permit = await self.ledger.sends.begin(call, body=body, now=_now(), reset=reset)
        if isinstance(permit, StepAnswer):
            return permit
        return await self._send_permitted(provider, call, permit, began=began)

    async def _send_permitted(
        self, provider: Provider, call: StepCall, permit: Permit, *, began: float
    ) -> StepAnswer:
        if time.monotonic() - began > STALE_SECONDS:
            answer = StepAnswer(kind=Kind.UNAVAILABLE, at=_now(), reason="The worker was stalled")
        else:
            undoing = call.effect.purpose is not Purpose.ACTION
            if undoing:
                fail_at(Failpoint.UNDO_LEAVING)
            answer = await send_body(
                provider,
                call.effect.action,
                key=call.effect.key,
                body=permit.frozen_body,
                sent_at=permit.sent_at,
            )
            if undoing:
                fail_at(Failpoint.UNDO_REPLIED)
        if answer.kind is not Kind.UNAVAILABLE:
            return answer
        await self.ledger.sends.not_applied(call, permit, reason=answer.reason or "", now=_now())
        # By an attempt that died with its worker.
        sent_before = permit.sends > call.effect.sends + 1
        return answer.model_copy(update={"sent_at": permit.sent_at}) if sent_before else answer

    async def _perform_plainly(
        self, provider: Provider, call: StepCall, *, reset: bool
    ) -> StepAnswer:
        """Without a row: the key alone makes this safe, unless an earlier history went further."""
        if reset:
            refusal = await self.ledger.sends.may_send(call, now=_now())
            if refusal is not None:
                return refusal
        if (_now() - activity.info().started_time).total_seconds() > STALE_SECONDS:
            return StepAnswer(kind=Kind.UNAVAILABLE, at=_now(), reason="The worker was stalled")
        body = call.effect.frozen_body or _freeze(provider, call)
        effect = call.effect
        with self.calls.one():
            return await send_body(
                provider,
                effect.action,
                key=effect.key,
                body=body,
                sent_at=effect.sent_at or _now(),
            )

    def _provider(self, call: StepCall) -> Provider | None:
        """The client of the provider, account and region that the operation is pinned to: in
        another one, keys and references begin anew (hazard 11). None when this worker has none."""
        provider = self.providers.get(call.profile.provider)
        if provider is None or _scope(provider.profile) != _scope(call.profile):
            return None
        return provider


def _scope(profile: ProviderProfile) -> tuple[str, str]:
    return profile.account, profile.region


def _not_configured(call: StepCall, kind: Kind) -> StepAnswer:
    """Nothing was sent, or asked. An answer and no error: a run that retries on this very worker
    would never find another one, and nobody would see why it waits."""
    pinned = call.profile
    _log.warning(
        "step.not_configured",
        claim=call.claim_id,
        provider=pinned.provider,
        account=pinned.account,
        region=pinned.region,
    )
    return StepAnswer(
        kind=kind,
        at=_now(),
        reason=f"This worker has no client for {pinned.provider} in account {pinned.account!r}, "
        f"region {pinned.region!r}: start one that has, or set the settings back",
    )


def _freeze(provider: Provider, call: StepCall) -> str:
    """The bytes to send. Raises Declined when the provider's interface cannot express the request:
    nothing has left, and trying again cannot help."""
    try:
        return provider.freeze(call.effect.action, call.effect.request).decode()
    except ValueError as error:
        raise Declined(f"It cannot be sent: {error}", code="not_expressible") from error


async def send_body(
    provider: Provider, action: str, *, key: str, body: str, sent_at: datetime
) -> StepAnswer:
    """Send `body` once and say what is known then. Never raises a ProviderError."""
    fail_at(Failpoint.SEND_LEAVING)
    try:
        record = await provider.perform(action, key=key, body=body.encode())
        fail_at(Failpoint.SEND_REPLIED)
    except Declined as no:
        return StepAnswer(
            kind=Kind.DECLINED, at=_now(), code=no.code, reason=no.reason, sent_at=sent_at
        )
    except Unavailable as error:
        return StepAnswer(
            kind=Kind.UNAVAILABLE,
            at=_now(),
            reason=error.reason,
            retry_after_seconds=error.retry_after_seconds,
        )
    except EffectUnknown as error:
        return StepAnswer(
            kind=Kind.MISMATCH if isinstance(error, KeyMismatch) else Kind.UNKNOWN,
            at=_now(),
            reason=error.reason,
            retry_after_seconds=error.retry_after_seconds,
            sent_at=sent_at,
            frozen_body=body,
        )
    return StepAnswer(kind=Kind.CONFIRMED, at=_now(), provider_reference=record.id, sent_at=sent_at)


def _found(records: tuple[ProviderRecord, ...]) -> StepAnswer:
    """The oldest record is the effect; all others are duplicates of it."""
    first, *others = sorted(records, key=lambda record: (record.created_at, record.id))
    found = {"amount_minor": first.amount_minor, "currency": first.currency}
    return StepAnswer(
        kind=Kind.CONFIRMED,
        at=_now(),
        provider_reference=first.id,
        duplicates=tuple(record.id for record in others),
        found={name: value for name, value in found.items() if value is not None},
        reason="Its answer was lost; it was found in the provider's books",
    )


def _now() -> datetime:
    return datetime.now(UTC)
