"""The bare saga behind FastAPI: the idempotency key is the workflow's ID."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from charging import ThreeChargesRequest, serve
from fastapi import FastAPI, Header, Request
from temporal_saga import TASK_QUEUE, ThreeChargesSaga
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """One client for all requests."""
    app.state.temporal = await Client.connect(os.environ["BENCH_TEMPORAL_ADDRESS"])
    yield


app = FastAPI(lifespan=lifespan)


@app.post("/three-charges", status_code=201)
async def submit(
    request: Request, body: ThreeChargesRequest, idempotency_key: Annotated[str, Header()]
) -> dict[str, Any]:
    """Run the workflow under the client's key, or answer what it answered."""
    temporal: Client = request.app.state.temporal
    try:
        return await temporal.execute_workflow(
            ThreeChargesSaga.run,
            body.model_dump(),
            id=idempotency_key,
            task_queue=TASK_QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        return await temporal.get_workflow_handle_for(
            ThreeChargesSaga.run, idempotency_key
        ).result()


if __name__ == "__main__":
    serve(app)
