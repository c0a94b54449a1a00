"""Every recorded history replays on today's code, in the sandbox; a reordered step does not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from operations.identities import business_id
from operations.orders_place import CHARGE, ORDERS_PLACE, RESERVE, SHIP, PlaceOrderRequest
from workflows import reconciliation
from workflows.operation_run import OperationRun
from workflows.registry import OPERATION_WORKFLOWS, SERVICE_WORKFLOWS
from workflows.runs import runs

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))
PATHS_EXPECTED = {"succeeded", "declined", "compensated", "unknown_resolved", "parked_resolved"} | {
    "cancelled",
    "cancelled_by_temporal",
    "sent_again",
    "recovered",
    "reset",
    "reconciled",
}


def history(file: Path) -> WorkflowHistory:
    """A recorded history, under the workflow ID that its search attributes tell."""
    return WorkflowHistory.from_json(file.stem, file.read_text())


def test_every_path_has_a_history() -> None:
    assert {file.stem.partition(".")[2] for file in HISTORIES} >= PATHS_EXPECTED


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
async def test_the_history_replays(file: Path) -> None:
    served = [*OPERATION_WORKFLOWS, *SERVICE_WORKFLOWS]
    replayer = Replayer(workflows=served, data_converter=pydantic_data_converter)
    await replayer.replay_workflow(history(file))


@runs(ORDERS_PLACE)
class ChargeFirst(OperationRun[PlaceOrderRequest]):
    """`orders.place` by somebody who thought that the order of steps does not matter."""

    async def perform(self, request: PlaceOrderRequest) -> Any:
        """Charge, then reserve."""
        charged: Mapping[str, Any] = {
            "amount_minor": request.amount.minor,
            "currency": request.amount.currency,
            "card": request.card,
            "description": business_id("ord", workflow_id="any"),
        }
        await self.saga.perform(CHARGE, **charged)
        await self.saga.perform(RESERVE, sku=request.sku, quantity=request.quantity)
        await self.saga.perform(SHIP, order_id="any", address=request.address)


@pytest.mark.parametrize(
    "file", [file for file in HISTORIES if file.stem.startswith("orders_place")], ids=str
)
async def test_a_reordered_step_fails_the_replay(file: Path) -> None:
    replayer = Replayer(
        workflows=[ChargeFirst],
        data_converter=pydantic_data_converter,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    with pytest.raises(NondeterminismError):
        await replayer.replay_workflow(history(file))


async def test_a_reordered_phase_of_reconciliation_fails_the_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetch, match, *others = reconciliation.PHASES
    monkeypatch.setattr(reconciliation, "PHASES", (fetch, *others, match))
    replayer = Replayer(
        workflows=SERVICE_WORKFLOWS,
        data_converter=pydantic_data_converter,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    [recorded] = [file for file in HISTORIES if file.stem == "reconciliation.reconciled"]
    with pytest.raises(NondeterminismError):
        await replayer.replay_workflow(history(recorded))
