"""What does not fit together is refused when a process starts."""

from dataclasses import replace
from typing import Any

import pytest

from operations.declaration import SagaOperation, Step, by_name
from operations.guarantees import Guarantee, ProviderProfile
from operations.orders_place import ORDERS_PLACE
from operations.payments_charge import PAYMENTS_CHARGE
from operations.registry import OPERATIONS
from providers.catalogue import simulated_providers
from runtime.wiring import check_providers, profiles_of
from workflows.payments_charge import ChargeCard
from workflows.registry import OPERATION_WORKFLOWS, check_registries

PARCELS = ProviderProfile(
    provider="parcels", guarantee=Guarantee.QUERYABLE, lookup_horizon_seconds=60.0
)


def elsewhere(**changes: Any) -> Step:
    step = Step("a", "parcels", "do", task_queue="theirs", activity="theirs.do", profile=PARCELS)
    return replace(step, **changes)


def saga(*steps: Step, **changes: Any) -> SagaOperation:
    return replace(
        PAYMENTS_CHARGE, name="test.wish", steps=steps or PAYMENTS_CHARGE.steps, **changes
    )


async def providers() -> dict[str, Any]:
    names = ("payments", "acquirer", "warehouse", "carrier", "mail")
    return dict(simulated_providers(dict.fromkeys(names, "http://127.0.0.1:9")))


def test_what_is_shipped_fits() -> None:
    check_registries(OPERATIONS, OPERATION_WORKFLOWS)


def test_an_operation_without_a_workflow_is_named() -> None:
    with pytest.raises(ValueError, match=r"No workflow runs orders\.place"):
        check_registries(by_name(ORDERS_PLACE, PAYMENTS_CHARGE), [ChargeCard])


def test_a_workflow_without_an_operation_is_named() -> None:
    with pytest.raises(ValueError, match=r"payments\.charge is not offered"):
        check_registries({}, [ChargeCard])


def test_two_workflows_of_one_operation_are_refused() -> None:
    with pytest.raises(ValueError, match="same operation"):
        check_registries(by_name(PAYMENTS_CHARGE), [ChargeCard, ChargeCard])


def test_two_operations_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="share a name"):
        by_name(PAYMENTS_CHARGE, PAYMENTS_CHARGE)


def test_an_answer_is_kept_for_a_day_at_least() -> None:
    with pytest.raises(ValueError, match="1 day or more"):
        saga(retention_days=0)


def test_a_name_that_cannot_stand_in_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a name"):
        replace(PAYMENTS_CHARGE, name="payments/charge")


async def test_a_provider_without_a_client_is_named() -> None:
    lacking = await providers()
    del lacking["payments"]
    with pytest.raises(ValueError, match="no client of payments"):
        check_providers([PAYMENTS_CHARGE], lacking)


async def test_a_step_elsewhere_brings_its_own_profile() -> None:
    operation = saga(elsewhere())
    check_providers([operation], {})
    assert '"parcels"' in profiles_of(operation, {})


async def test_a_provider_is_here_or_elsewhere() -> None:
    both = saga(elsewhere(), Step("b", "parcels", "do"))
    with pytest.raises(ValueError, match="here and elsewhere"):
        check_providers([both], {"parcels": (await providers())["payments"]})


@pytest.mark.parametrize(
    "changes",
    [
        {"profile": None},
        {"provider": "others"},
        {"profile": PARCELS.model_copy(update={"lookup_horizon_seconds": 10.0})},
    ],
    ids=["no_profile", "the_profile_of_another", "a_horizon_shorter_than_the_pickup"],
)
def test_a_step_elsewhere_that_could_lie_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"test\.wish\.a"):
        saga(elsewhere(**changes))
