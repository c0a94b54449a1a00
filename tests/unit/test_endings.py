"""Which endings undo what was done: all but giving up a step after the pivot."""

import pytest

from operations.contracts import Decision
from operations.states import Verdict
from workflows.endings import Abandoned, Cancelled, Ending, Fenced, OutcomeUnknown, Refused
from workflows.operation_run import leaves_the_rest


@pytest.mark.parametrize("ending", [Cancelled, Fenced, OutcomeUnknown, Refused])
def test_what_says_that_it_was_undone_is_undone_after_the_pivot_too(ending: type[Ending]) -> None:
    assert not leaves_the_rest(ending("no"), pivot_passed=True)


def test_a_step_given_up_after_the_pivot_leaves_the_rest() -> None:
    assert leaves_the_rest(Abandoned("given up"), pivot_passed=True)
    assert not leaves_the_rest(Abandoned("given up"), pivot_passed=False)


def test_what_an_earlier_run_began_to_undo_is_undone_to_the_end() -> None:
    given_up = Decision(step="ship", verdict=Verdict.ABANDON)
    assert not leaves_the_rest(Abandoned.by(given_up, undoing=True), pivot_passed=True)
    assert leaves_the_rest(Abandoned.by(given_up), pivot_passed=True)
