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
    looked: bool = False
    """Whether the books were asked, or tried, since the latest request left."""
    absences: int = 0
    """Look-ups in vain past the horizon."""
    refused: bool = False
    """It got a definite no: the key is spent on that answer (hazard 4)."""
    repeat_refused: bool = False
    """A repeat got a definite no, which says nothing of the request before it."""
    mismatch: bool = False
    """The provider holds other content under our key: sending again cannot help."""
    vouched_sends: int | None = None
    """How many sends a person has said left nothing: limits count from there."""
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
    def never_sent(self) -> bool:
        """Whether it is certain that no request has left: what is suspected has a `sent_at`."""
        return self.sends == 0 and self.sent_at is None

    @property
    def is_repeatable(self) -> bool:
        """Whether the provider makes a repeat harmless, and we have what would be repeated.

        A step that is only suspected to have been performed by an earlier run has no request.
        """
        known = self.frozen_body is not None or bool(self.request.keys() - {"reference"})
        harmless = self.profile.guarantee in {Guarantee.KEYED, Guarantee.NATURAL}
        return harmless and known and not self.mismatch and not self.repeat_refused

    @property
    def needs_resend(self) -> bool:
        """Whether only a repeated request can tell what the first one did."""
        unknown = self.state is EffectState.UNKNOWN
        return unknown and self.is_repeatable and not self.profile.can_look_up

    @property
    def is_vouched_absent(self) -> bool:
        """Whether a person said that nothing is there, and nothing has been sent since."""
        return self.state is EffectState.ABSENT and self.vouched_sends == self.sends

    @property
    def may_be_twice(self) -> bool:
        """Whether it was sent again after it had proved absent: its first request may still come,
        at a provider that breaks the promise of its own horizon."""
        sent_again = self.state is EffectState.CONFIRMED and self.sends > 1
        return sent_again and self.profile.guarantee is Guarantee.QUERYABLE

    def seen_again(self, answer: StepAnswer) -> "Effect":
        """This confirmed effect, with what else the books show under its reference."""
        if answer.kind is not Kind.CONFIRMED or answer.provider_reference is None:
            return self
        found = (answer.provider_reference, *answer.duplicates)
        others = tuple(reference for reference in found if reference != self.provider_reference)
        return replace(self, duplicates=others)

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
                return known._confirmed(answer)
            case Kind.DECLINED:
                return known._declined(answer)
            case Kind.UNAVAILABLE:
                return known._not_applied(answer)
            case Kind.UNKNOWN | Kind.MISMATCH:
                mismatch = self.mismatch or answer.kind is Kind.MISMATCH
                return (
                    replace(known, looked=False, absences=0, refused=False, mismatch=mismatch)
                    ._sent(answer)
                    ._troubled(answer.at)
                    .becomes(EffectState.UNKNOWN)
                )
            case Kind.NOT_FOUND:
                return replace(known, looked=True)._not_found(answer)
            case Kind.UNREADABLE:
                return replace(known, looked=True)._troubled(answer.at)
            case Kind.FENCED:
                return replace(known, tombstone=True)
            case _:
                assert_never(answer.kind)

    def decided(self, decision: Decision) -> "Effect":
        """What is known after a verdict. `abandon` leaves the effect as it is: the run goes on."""
        fresh = replace(
            self,
            failures=0,
            troubled_since=None,
            absences=0,
            retry_after_seconds=None,
            reason=decision.evidence,
        )
        match decision.verdict:
            case Verdict.CONFIRMED:
                return fresh.becomes(
                    EffectState.CONFIRMED, provider_reference=decision.provider_reference
                )
            case Verdict.ABSENT:
                return fresh.becomes(
                    EffectState.ABSENT, vouched_sends=self.sends, repeat_refused=False
                )
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

    def _confirmed(self, answer: StepAnswer) -> "Effect":
        """It exists. Where the books show something else than we asked for, a person looks."""
        sent = self._sent(answer)
        doubt = self._doubt(answer)
        if doubt is not None:
            return sent.becomes(EffectState.PARKED, reason=doubt)
        return sent.becomes(
            EffectState.CONFIRMED,
            provider_reference=answer.provider_reference,
            duplicates=answer.duplicates,
            request={**answer.found, **self.request},
            failures=0,
        )

    def _doubt(self, answer: StepAnswer) -> str | None:
        """Why a record under our reference is not plainly our effect, and our only one."""
        shared = [name for name in ("amount_minor", "currency") if name in answer.found]
        compared = [name for name in shared if name in self.request]
        found = f"{self.profile.provider} shows {answer.provider_reference}"
        for name in compared:
            if answer.found[name] != self.request[name]:
                return f"{found} with {name} {answer.found[name]}, not {self.request[name]}"
        if self.mismatch and not compared:
            return f"{found} under our reference, which it had said holds other content"
        if self.undoes is not None and "amount_minor" in self.request and answer.duplicates:
            return f"{found} and {', '.join(answer.duplicates)}: what was given back twice stays so"
        return None

    def _declined(self, answer: StepAnswer) -> "Effect":
        """A definite no. It speaks for the requests before it only when the provider itself said
        it under the same key: our own refusal to send has no `sent_at`."""
        for_all = self.profile.guarantee is Guarantee.KEYED and answer.sent_at is not None
        sent = self._sent(answer)
        if self.state is EffectState.UNKNOWN and not for_all:
            return sent._troubled(answer.at).becomes(
                EffectState.UNKNOWN, repeat_refused=True, absences=0
            )
        return sent.becomes(EffectState.REJECTED, refused=True, failures=0)

    def _not_applied(self, answer: StepAnswer) -> "Effect":
        """Nothing happened this time. What an earlier send did stays unknown.

        An answer with `sent_at` comes from a call without a row that cannot rule out an attempt
        before it: one that died with its worker. Then that one may have been applied.
        """
        troubled = self._troubled(answer.at)
        if self.never_sent and answer.sent_at is not None:
            return troubled._sent(answer).becomes(EffectState.UNKNOWN)
        return replace(troubled, state=EffectState.PLANNED) if self.never_sent else troubled

    def _not_found(self, answer: StepAnswer) -> "Effect":
        horizon = self.horizon()
        if horizon is None or answer.at < horizon:
            return self._troubled(answer.at)
        seen = replace(self, absences=self.absences + 1, failures=0)
        if seen.absences < ABSENCES_NEEDED:
            return seen
        if self.repeat_refused:
            return seen.becomes(EffectState.REJECTED, refused=True)
        return seen.becomes(EffectState.ABSENT, troubled_since=None)

    def _troubled(self, at: datetime) -> "Effect":
        return replace(self, failures=self.failures + 1, troubled_since=self.troubled_since or at)

    def _tried_again(self) -> "Effect":
        """An operator's `retry`: nothing is known that was not known before."""
        return self.becomes(EffectState.PLANNED if self.never_sent else EffectState.UNKNOWN)
