"""A declaration that contradicts itself is refused when the module is imported, not at midnight."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from operations.declaration import Answer, Request, SagaOperation, Step, Undo
from operations.guarantees import Guarantee, OnUnknown, ProviderProfile
from operations.orders_place import CHARGE, ORDERS_PLACE, PlaceOrderRequest
from operations.registry import OPERATIONS


class Wish(Request):
    note: str = ""


class Done(Answer):
    note: str = ""


def saga(*steps: Step) -> SagaOperation:
    return SagaOperation(
        name="test.wish", title="A wish", request=Wish, answer=Done, example={}, steps=steps
    )


REFUSED = {
    "an_operation_without_steps": [],
    "two_steps_of_one_name": [Step("a", "p", "do"), Step("a", "q", "do")],
    "two_pivots": [Step("a", "p", "do", pivot=True), Step("b", "p", "do", pivot=True)],
    "a_step_elsewhere_without_its_activity": [Step("a", "p", "do", task_queue="theirs")],
    "a_step_elsewhere_without_its_queue": [Step("a", "p", "do", activity="theirs.do")],
    "undoing_what_is_unknown_without_an_undo": [
        Step("a", "p", "do", on_unknown=OnUnknown.COMPENSATE)
    ],
    "undoing_what_is_unknown_by_a_reference_that_is_not_known": [
        Step("a", "p", "do", undo=Undo("take", target="id"), on_unknown=OnUnknown.COMPENSATE)
    ],
}


@pytest.mark.parametrize("steps", REFUSED.values(), ids=REFUSED.keys())
def test_a_contradiction_is_refused(steps: list[Step]) -> None:
    with pytest.raises(ValueError, match=r"test\.wish"):
        saga(*steps)


UNDONE_BY_REFERENCE = Step(
    "a",
    "p",
    "book",
    undo=Undo("cancel", target="reference", by_reference=True),
    on_unknown=OnUnknown.COMPENSATE,
)
PIVOT = Step("b", "p", "ship", pivot=True)


def test_what_is_unknown_can_be_undone_by_our_own_reference() -> None:
    assert saga(UNDONE_BY_REFERENCE, PIVOT).step("a") is UNDONE_BY_REFERENCE
    assert saga(replace(UNDONE_BY_REFERENCE, pivot=True)).steps  # unknown: it has not succeeded


def test_after_the_pivot_nothing_can_be_declared_to_be_undone() -> None:
    with pytest.raises(ValueError, match=r"test\.wish\.a: .*Put the step before the pivot, or"):
        saga(PIVOT, UNDONE_BY_REFERENCE)


def test_a_step_is_found_by_its_name() -> None:
    assert ORDERS_PLACE.step("charge") is CHARGE
    with pytest.raises(KeyError):
        ORDERS_PLACE.step("missing")


def test_providers_are_named_once_and_in_order() -> None:
    steps = (Step("a", "q", "do"), Step("b", "p", "do"), Step("c", "q", "do"))
    assert saga(*steps).providers == ("q", "p")


def test_an_undo_names_its_target_and_carries_what_it_needs() -> None:
    undo = Undo("refund", target="charge_id", carries=("amount_minor", "currency", "missing"))
    forward = {"amount_minor": 2400, "currency": "EUR", "card": "tok_visa"}
    assert undo.request(provider_reference="ch_1", forward=forward) == {
        "charge_id": "ch_1",
        "amount_minor": 2400,
        "currency": "EUR",
    }


def test_a_request_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValidationError):
        Wish.model_validate({"note": "x", "dry_run": True})


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_that_is_offered_accepts_its_own_example(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation.name == name
    assert operation.request.model_validate(operation.example)
    assert operation.retention_days >= 1


def test_an_order_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError):
        PlaceOrderRequest.model_validate({**ORDERS_PLACE.example, "quantity": 0})


@pytest.mark.parametrize(
    "promises",
    [
        {"guarantee": Guarantee.KEYED, "key_lifetime_seconds": 900.0},
        {"guarantee": Guarantee.QUERYABLE, "can_look_up": False},
    ],
    ids=["a_key_that_ends_before_its_margin", "queryable_without_look_ups"],
)
def test_a_profile_that_would_park_everything_is_refused(promises: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ProviderProfile(provider="partner", **promises)
