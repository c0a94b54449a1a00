"""The same service on DBOS: the idempotency key is the workflow's ID, as its tutorials show."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from charging import STEPS, ThreeChargesRequest, charge, payments_client, refund, serve
from dbos import DBOS, SetWorkflowID
from fastapi import FastAPI, Header

DBOS(config={"name": "bench", "system_database_url": os.environ["BENCH_DATABASE_URL"]})
payments = payments_client()


@DBOS.step()
async def charge_step(request: dict[str, Any], key: str) -> str:
    """One charge; its result is recorded when it returns."""
    return await charge(payments, request, key=key)


@DBOS.step(retries_allowed=True, max_attempts=10)
async def refund_step(request: dict[str, Any], charge_id: str, key: str) -> None:
    """One refund."""
    await refund(payments, request, charge_id=charge_id, key=key)


@DBOS.workflow()
async def three_charges(request: dict[str, Any]) -> dict[str, Any]:
    """Three charges; those that were made are refunded when one fails."""
    charged: list[str] = []
    try:
        for step in STEPS:
            charged.append(await charge_step(request, f"{DBOS.workflow_id}-{step}"))  # noqa: PERF401 - what was charged counts when one fails
    except Exception:
        for charge_id in reversed(charged):
            await refund_step(request, charge_id, f"{DBOS.workflow_id}-{charge_id}")
        raise
    return {"charge_ids": charged, "amount": request["amount"]}


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
    """DBOS runs beside the application."""
    DBOS.launch()
    yield
    await payments.aclose()
    DBOS.destroy()


app = FastAPI(lifespan=lifespan)


@app.post("/three-charges", status_code=201)
async def submit(
    request: ThreeChargesRequest, idempotency_key: Annotated[str, Header()]
) -> dict[str, Any]:
    """Run the workflow under the client's key, or answer what it answered."""
    with SetWorkflowID(idempotency_key):
        return await three_charges(request.model_dump())


if __name__ == "__main__":
    serve(app)
