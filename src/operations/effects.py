"""One effect at one provider: what is known of it, and how each answer adds to that. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from operations.contracts import Decision, EffectRecord, Kind, StepAnswer
from operations.guarantees import Guarantee, OnUnknown, ProviderProfile
from operations.keys import Purpose
from operations.states import EffectState, Verdict, may_follow

ABSENCES_NEEDED = 2
"""How often a record has to be missing past the horizon before it counts as absent."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a run knows of one effect. Every change makes a new value."""

    step: str
    action: str
    key: str
    profile: ProviderProfile
    request: dict[str, Any]
    purpose: Purpose = Purpose.ACTION
    ordinal: int = 0
    on_unknown: OnUnknown = OnUnknown.PARK
    undoes: str | None = None
    """The provider's reference of what this effect takes back."""
    state: EffectState = EffectState.PLANNED
    provider_reference: str | None = None
    duplicates: tuple[str, ...] = ()
    code: str | None = None
    reason: str | None = None
    frozen_body: str | None = None
    sent_at: datetime | None = None
    """When its first request left, or may have left."""
    last_sent_at: datetime | None = None
    """When its latest request left: the horizon counts from here."""
    sends: int = 0
    """Requests that may have been applied."""
    failures: int = 0
    """Calls in a row that told us nothing new: the pauses grow with them."""
    troubled_since: datetime | None = None
    absences: int = 0
    """Look-ups in vain past the horizon."""
    refused: bool = False
    """It got a definite no: the key is spent on that answer (hazard 4)."""
    mismatch: bool = False
    """The provider holds other content under our key: sending again cannot help."""
    retry_after_seconds: float | None = None
    tombstone: bool = False

    @property
    def identity(self) -> tuple[str, Purpose, int]:
        """What tells it from the operation's other effects."""
        return (self.step, self.purpose, self.ordinal)

    @property
    def is_undecided(self) -> bool:
        """Whether a verdict would tell something that is not known yet."""
        return self.state in {EffectState.SENT, EffectState.UNKNOWN, EffectState.PARKED}

    @property
    def needs_resend(self) -> bool:
        """Whether only a repeated request can tell what the first one did."""
        repeatable = self.profile.guarantee in {Guarantee.KEYED, Guarantee.NATURAL}
        return self.state is EffectState.UNKNOWN and repeatable and not self.profile.can_look_up

    def horizon(self) -> datetime | None:
        """From when on "not found" counts: the latest send plus the provider's horizon."""
        if self.last_sent_at is None:
            return None
        return self.last_sent_at + timedelta(seconds=self.profile.lookup_horizon_seconds)

    def becomes(self, state: EffectState, **changes: Any) -> "Effect":
        """This effect in another state. Raises ValueError for a step that the states forbid."""
        if not may_follow(self.state, state):
            raise ValueError(f"{self.step}: {self.state} cannot become {state}")
        return replace(self, state=state, **changes)

    def learns(self, answer: StepAnswer) -> "Effect":
        """What is known after `answer`."""
        known = replace(
            self,
            reason=answer.reason,
            code=answer.code,
            retry_after_seconds=answer.retry_after_seconds,
            frozen_body=self.frozen_body or answer.frozen_body,
        )
        match answer.kind:
            case Kind.CONFIRMED:
                return known._sent(answer).becomes(
                    EffectState.CONFIRMED,
                    provider_reference=answer.provider_reference,
                    duplicates=answer.duplicates,
                    request={**answer.found, **self.request},
                    failures=0,
                )
            case Kind.DECLINED:
                return known._sent(answer).becomes(EffectState.REJECTED, refused=True, failures=0)
            case Kind.UNAVAILABLE:
                return known._not_applied(answer)
            case Kind.UNKNOWN | Kind.MISMATCH:
                mismatch = self.mismatch or answer.kind is Kind.MISMATCH
                return (
                    known._sent(answer)
                    ._troubled(answer.at)
                    .becomes(EffectState.UNKNOWN, mismatch=mismatch, absences=0)
                )
            case Kind.NOT_FOUND:
                return known._not_found(answer)
            case Kind.UNREADABLE:
                return known._troubled(answer.at)
            case Kind.FENCED:
                return replace(known, tombstone=True)
            case _:
                assert_never(answer.kind)

    def decided(self, decision: Decision) -> "Effect":
        """What is known after a verdict. `abandon` leaves the effect as it is: the run goes on."""
        fresh = replace(self, failures=0, troubled_since=None, absences=0, reason=decision.evidence)
        match decision.verdict:
            case Verdict.CONFIRMED:
                return fresh.becomes(
                    EffectState.CONFIRMED, provider_reference=decision.provider_reference
                )
            case Verdict.ABSENT:
                return fresh.becomes(EffectState.ABSENT)
            case Verdict.RETRY:
                return fresh._tried_again()
            case Verdict.ABANDON:
                return fresh
            case _:
                assert_never(decision.verdict)

    @classmethod
    def recalled(
        cls, row: EffectRecord, *, profile: ProviderProfile, on_unknown: OnUnknown
    ) -> "Effect":
        """The effect that an earlier run recorded. What it had sent counts as unknown."""
        state = EffectState.UNKNOWN if row.state is EffectState.SENT else row.state
        return cls(
            step=row.step,
            action=row.action,
            key=row.key,
            profile=profile,
            request=row.request,
            purpose=row.purpose,
            ordinal=row.ordinal,
            on_unknown=on_unknown,
            undoes=row.undoes,
            state=state,
            provider_reference=row.provider_reference,
            reason=row.reason,
            frozen_body=row.frozen_body,
            sent_at=row.sent_at,
            last_sent_at=row.last_sent_at,
            sends=row.sends,
            tombstone=row.tombstone,
        )

    def record(self) -> EffectRecord:
        """Its row in the ledger."""
        return EffectRecord(
            step=self.step,
            purpose=self.purpose,
            ordinal=self.ordinal,
            provider=self.profile.provider,
            account=self.profile.account,
            region=self.profile.region,
            guarantee=self.profile.guarantee,
            action=self.action,
            key=self.key,
            state=self.state,
            request=self.request,
            frozen_body=self.frozen_body,
            provider_reference=self.provider_reference,
            undoes=self.undoes,
            sends=self.sends,
            sent_at=self.sent_at,
            last_sent_at=self.last_sent_at,
            reason=self.reason,
            tombstone=self.tombstone,
        )

    def _sent(self, answer: StepAnswer) -> "Effect":
        """Count the send that `answer` speaks of; a look-up's answer speaks of none."""
        if answer.sent_at is None:
            return self
        return replace(
            self,
            sent_at=self.sent_at or answer.sent_at,
            last_sent_at=answer.at,
            sends=self.sends + 1,
        )

    def _not_applied(self, answer: StepAnswer) -> "Effect":
        """Nothing happened this time. What an earlier send did stays unknown."""
        troubled = self._troubled(answer.at)
        return replace(troubled, state=EffectState.PLANNED) if self.sends == 0 else troubled

    def _not_found(self, answer: StepAnswer) -> "Effect":
        horizon = self.horizon()
        if horizon is None or answer.at < horizon:
            return self._troubled(answer.at)
        absences = self.absences + 1
        seen = replace(self, absences=absences, failures=0)
        return seen if absences < ABSENCES_NEEDED else seen.becomes(EffectState.ABSENT)

    def _troubled(self, at: datetime) -> "Effect":
        return replace(self, failures=self.failures + 1, troubled_since=self.troubled_since or at)

    def _tried_again(self) -> "Effect":
        """An operator's `retry`: nothing is known that was not known before."""
        if self.sends == 0 and self.profile.guarantee is not Guarantee.BLIND:
            return replace(self, state=EffectState.PLANNED)
        return replace(self, state=EffectState.UNKNOWN)
