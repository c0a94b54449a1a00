"""States only move forward, and only as `docs/guarantees.md` draws it."""

import pytest

from operations.states import (
    OPEN_STATES,
    ClaimState,
    EffectState,
    may_follow,
    predecessors,
)

S = EffectState

DRAWN = {
    (S.PLANNED, S.SENT),
    (S.PLANNED, S.CONFIRMED),
    (S.PLANNED, S.REJECTED),
    (S.PLANNED, S.UNKNOWN),
    (S.PLANNED, S.ABSENT),
    (S.PLANNED, S.PARKED),
    (S.SENT, S.PLANNED),
    (S.SENT, S.CONFIRMED),
    (S.SENT, S.REJECTED),
    (S.SENT, S.UNKNOWN),
    (S.SENT, S.ABSENT),
    (S.SENT, S.PARKED),
    (S.UNKNOWN, S.SENT),
    (S.UNKNOWN, S.CONFIRMED),
    (S.UNKNOWN, S.REJECTED),
    (S.UNKNOWN, S.ABSENT),
    (S.UNKNOWN, S.PARKED),
    (S.UNKNOWN, S.COMPENSATED),
    (S.PARKED, S.PLANNED),
    (S.PARKED, S.SENT),
    (S.PARKED, S.CONFIRMED),
    (S.PARKED, S.REJECTED),
    (S.PARKED, S.UNKNOWN),
    (S.PARKED, S.ABSENT),
    (S.ABSENT, S.SENT),
    (S.ABSENT, S.CONFIRMED),
    (S.ABSENT, S.REJECTED),
    (S.ABSENT, S.UNKNOWN),
    (S.ABSENT, S.PARKED),
    (S.REJECTED, S.PARKED),
    (S.CONFIRMED, S.COMPENSATED),
}
"""Every change there is. What is not in here is a lie about what is known."""


@pytest.mark.parametrize("successor", S)
@pytest.mark.parametrize("state", S)
def test_an_effect_changes_only_as_drawn(state: EffectState, successor: EffectState) -> None:
    allowed = state is successor or (state, successor) in DRAWN
    assert may_follow(state, successor) is allowed
    assert (state in predecessors(successor)) is allowed


def test_what_exists_is_only_ever_taken_back() -> None:
    assert {after for before, after in DRAWN if before is S.CONFIRMED} == {S.COMPENSATED}


def test_what_has_been_taken_back_is_the_end_of_it() -> None:
    assert not [after for before, after in DRAWN if before is S.COMPENSATED]


def test_an_unknown_is_never_called_unsent() -> None:
    assert not may_follow(S.UNKNOWN, S.PLANNED)
    assert not may_follow(S.ABSENT, S.PLANNED)


def test_a_success_may_come_late() -> None:
    assert may_follow(S.ABSENT, S.CONFIRMED)
    assert may_follow(S.PARKED, S.CONFIRMED)


def test_only_open_operations_need_a_run() -> None:
    assert {state for state in ClaimState if state.is_open} == OPEN_STATES
    assert not ClaimState.DONE.is_open
    assert not ClaimState.EXPIRED.is_open
