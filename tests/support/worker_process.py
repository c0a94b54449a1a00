"""A worker, or an API, in a process of its own, to be killed or asked to stop."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx

from operations.failpoints import VARIABLE
from runtime.embedded.ports import port_or_pick
from runtime.settings import Settings

READY_SECONDS = 40.0


@asynccontextmanager
async def worker_process(
    settings: Settings, *, failpoint: str = ""
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """`tallystick worker` as a child; killed at the end if it still lives.

    `failpoint` is `name:nth:mode`, see `operations.failpoints`.
    """
    process = await _child("worker", settings, **{VARIABLE: failpoint})
    try:
        yield process
    finally:
        await _end(process)


@asynccontextmanager
async def api_process(settings: Settings) -> AsyncGenerator[str]:
    """`tallystick api` as a child, killed at the end; yields its address once it is ready."""
    port = port_or_pick(0)
    process = await _child("api", settings, TALLYSTICK_API_PORT=str(port))
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(READY_SECONDS), httpx.AsyncClient(trust_env=False) as http:
            while not await _is_ready(http, url):
                assert process.returncode is None, "the API has ended while it started"
                await asyncio.sleep(0.05)
        yield url
    finally:
        await _end(process)


async def _is_ready(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def _child(command: str, settings: Settings, **more: str) -> asyncio.subprocess.Process:
    secret = settings.database_url.get_secret_value()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TALLYSTICK_DATABASE_URL": secret,
        "TALLYSTICK_TEMPORAL_ADDRESS": settings.temporal_address,
        "TALLYSTICK_TEMPORAL_TASK_QUEUE": settings.temporal_task_queue,
        "TALLYSTICK_WORKER_HEALTH_PORT": "0",
        "TALLYSTICK_WORKER_DRAIN_SECONDS": "10",
        **{
            f"TALLYSTICK_{name.upper()}_URL": getattr(settings, f"{name}_url")
            for name in ("payments", "acquirer", "warehouse", "carrier", "mail")
        },
        **more,
    }
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runtime.cli", command),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
