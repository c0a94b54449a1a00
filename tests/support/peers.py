"""Servers that others wrote, as child processes on free ports: two that speak Stripe's API."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

START_SECONDS = 20.0
STOP_SECONDS = 5.0
PEERS = Path(__file__).parents[1] / "peers"
REQUIRE_NODE = "TALLYSTICK_REQUIRE_NODE"
"""When this is `1`, a missing Node or package is a failure, not a reason to skip."""


def require_node_peer() -> None:
    """Skip the test, with the reason, where Node or the npm package is missing; or fail it."""
    problem = _node_problem()
    if problem is None:
        return
    if os.environ.get(REQUIRE_NODE) == "1":
        pytest.fail(f"{problem}, and {REQUIRE_NODE}=1 insists on it", pytrace=False)
    pytest.skip(f"{problem}: `make peers` installs what this test talks to")


@asynccontextmanager
async def running_stateful_mock() -> AsyncGenerator[str]:
    """npm `stripe-stateful-mock`, which keeps idempotency keys: its address."""
    require_node_peer()
    async with _running("node", str(PEERS / "stripe_stateful_mock.js")) as url:
        yield url


@asynccontextmanager
async def running_localstripe() -> AsyncGenerator[str]:
    """PyPI `localstripe`, which keeps no idempotency keys: its address."""
    server = Path(__file__).with_name("localstripe_server.py")
    async with _running(sys.executable, str(server)) as url:
        yield url


def _node_problem() -> str | None:
    if shutil.which("node") is None:
        return "Node is not installed"
    if not (PEERS / "node_modules" / "stripe-stateful-mock").is_dir():
        return "the npm package stripe-stateful-mock is not installed"
    return None


@asynccontextmanager
async def _running(*command: str) -> AsyncGenerator[str]:
    """Start `command`, wait for the port it prints when it listens, stop it by its PID."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            port = (await process.stdout.readline()).decode().strip()
        assert port.isdigit(), f"{command[0]} did not say where it listens"
        yield f"http://127.0.0.1:{port}"
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
