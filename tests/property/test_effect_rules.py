"""Whatever a provider does, the pure rules never make a second effect of one wish.

A machine drives `next_move`, `learns` and `decided` against a small model of a provider: it commits
or not, at once or later, its answers get lost, its books lag behind, its keys end. An honest one
keeps what it documents; a dishonest one commits after its own horizon.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from operations.contracts import Decision, Kind, StepAnswer
from operations.decisions import (
    PAUSE_LIMIT_SECONDS,
    RETRY_AFTER_LIMIT_SECONDS,
    SENDS_LIMIT,
    Move,
    MoveKind,
    next_move,
)
from operations.effects import Effect
from operations.guarantees import Guarantee, OnUnknown, ProviderProfile
from operations.keys import Purpose
from operations.states import EffectState, Verdict

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "ts1_key"
KEY_SECONDS = 900.0
RESEND_SECONDS = 800.0
HORIZON_SECONDS = 20.0
PATIENCE_SECONDS = 3_000.0
MOVES_MAX = 40
"""More than enough for every path to its end: the pauses before the horizon are the longest."""


def instant(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


class Fault(StrEnum):
    """What happens to one request."""

    NONE = "none"
    DECLINE = "decline"
    UNAVAILABLE = "unavailable"
    BUSY = "busy"
    LOST_BEFORE = "lost_before"
    LOST_AFTER = "lost_after"
    LATE = "late"


@dataclass
class Partner:
    """A provider: its books, its memory of keys, and what is still on its way into the books."""

    guarantee: Guarantee
    honest: bool
    commits: list[float] = field(default_factory=list[float])
    """When each record becomes visible, oldest first."""
    pending: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Late commits: when, and when visible."""
    key_since: float | None = None
    refused: bool = False

    def advance(self, now: float) -> None:
        """Let what is due happen."""
        for due in sorted(self.pending):
            if due[0] <= now:
                self.pending.remove(due)
                self._commit(at=due[0], visible_at=due[1])

    def receive(self, fault: Fault, *, now: float, delay: float) -> Kind:
        """One request, at `now`; `delay` is how late a late one is, its books' lag included."""
        if fault in {Fault.UNAVAILABLE, Fault.BUSY}:
            return Kind.UNAVAILABLE
        if fault is Fault.LOST_BEFORE:
            return Kind.UNKNOWN
        if self.guarantee is Guarantee.KEYED and self._remembers(now):
            if self.pending:
                return Kind.UNKNOWN
            if fault is Fault.DECLINE and not self.commits:
                self.refused = True
            if self.refused:
                return Kind.DECLINED
        elif fault is Fault.DECLINE:
            self._remember(now)
            self.refused = True
            return Kind.DECLINED
        self._remember(now)
        if fault is Fault.LATE:
            self.pending.append((now + delay / 2, now + delay))
            return Kind.UNKNOWN
        self._commit(at=now, visible_at=now + (delay if self.honest else 0.0))
        return Kind.UNKNOWN if fault is Fault.LOST_AFTER else Kind.CONFIRMED

    def visible(self, now: float) -> int:
        """How many records its books show."""
        return sum(seen <= now for seen in self.commits)

    def _remembers(self, now: float) -> bool:
        return self.key_since is not None and now - self.key_since < KEY_SECONDS

    def _remember(self, now: float) -> None:
        if not self._remembers(now):
            self.key_since = now
            self.refused = False

    def _commit(self, *, at: float, visible_at: float) -> None:
        keyed = self.guarantee is Guarantee.KEYED and self._remembers(at)
        if self.commits and (keyed or self.guarantee is Guarantee.NATURAL):
            return
        self.commits.append(visible_at)


LOST = [Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.LATE]
faults = st.sampled_from([*Fault, *LOST])
delays = st.floats(0.0, HORIZON_SECONDS * 0.99)


class OneEffect(RuleBasedStateMachine):
    """One effect at one provider, from its planning to its end."""

    @initialize(
        guarantee=st.sampled_from(Guarantee),
        on_unknown=st.sampled_from(OnUnknown),
        purpose=st.sampled_from([Purpose.ACTION, Purpose.UNDO]),
        can_look_up=st.booleans(),
        honest=st.sampled_from([True, True, False]),
    )
    def plan(
        self,
        guarantee: Guarantee,
        on_unknown: OnUnknown,
        purpose: Purpose,
        can_look_up: bool,
        honest: bool,
    ) -> None:
        profile = ProviderProfile(
            provider="partner",
            guarantee=guarantee,
            can_look_up=guarantee is Guarantee.QUERYABLE or can_look_up,
            key_lifetime_seconds=KEY_SECONDS,
            key_margin_seconds=KEY_SECONDS - RESEND_SECONDS,
            lookup_horizon_seconds=HORIZON_SECONDS,
            patience_seconds=PATIENCE_SECONDS,
        )
        self.now = 0.0
        self.partner = Partner(guarantee, honest)
        self.effect = Effect(
            step="charge",
            action="charge",
            key=KEY,
            profile=profile,
            request={"amount_minor": 2400, "reference": KEY},
            purpose=purpose,
            on_unknown=on_unknown,
        )
        self.stopping = False
        self.received = 0
        self.first_received: float | None = None
        self.last_received = 0.0
        self.vouched = 0
        self.seen_absent: list[float] = []
        self.not_before = 0.0
        self.attempt_died = False

    # What the run does

    @rule(fault=faults, delay=delays, beyond=st.floats(0.0, 200.0))
    def move(self, fault: Fault, delay: float, beyond: float) -> None:
        self._make(self._next(), fault, delay if self.partner.honest else delay + beyond)

    @rule(fault=faults, delay=delays)
    @precondition(lambda self: self._next().kind is MoveKind.SEND)
    def move_and_lose_the_worker(self, fault: Fault, delay: float) -> None:
        """The row says SENT; the answer is lost with the worker, and a new run reads the row."""
        if self._suspects_itself():
            return
        self._wait(self._next().after_seconds)
        self._receive(fault, delay)
        first = instant(0.0 if self._is_plain() else self.now)
        row = self.effect.record().model_copy(
            update={
                "state": EffectState.SENT,
                "sends": self.effect.sends + 1,
                "sent_at": self.effect.sent_at or first,
                "last_sent_at": instant(self.now),
            }
        )
        self.effect = Effect.recalled(
            row, profile=self.effect.profile, on_unknown=self.effect.on_unknown
        )
        self.not_before = 0.0

    @rule(first=faults, second=faults, delay=delays, apart=st.sampled_from([1.0, 60.0, 900.0]))
    @precondition(lambda self: self._is_plain() and self._next().kind is MoveKind.SEND)
    def lose_the_worker_before_anything_was_recorded(
        self, first: Fault, second: Fault, delay: float, apart: float
    ) -> None:
        """A fast call without a row: the attempt after it knows nothing of it."""
        if self._suspects_itself():
            return
        self._receive(first, delay)
        self.attempt_died = True
        self._wait(apart)
        self._learn(self._send(second, delay))

    @rule()
    @precondition(lambda self: self._next().kind is MoveKind.LOOK_UP)
    def look_until_something_is_known(self) -> None:
        for _ in range(12):
            if self._next().kind is MoveKind.LOOK_UP:
                self._make(self._next(), Fault.NONE, 0.0)

    @rule(seconds=st.sampled_from([0.1, 5.0, 30.0, 400.0, 3_000.0]))
    def let_time_pass(self, seconds: float) -> None:
        before = self.effect
        self._wait(seconds)
        assert self.effect is before
        if before.state is EffectState.UNKNOWN:
            assert next_move(before, now=instant(self.now)).kind is not MoveKind.STOP or (
                before.profile.guarantee is Guarantee.BLIND
                and before.on_unknown is not OnUnknown.PARK
            )

    # What people do

    @rule()
    @precondition(lambda self: self.effect.purpose is Purpose.ACTION)
    def cancel(self) -> None:
        self.stopping = True

    @rule()
    @precondition(lambda self: self.effect.purpose is Purpose.ACTION)
    def begin_to_compensate(self) -> None:
        self.stopping = True
        if not self.effect.needs_resend:
            self.effect = replace(self.effect, tombstone=True)

    @rule(verdict=st.sampled_from([Verdict.CONFIRMED, Verdict.ABSENT, Verdict.RETRY]))
    @precondition(lambda self: self.effect.is_undecided)
    def decide_truthfully(self, verdict: Verdict) -> None:
        exists, may_come = bool(self.partner.commits), bool(self.partner.pending)
        if verdict is Verdict.CONFIRMED and not exists:
            return
        if verdict is Verdict.ABSENT and (exists or may_come):
            return
        self.vouched += verdict is Verdict.ABSENT
        self.not_before = 0.0
        self.effect = self.effect.decided(
            Decision(step="charge", verdict=verdict, provider_reference="ch_0", evidence="asked")
        )

    # What must hold

    @invariant()
    def one_wish_has_one_effect(self) -> None:
        guarantee, count = self.partner.guarantee, len(self.partner.commits)
        if guarantee is not Guarantee.BLIND and self.partner.honest:
            assert count <= 1
        assert count <= self.received
        assert count <= (1 + self.vouched) * SENDS_LIMIT

    @invariant()
    def a_blind_payment_is_sent_once_unless_a_person_says_absent(self) -> None:
        if self.partner.guarantee is Guarantee.BLIND:
            accepts = self.effect.on_unknown is OnUnknown.ACCEPT_DUPLICATES
            again = self.effect.profile.blind_resends if accepts else 0
            assert self.received <= (1 + again) * (1 + self.vouched)

    @invariant()
    def what_is_said_is_true(self) -> None:
        state, partner = self.effect.state, self.partner
        if state is EffectState.CONFIRMED:
            assert partner.commits
        if state is EffectState.PLANNED and not self.attempt_died:
            assert self.received == 0
        if state in {EffectState.ABSENT, EffectState.REJECTED} and partner.honest:
            assert not partner.commits
            assert not partner.pending

    @invariant()
    def absent_was_seen_twice_past_the_horizon_or_said_by_a_person(self) -> None:
        if self.effect.state is EffectState.ABSENT and not self.effect.is_vouched_absent:
            past = [at for at in self.seen_absent if at >= self.last_received + HORIZON_SECONDS]
            assert len(past) >= 2

    def teardown(self) -> None:
        """Once the provider behaves, everything ends: done, or with a person, by the table."""
        if not hasattr(self, "effect"):
            return
        for _ in range(MOVES_MAX):
            move = self._next()
            if move.kind in {MoveKind.STOP, MoveKind.PARK}:
                self._is_an_end(move)
                break
            self._make(move, Fault.NONE, 0.0)
            self.one_wish_has_one_effect()
            self.what_is_said_is_true()
        else:
            raise AssertionError(f"still moving after {MOVES_MAX} moves: {self.effect}")
        self._duplicates_can_be_seen()

    def _is_an_end(self, move: Move) -> None:
        """Nothing that exists is called nothing: what stops is known, or declared unknowable."""
        state, profile = self.effect.state, self.effect.profile
        if move.kind is MoveKind.PARK:
            return
        if state is EffectState.UNKNOWN:
            assert profile.guarantee is Guarantee.BLIND
            assert self.effect.on_unknown is not OnUnknown.PARK
        elif state is not EffectState.CONFIRMED and self.partner.honest:
            assert not self.partner.commits
            assert not self.partner.pending

    def _duplicates_can_be_seen(self) -> None:
        """What a broken promise made twice stands under one reference, and is found there."""
        if len(self.partner.commits) > 1 and self.effect.profile.can_look_up:
            found = replace(self.effect, state=EffectState.UNKNOWN).learns(self._books(1e9))
            assert len(found.duplicates) == len(self.partner.commits) - 1

    # How a move is made, as the settler and the activities make it

    def _next(self) -> Move:
        return next_move(self.effect, now=instant(self.now), stopping=self.stopping)

    def _is_plain(self) -> bool:
        """Whether the call is the fast one, without a row before it."""
        repeatable = self.partner.guarantee in {Guarantee.KEYED, Guarantee.NATURAL}
        first = self.effect.never_sent and self.effect.failures == 0
        return repeatable and first and self.effect.purpose is Purpose.ACTION

    def _suspects_itself(self) -> bool:
        """A fast call so late that an attempt before it may have used a key that has ended."""
        return self._is_plain() and self.now >= RESEND_SECONDS

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        self.partner.advance(self.now)

    def _make(self, move: Move, fault: Fault, delay: float) -> None:
        limit = max(PAUSE_LIMIT_SECONDS, RETRY_AFTER_LIMIT_SECONDS)
        assert 0.0 <= move.after_seconds <= limit
        match move.kind:
            case MoveKind.STOP:
                return
            case MoveKind.PARK:
                self.effect = self.effect.becomes(EffectState.PARKED)
                return
            case MoveKind.SEND | MoveKind.LOOK_UP:
                self._wait(move.after_seconds)
        assert self.now >= self.not_before, "Retry-After was not honoured"
        if move.kind is MoveKind.SEND:
            self._learn(self._send(fault, delay))
        elif fault in {Fault.UNAVAILABLE, Fault.BUSY}:
            self._learn(self._say(Kind.UNREADABLE, fault))
        else:
            self._learn(self._books(self.now))

    def _send(self, fault: Fault, delay: float) -> StepAnswer:
        plain = self._is_plain()
        first = 0.0 if plain else self.now
        if self._suspects_itself():
            return self._say(Kind.UNKNOWN, fault, sent_at=instant(0.0))
        kind = self._receive(fault, delay)
        applied = kind is not Kind.UNAVAILABLE or (plain and self.attempt_died)
        return self._say(kind, fault, sent_at=instant(first) if applied else None)

    def _receive(self, fault: Fault, delay: float) -> Kind:
        """A request leaves. What may never happen would happen here."""
        assert not self.effect.tombstone
        assert not (
            self.stopping and self.effect.state in {EffectState.PLANNED, EffectState.ABSENT}
        )
        if self.partner.guarantee is Guarantee.KEYED and self.first_received is not None:
            in_time = self.now - self.first_received < RESEND_SECONDS
            assert in_time or self.effect.is_vouched_absent
        if self.effect.is_vouched_absent:
            self.first_received = None
        kind = self.partner.receive(fault, now=self.now, delay=delay)
        if kind is not Kind.UNAVAILABLE:
            self.received += 1
            self.last_received = self.now
            self.seen_absent.clear()
            if self.first_received is None:
                self.first_received = self.now
        return kind

    def _books(self, now: float) -> StepAnswer:
        count = self.partner.visible(now)
        if not count:
            self.seen_absent.append(now)
            return self._say(Kind.NOT_FOUND, Fault.NONE)
        others = tuple(f"ch_{number}" for number in range(1, count))
        return self._say(Kind.CONFIRMED, Fault.NONE, duplicates=others)

    def _say(self, kind: Kind, fault: Fault, **more: Any) -> StepAnswer:
        asked = 600.0 if fault is Fault.BUSY and kind is not Kind.CONFIRMED else None
        found = "ch_0" if kind is Kind.CONFIRMED else None
        return StepAnswer(
            kind=kind,
            at=instant(self.now),
            provider_reference=found,
            retry_after_seconds=asked,
            frozen_body="{}",
            **more,
        )

    def _learn(self, answer: StepAnswer) -> None:
        before, self.effect = self.effect, self.effect.learns(answer)
        self.not_before = self.now + (answer.retry_after_seconds or 0.0)
        if before.state in {EffectState.UNKNOWN, EffectState.ABSENT}:
            assert self.effect.state is not EffectState.PLANNED
        if answer.kind is Kind.UNREADABLE or answer.kind is Kind.UNAVAILABLE:
            assert self.effect.failures == before.failures + 1


OneEffect.TestCase.settings = settings(
    derandomize=True, database=None, deadline=None, max_examples=200, stateful_step_count=20
)
test_one_effect = OneEffect.TestCase
