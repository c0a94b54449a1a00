"""A bare Temporal saga, as the official samples write it: a sandboxed workflow with default
options, a list of what to compensate, and activities."""

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    import httpx
    from charging import STEPS, charge, refund

TASK_QUEUE = "bench-temporal"


class Payments:
    """The activities."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        """Use `client`."""
        self._client = client

    @activity.defn
    async def charge(self, request: dict[str, Any], key: str) -> str:
        """One charge."""
        return await charge(self._client, request, key=key)

    @activity.defn
    async def refund(self, request: dict[str, Any], charge_id: str, key: str) -> None:
        """One refund."""
        await refund(self._client, request, charge_id=charge_id, key=key)


@workflow.defn
class ThreeChargesSaga:
    """Three charges; those that were made are refunded when one fails."""

    @workflow.run
    async def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Charge."""
        charged: list[str] = []
        prefix = workflow.info().workflow_id
        try:
            for step in STEPS:
                charged.append(  # noqa: PERF401 - what was charged counts when one fails
                    await workflow.execute_activity_method(
                        Payments.charge,
                        args=[request, f"{prefix}-{step}"],
                        start_to_close_timeout=timedelta(seconds=10),
                    )
                )
        except Exception:
            for charge_id in reversed(charged):
                await workflow.execute_activity_method(
                    Payments.refund,
                    args=[request, charge_id, f"{prefix}-{charge_id}"],
                    start_to_close_timeout=timedelta(seconds=10),
                )
            raise
        return {"charge_ids": charged, "amount": request["amount"]}
