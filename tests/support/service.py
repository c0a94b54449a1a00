"""A service on real parts inside the test's process: an API behind a real port, and a worker."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import uvicorn
from temporalio.client import Client

from api.waiting import Waiters
from ledger.access import Role
from ledger.ledger import Ledger
from operations.keys import workflow_id
from runtime import temporal, wiring
from runtime.api_process import make_app, server_config
from runtime.settings import Settings
from runtime.temporal import TemporalExecutor
from runtime.worker import running_worker

ORDER: dict[str, Any] = {
    "sku": "MUG-1",
    "quantity": 2,
    "amount": {"minor": 2400, "currency": "EUR"},
    "card": "tok_visa",
    "email": "a@example.org",
    "address": "1 Quay St",
}
CHARGE: dict[str, Any] = {
    "amount": {"minor": 2400, "currency": "EUR"},
    "card": "tok_visa",
    "description": "two mugs",
}


@dataclass(slots=True)
class RunningService:
    """What a test needs of a running service."""

    settings: Settings
    tenant: str
    url: str
    ledger: Ledger
    temporal: Client
    token: str
    operator_token: str
    http: httpx.AsyncClient
    """With the tenant's own key."""
    operator: httpx.AsyncClient

    async def submit(
        self,
        operation: str,
        key: str,
        body: Any,
        *,
        wait: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """POST an operation under a key."""
        prefer = {} if wait is None else {"Prefer": f"wait={wait}"}
        return await self.http.post(
            f"/v1/operations/{operation}",
            json=body,
            headers={"Idempotency-Key": key, **prefer, **(headers or {})},
        )

    async def settled(
        self, operation: str, key: str, *, state: str = "done", seconds: float = 60
    ) -> dict[str, Any]:
        """The operation's resource once it is in `state`. Raises TimeoutError that shows it."""
        async with asyncio.timeout(seconds + 5):
            deadline = asyncio.get_running_loop().time() + seconds
            while True:
                answer = await self.http.get(
                    f"/v1/operations/{operation}/{key}", params={"wait": 5}, timeout=15
                )
                resource: dict[str, Any] = answer.json()
                if resource["state"] == state:
                    return resource
                if asyncio.get_running_loop().time() > deadline:
                    raise TimeoutError(str(resource))

    def workflow_id(self, operation: str, key: str) -> str:
        """The run's workflow ID."""
        return workflow_id(operation=operation, tenant=self.tenant, key=key)


@asynccontextmanager
async def running_service(
    settings: Settings, *, tenant: str, with_worker: bool = True
) -> AsyncGenerator[RunningService]:
    """An API behind a free port, with a worker of its own beside it unless told otherwise."""
    async with AsyncExitStack() as resources:
        client = await temporal.connect(settings, lazy=not with_worker)
        ledger = await resources.enter_async_context(wiring.open_ledger(settings, name="test"))
        issued = await ledger.access.issue(tenant=tenant, role=Role.CLIENT, now=_now())
        operator = await ledger.access.issue(tenant=tenant, role=Role.OPERATOR, now=_now())
        if with_worker:
            await resources.enter_async_context(_worker(settings, client, ledger))
        url = await resources.enter_async_context(serving(settings))
        yield RunningService(
            settings=settings,
            tenant=tenant,
            url=url,
            ledger=ledger,
            temporal=client,
            token=issued.token,
            operator_token=operator.token,
            http=await resources.enter_async_context(client_of(url, issued.token)),
            operator=await resources.enter_async_context(client_of(url, operator.token)),
        )


@asynccontextmanager
async def serving(settings: Settings) -> AsyncGenerator[str]:
    """The API alone, behind a free port; yields its address."""
    waiting: list[Waiters] = []
    app = make_app(settings, with_worker=False, waiting=waiting)
    server = uvicorn.Server(server_config(app, host="127.0.0.1", port=0, drain_seconds=5))
    task = asyncio.create_task(server._serve())
    while not server.started:
        if task.done():
            task.result()
            raise RuntimeError("The API stopped while it started")
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        for waiters in waiting:
            waiters.drain()
        server.should_exit = True
        await task


def client_of(url: str, token: str) -> httpx.AsyncClient:
    """An HTTP client that sends `token`."""
    return httpx.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {token}"},
        timeout=90,
        trust_env=False,
        limits=httpx.Limits(max_connections=400, max_keepalive_connections=50),
    )


@asynccontextmanager
async def _worker(settings: Settings, client: Client, ledger: Ledger) -> AsyncGenerator[None]:
    executor = TemporalExecutor(client, task_queue=settings.temporal_task_queue)
    async with running_worker(
        settings, client, ledger=ledger, executor=executor, announce=ledger.announcer.announce
    ):
        yield


def _now() -> datetime:
    return datetime.now(UTC)


async def tallystick(service: RunningService, *arguments: str) -> Any:
    """Run the command line as an operator, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runtime.cli", *arguments, "--output", "json"),
        stdout=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "TALLYSTICK_API_URL": service.url,
            "TALLYSTICK_API_KEY": service.operator_token,
        },
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(printed)
