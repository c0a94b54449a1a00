"""A worker in a process of its own, to be killed or asked to stop."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from operations.failpoints import VARIABLE
from runtime.settings import Settings


@asynccontextmanager
async def worker_process(
    settings: Settings, *, failpoint: str = ""
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """`tallystick worker` as a child; killed at the end if it still lives.

    `failpoint` is `name:nth:mode`, see `operations.failpoints`.
    """
    secret = settings.database_url.get_secret_value()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TALLYSTICK_DATABASE_URL": secret,
        "TALLYSTICK_TEMPORAL_ADDRESS": settings.temporal_address,
        "TALLYSTICK_TEMPORAL_TASK_QUEUE": settings.temporal_task_queue,
        "TALLYSTICK_WORKER_HEALTH_PORT": "0",
        "TALLYSTICK_WORKER_DRAIN_SECONDS": "10",
        VARIABLE: failpoint,
        **{
            f"TALLYSTICK_{name.upper()}_URL": getattr(settings, f"{name}_url")
            for name in ("payments", "acquirer", "warehouse", "carrier", "mail")
        },
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runtime.cli", "worker"),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
