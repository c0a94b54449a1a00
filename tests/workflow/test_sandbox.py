"""Every workflow runs in Temporal's sandbox, which refuses what is not deterministic.

Production runs them outside it, for speed; here they prove that they could run in it.
"""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from operations.declaration import SagaOperation
from operations.registry import OPERATIONS
from operations.states import Outcome
from runtime.settings import Settings
from support.saga_bench import SagaBench, saga_bench
from support.world import World
from workflows.registry import OPERATION_WORKFLOWS

SAGAS = [operation for operation in OPERATIONS.values() if isinstance(operation, SagaOperation)]
REFUND = "payments.refund"


@pytest.fixture
async def bench(settings: Settings, tenant: str) -> AsyncGenerator[SagaBench]:
    """A worker that runs every workflow in the sandbox."""
    async with saga_bench(
        settings,
        tenant=tenant,
        workflows=OPERATION_WORKFLOWS,
        runner=SandboxedWorkflowRunner(),
    ) as running:
        yield running


@pytest.mark.parametrize("operation", SAGAS, ids=lambda operation: operation.name)
async def test_it_succeeds_in_the_sandbox(
    bench: SagaBench, world: World, operation: SagaOperation
) -> None:
    request: dict[str, Any] = dict(operation.example)
    if operation.name == REFUND:
        charge = OPERATIONS["payments.charge"]
        assert isinstance(charge, SagaOperation)
        await (await bench.begin(charge, charge.example)).ended()
        [row] = await world.ledger("payments", "charge")
        request["charge_id"] = row["id"]
    begun = await bench.begin(operation, request)
    assert (await begun.ended()).outcome is Outcome.SUCCEEDED


async def test_it_compensates_in_the_sandbox(bench: SagaBench, world: World) -> None:
    place = OPERATIONS["orders.place"]
    assert isinstance(place, SagaOperation)
    await world.faults("carrier", "decline", operation="book")
    begun = await bench.begin(place, place.example)
    assert (await begun.ended()).outcome is Outcome.COMPENSATED
