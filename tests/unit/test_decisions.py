"""The decision table of `docs/guarantees.md`, one row per case: what is done next, and why."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from operations.contracts import Decision, Kind, StepAnswer
from operations.decisions import (
    PARK,
    PAUSE_LIMIT_SECONDS,
    RETRY_AFTER_LIMIT_SECONDS,
    SENDS_LIMIT,
    STOP,
    Move,
    MoveKind,
    next_move,
)
from operations.effects import Effect
from operations.guarantees import Guarantee, OnUnknown, ProviderProfile
from operations.keys import Purpose
from operations.states import EffectState, Verdict

T0 = datetime(2026, 1, 1, tzinfo=UTC)
KEY_SECONDS = 900.0
MARGIN_SECONDS = 100.0
HORIZON_SECONDS = 20.0
INTERVAL_SECONDS = 2.0
PATIENCE_SECONDS = 5_000.0


def profile(guarantee: Guarantee, *, can_look_up: bool) -> ProviderProfile:
    return ProviderProfile(
        provider="partner",
        guarantee=guarantee,
        can_look_up=can_look_up,
        key_lifetime_seconds=KEY_SECONDS,
        key_margin_seconds=MARGIN_SECONDS,
        lookup_horizon_seconds=HORIZON_SECONDS,
        lookup_interval_seconds=INTERVAL_SECONDS,
        patience_seconds=PATIENCE_SECONDS,
        blind_resends=2,
    )


KEYED = profile(Guarantee.KEYED, can_look_up=True)
KEYED_UNREADABLE = profile(Guarantee.KEYED, can_look_up=False)
NATURAL = profile(Guarantee.NATURAL, can_look_up=True)
NATURAL_UNREADABLE = profile(Guarantee.NATURAL, can_look_up=False)
QUERYABLE = profile(Guarantee.QUERYABLE, can_look_up=True)
BLIND = profile(Guarantee.BLIND, can_look_up=False)
EVERYBODY = (KEYED, KEYED_UNREADABLE, NATURAL, NATURAL_UNREADABLE, QUERYABLE, BLIND)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def effect(promise: ProviderProfile, **known: Any) -> Effect:
    """An effect about which nothing is known but `known`."""
    key = "ts1_key"
    request = {"amount_minor": 2400, "currency": "EUR", "reference": key}
    return replace(
        Effect(step="charge", action="charge", key=key, profile=promise, request=request), **known
    )


def sent(promise: ProviderProfile, **known: Any) -> Effect:
    """An effect whose only request left at T0, and whose answer was lost at once."""
    lost = StepAnswer(kind=Kind.UNKNOWN, at=T0, sent_at=T0, frozen_body="{}", reason="reset")
    return replace(effect(promise).learns(lost), **known)


def missing(seconds: float) -> StepAnswer:
    return StepAnswer(kind=Kind.NOT_FOUND, at=at(seconds))


def suspected(promise: ProviderProfile, **known: Any) -> Effect:
    """A step that an earlier run may have performed: neither its row nor its request is known."""
    maybe = {"state": EffectState.UNKNOWN, "sent_at": T0, "last_sent_at": T0}
    return effect(promise, request={"reference": "ts1_key"}, **maybe, **known)


class Row(NamedTuple):
    """One line of the table."""

    truth: str
    effect: Effect
    seconds: float
    """Since the first request left."""
    expected: MoveKind
    stopping: bool = False


UNKNOWN_AFTER_KEY = KEY_SECONDS - MARGIN_SECONDS
ROWS = [
    # A key protects: repeat under it, for as long as the provider surely remembers it.
    Row("a_keyed_unknown_is_looked_up_before_it_is_repeated", sent(KEYED), 1, MoveKind.LOOK_UP),
    Row("a_keyed_unknown_is_repeated", sent(KEYED, looked=True), 1, MoveKind.SEND),
    Row("a_keyed_unknown_without_books_is_repeated", sent(KEYED_UNREADABLE), 1, MoveKind.SEND),
    Row(
        "a_key_near_its_end_is_not_used_again",
        sent(KEYED),
        UNKNOWN_AFTER_KEY,
        MoveKind.LOOK_UP,
    ),
    Row(
        "a_key_that_would_end_during_the_pause_is_not_used_again",
        sent(KEYED, retry_after_seconds=60.0),
        UNKNOWN_AFTER_KEY - 30,
        MoveKind.LOOK_UP,
    ),
    Row(
        "a_key_near_its_end_and_no_books_is_for_a_person",
        sent(KEYED_UNREADABLE),
        UNKNOWN_AFTER_KEY,
        MoveKind.PARK,
    ),
    Row(
        "other_content_under_our_key_is_looked_up", sent(KEYED, mismatch=True), 1, MoveKind.LOOK_UP
    ),
    Row(
        "other_content_under_our_key_and_no_books_is_for_a_person",
        sent(KEYED_UNREADABLE, mismatch=True),
        1,
        MoveKind.PARK,
    ),
    Row(
        "a_keyed_absent_within_the_lifetime_is_sent_again",
        sent(KEYED, state=EffectState.ABSENT),
        60,
        MoveKind.SEND,
    ),
    Row(
        "a_keyed_absent_past_the_lifetime_is_for_a_person",
        sent(KEYED, state=EffectState.ABSENT),
        UNKNOWN_AFTER_KEY,
        MoveKind.PARK,
    ),
    Row("a_cancelled_keyed_unknown_is_looked_up", sent(KEYED), 1, MoveKind.LOOK_UP, stopping=True),
    Row(
        "a_cancelled_keyed_unknown_without_books_can_only_be_repeated",
        sent(KEYED_UNREADABLE),
        1,
        MoveKind.SEND,
        stopping=True,
    ),
    Row(
        "a_suspected_step_is_never_sent_for_we_have_no_request",
        suspected(KEYED_UNREADABLE),
        1,
        MoveKind.PARK,
        stopping=True,
    ),
    Row(
        "a_keyed_unknown_is_not_repeated_past_our_patience",
        sent(
            profile(Guarantee.KEYED, can_look_up=True).model_copy(
                update={"key_lifetime_seconds": 1e6}
            )
        ),
        PATIENCE_SECONDS,
        MoveKind.PARK,
    ),
    # Repeating is harmless.
    Row("a_natural_unknown_is_repeated", sent(NATURAL), 1, MoveKind.SEND),
    Row("a_natural_unknown_is_repeated_for_days", sent(NATURAL), 4_000, MoveKind.SEND),
    Row(
        "a_natural_unknown_is_not_repeated_past_our_patience",
        sent(NATURAL),
        PATIENCE_SECONDS,
        MoveKind.PARK,
    ),
    Row(
        "a_cancelled_natural_unknown_is_looked_up",
        sent(NATURAL),
        1,
        MoveKind.LOOK_UP,
        stopping=True,
    ),
    Row(
        "a_refused_repeat_is_looked_up_for_it_says_nothing_of_the_first",
        sent(NATURAL, repeat_refused=True),
        1,
        MoveKind.LOOK_UP,
    ),
    Row(
        "a_refused_repeat_without_books_is_for_a_person",
        sent(NATURAL_UNREADABLE, repeat_refused=True),
        1,
        MoveKind.PARK,
    ),
    # No key, but books: never repeat, look.
    Row("a_queryable_unknown_is_looked_up", sent(QUERYABLE), 1, MoveKind.LOOK_UP),
    Row("a_queryable_unknown_is_never_just_repeated", sent(QUERYABLE), 4_000, MoveKind.LOOK_UP),
    Row(
        "a_queryable_absent_is_sent_again",
        sent(QUERYABLE, state=EffectState.ABSENT),
        60,
        MoveKind.SEND,
    ),
    Row(
        "a_queryable_that_loses_four_requests_is_for_a_person",
        sent(QUERYABLE, state=EffectState.ABSENT, sends=SENDS_LIMIT),
        60,
        MoveKind.PARK,
    ),
    Row(
        "a_queryable_whose_books_stay_shut_is_for_a_person",
        sent(QUERYABLE),
        PATIENCE_SECONDS,
        MoveKind.PARK,
    ),
    Row(
        "a_cancelled_absent_is_left_absent",
        sent(QUERYABLE, state=EffectState.ABSENT),
        60,
        MoveKind.STOP,
        stopping=True,
    ),
    # Neither: what the business declared.
    Row("a_blind_payment_is_for_a_person", sent(BLIND), 1, MoveKind.PARK),
    Row("a_cancelled_blind_payment_is_for_a_person", sent(BLIND), 1, MoveKind.PARK, stopping=True),
    Row(
        "a_blind_booking_is_undone_where_that_was_declared",
        sent(BLIND, on_unknown=OnUnknown.COMPENSATE),
        1,
        MoveKind.STOP,
    ),
    Row(
        "an_undo_that_is_blind_is_for_a_person",
        sent(BLIND, on_unknown=OnUnknown.COMPENSATE, purpose=Purpose.UNDO),
        1,
        MoveKind.PARK,
    ),
    Row(
        "a_mail_is_repeated_where_that_was_declared",
        sent(BLIND, on_unknown=OnUnknown.ACCEPT_DUPLICATES, sends=2),
        1,
        MoveKind.SEND,
    ),
    Row(
        "a_mail_is_repeated_only_so_often",
        sent(BLIND, on_unknown=OnUnknown.ACCEPT_DUPLICATES, sends=3),
        1,
        MoveKind.STOP,
    ),
    Row(
        "a_mail_does_not_hold_an_operation_up_for_ever",
        sent(BLIND, on_unknown=OnUnknown.ACCEPT_DUPLICATES),
        PATIENCE_SECONDS,
        MoveKind.STOP,
    ),
    Row(
        "a_cancelled_mail_is_not_repeated",
        sent(BLIND, on_unknown=OnUnknown.ACCEPT_DUPLICATES),
        1,
        MoveKind.STOP,
        stopping=True,
    ),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.truth) for row in ROWS])
def test_the_decision_table(row: Row) -> None:
    move = next_move(row.effect, now=at(row.seconds), stopping=row.stopping)
    assert move.kind is row.expected


@pytest.mark.parametrize("promise", EVERYBODY, ids=lambda p: f"{p.guarantee}-{p.can_look_up}")
class TestWhateverTheProvider:
    """Rows that hold for every guarantee."""

    def test_what_is_planned_is_sent_at_once(self, promise: ProviderProfile) -> None:
        assert next_move(effect(promise), now=T0) == Move(MoveKind.SEND)

    def test_what_is_planned_is_not_begun_when_stopping(self, promise: ProviderProfile) -> None:
        assert next_move(effect(promise), now=T0, stopping=True) == STOP

    def test_nothing_leaves_after_a_tombstone(self, promise: ProviderProfile) -> None:
        for state in EffectState:
            entombed = sent(promise, state=state, tombstone=True)
            assert next_move(entombed, now=at(1)).kind is not MoveKind.SEND

    def test_an_unreachable_provider_is_retried_and_then_parked(
        self, promise: ProviderProfile
    ) -> None:
        away = effect(promise).learns(StepAnswer(kind=Kind.UNAVAILABLE, at=T0))
        assert away.state is EffectState.PLANNED
        assert next_move(away, now=at(1)).kind is MoveKind.SEND
        assert next_move(away, now=at(PATIENCE_SECONDS)) == PARK

    def test_a_definite_no_ends_it(self, promise: ProviderProfile) -> None:
        no = StepAnswer(kind=Kind.DECLINED, at=T0, sent_at=T0, code="card_declined")
        refused = effect(promise).learns(no)
        assert refused.state is EffectState.REJECTED
        assert next_move(refused, now=at(1)) == STOP

    def test_what_is_confirmed_is_left_alone(self, promise: ProviderProfile) -> None:
        yes = StepAnswer(kind=Kind.CONFIRMED, at=T0, sent_at=T0, provider_reference="ch_1")
        assert next_move(effect(promise).learns(yes), now=at(1)) == STOP

    def test_what_is_parked_stays_parked_whatever_the_time(self, promise: ProviderProfile) -> None:
        parked = sent(promise, state=EffectState.PARKED)
        assert next_move(parked, now=at(1e8)) == PARK

    def test_a_persons_absent_allows_one_more_send_even_past_every_limit(
        self, promise: ProviderProfile
    ) -> None:
        spent = sent(promise, state=EffectState.PARKED, sends=SENDS_LIMIT)
        absent = spent.decided(Decision(step="charge", verdict=Verdict.ABSENT, evidence="called"))
        assert next_move(absent, now=at(KEY_SECONDS)).kind is MoveKind.SEND

    def test_a_persons_retry_never_forgets_that_something_was_sent(
        self, promise: ProviderProfile
    ) -> None:
        retry = Decision(step="charge", verdict=Verdict.RETRY, evidence="they are back")
        for maybe in (sent(promise), suspected(promise)):
            assert maybe.becomes(EffectState.PARKED).decided(retry).state is EffectState.UNKNOWN

    def test_a_persons_retry_sends_what_never_left(self, promise: ProviderProfile) -> None:
        away = effect(promise).learns(StepAnswer(kind=Kind.UNAVAILABLE, at=T0))
        parked = away.becomes(EffectState.PARKED)
        retried = parked.decided(Decision(step="charge", verdict=Verdict.RETRY))
        assert next_move(retried, now=at(PATIENCE_SECONDS)) == Move(MoveKind.SEND)

    def test_other_content_is_never_sent_over(self, promise: ProviderProfile) -> None:
        for state in (EffectState.UNKNOWN, EffectState.ABSENT):
            other = sent(promise, state=state, mismatch=True)
            if promise.guarantee is not Guarantee.BLIND:
                assert next_move(other, now=at(1)).kind is not MoveKind.SEND


def test_absent_counts_twice_and_only_past_the_horizon() -> None:
    looked = sent(QUERYABLE).learns(missing(HORIZON_SECONDS - 1))
    assert (looked.state, looked.absences) == (EffectState.UNKNOWN, 0)
    looked = looked.learns(missing(HORIZON_SECONDS))
    assert (looked.state, looked.absences) == (EffectState.UNKNOWN, 1)
    looked = looked.learns(missing(HORIZON_SECONDS + INTERVAL_SECONDS))
    assert looked.state is EffectState.ABSENT


def test_the_horizon_counts_from_the_latest_send() -> None:
    lost = StepAnswer(kind=Kind.UNKNOWN, at=at(100), sent_at=T0)
    assert sent(QUERYABLE).learns(lost).horizon() == at(100 + HORIZON_SECONDS)


def test_the_horizon_is_looked_past_as_soon_as_it_is_reached() -> None:
    tired = sent(QUERYABLE, failures=12)
    assert next_move(tired, now=at(15)) == Move(MoveKind.LOOK_UP, HORIZON_SECONDS - 15)


def test_the_second_look_comes_an_interval_after_the_first() -> None:
    once = sent(QUERYABLE).learns(missing(HORIZON_SECONDS))
    assert next_move(once, now=at(HORIZON_SECONDS)) == Move(MoveKind.LOOK_UP, INTERVAL_SECONDS)


@pytest.mark.parametrize("absences", [0, 1])
def test_retry_after_is_honoured_by_look_ups_too(absences: int) -> None:
    busy = StepAnswer(kind=Kind.UNREADABLE, at=at(15), retry_after_seconds=60.0)
    told = sent(QUERYABLE, absences=absences).learns(busy)
    assert next_move(told, now=at(15)).after_seconds == 60.0


def test_retry_after_is_honoured_up_to_an_hour() -> None:
    for asked, waited in ((120.0, 120.0), (1e9, RETRY_AFTER_LIMIT_SECONDS)):
        busy = StepAnswer(kind=Kind.UNAVAILABLE, at=T0, retry_after_seconds=asked)
        assert next_move(effect(QUERYABLE).learns(busy), now=T0).after_seconds == waited


def test_pauses_double_up_to_five_minutes() -> None:
    tired, pauses = effect(KEYED), list[float]()
    for _ in range(30):
        tired = tired.learns(StepAnswer(kind=Kind.UNAVAILABLE, at=T0))
        pauses.append(next_move(tired, now=T0).after_seconds)
    assert pauses[:4] == [0.25, 0.5, 1.0, 2.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_LIMIT_SECONDS


def test_a_refusal_under_a_key_speaks_for_every_send_of_it() -> None:
    no = StepAnswer(kind=Kind.DECLINED, at=at(1), sent_at=T0)
    assert sent(KEYED).learns(no).state is EffectState.REJECTED


def test_our_own_refusal_to_send_says_nothing_of_what_was_sent() -> None:
    ours = StepAnswer(kind=Kind.DECLINED, at=at(1), code="not_expressible")
    assert effect(KEYED).learns(ours).state is EffectState.REJECTED
    assert sent(KEYED).learns(ours).state is EffectState.UNKNOWN


def test_a_refused_repeat_without_a_key_is_a_refusal_only_once_the_first_is_proved_absent() -> None:
    no = StepAnswer(kind=Kind.DECLINED, at=at(1), sent_at=T0)
    refused = sent(NATURAL).learns(no)
    assert refused.state is EffectState.UNKNOWN
    for seconds in (1 + HORIZON_SECONDS, 3 + HORIZON_SECONDS):
        refused = refused.learns(missing(seconds))
    assert refused.state is EffectState.REJECTED


def test_a_new_doubt_spends_the_old_refusal() -> None:
    no = StepAnswer(kind=Kind.DECLINED, at=T0, sent_at=T0)
    parked = effect(QUERYABLE).learns(no).becomes(EffectState.PARKED)
    absent = parked.decided(Decision(step="charge", verdict=Verdict.ABSENT))
    unknown = absent.learns(StepAnswer(kind=Kind.UNKNOWN, at=at(9), sent_at=at(9)))
    assert not unknown.refused


def test_an_attempt_that_died_unrecorded_makes_the_next_unavailable_an_unknown() -> None:
    away = StepAnswer(kind=Kind.UNAVAILABLE, at=at(3), sent_at=T0)
    doubted = effect(KEYED).learns(away)
    assert doubted.state is EffectState.UNKNOWN
    assert doubted.sent_at == T0


def test_what_is_suspected_stays_so_when_the_provider_is_away() -> None:
    away = suspected(KEYED).learns(StepAnswer(kind=Kind.UNAVAILABLE, at=at(1)))
    assert away.state is EffectState.UNKNOWN


@pytest.mark.parametrize(
    "found", [{"amount_minor": 1000, "currency": "EUR"}, {"amount_minor": 2400, "currency": "USD"}]
)
def test_a_record_with_another_amount_is_for_a_person(found: dict[str, Any]) -> None:
    seen = StepAnswer(kind=Kind.CONFIRMED, at=at(1), provider_reference="ch_1", found=found)
    doubted = sent(QUERYABLE).learns(seen)
    assert doubted.state is EffectState.PARKED
    assert "ch_1" in (doubted.reason or "")


def test_a_mismatch_is_cleared_only_by_a_record_that_agrees() -> None:
    mismatch = sent(KEYED).learns(StepAnswer(kind=Kind.MISMATCH, at=at(1), sent_at=T0))
    silent = StepAnswer(kind=Kind.CONFIRMED, at=at(2), provider_reference="ch_1")
    agreeing = silent.model_copy(update={"found": {"amount_minor": 2400, "currency": "EUR"}})
    assert mismatch.learns(silent).state is EffectState.PARKED
    assert mismatch.learns(agreeing).state is EffectState.CONFIRMED


def test_a_refund_found_twice_is_for_a_person_and_a_charge_found_twice_is_not() -> None:
    twice = StepAnswer(kind=Kind.CONFIRMED, at=at(1), provider_reference="x_1", duplicates=("x_2",))
    refund = sent(QUERYABLE, purpose=Purpose.UNDO, undoes="ch_1")
    assert refund.learns(twice).state is EffectState.PARKED
    assert sent(QUERYABLE).learns(twice).duplicates == ("x_2",)


def test_what_an_earlier_run_had_sent_counts_as_unknown() -> None:
    row = sent(QUERYABLE).record().model_copy(update={"state": EffectState.SENT})
    taken_up = Effect.recalled(row, profile=QUERYABLE, on_unknown=OnUnknown.PARK)
    assert taken_up.state is EffectState.UNKNOWN
    assert taken_up.frozen_body == "{}"


def test_an_effect_survives_its_row() -> None:
    known = sent(KEYED, tombstone=True)
    again = Effect.recalled(known.record(), profile=KEYED, on_unknown=OnUnknown.PARK)
    assert again.record() == known.record()
