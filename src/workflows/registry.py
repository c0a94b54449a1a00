"""The workflows that a worker serves. A new operation's is added here, and nowhere else."""

from collections.abc import Iterable, Mapping
from typing import Any

from operations.declaration import Operation, SagaOperation
from operations.registry import OPERATIONS
from workflows.housekeeping import Housekeeping
from workflows.operation_run import OperationRun
from workflows.orders_place import PlaceOrder
from workflows.payments_charge import ChargeCard
from workflows.payments_charge_legacy import ChargeCardAtAcquirer
from workflows.payments_refund import RefundCharge
from workflows.reconciliation import Reconcile

OPERATION_WORKFLOWS: tuple[type[OperationRun[Any]], ...] = (
    PlaceOrder,
    ChargeCard,
    ChargeCardAtAcquirer,
    RefundCharge,
)

SERVICE_WORKFLOWS: tuple[type, ...] = (Housekeeping, Reconcile)
"""What runs on a schedule, for no client."""


def check_registries(
    operations: Mapping[str, Operation], workflows: Iterable[type[OperationRun[Any]]]
) -> None:
    """Every saga has its workflow, and every workflow its saga.

    Raises ValueError that names what is missing: an operation without a workflow would accept
    requests and never end them.
    """
    sagas = {name for name, found in operations.items() if isinstance(found, SagaOperation)}
    served = [workflow.operation.name for workflow in workflows]
    if len(set(served)) != len(served):
        raise ValueError(f"Two workflows run the same operation: {sorted(served)}")
    if missing := sorted(sagas - set(served)):
        raise ValueError(f"No workflow runs {', '.join(missing)}: add it to workflows.registry")
    if extra := sorted(set(served) - sagas):
        raise ValueError(f"{', '.join(extra)} is not offered: add it to operations.registry")


check_registries(OPERATIONS, OPERATION_WORKFLOWS)
