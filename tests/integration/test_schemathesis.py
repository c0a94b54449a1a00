"""The API answers as its own OpenAPI document says, whatever Schemathesis sends it.

What is checked, and the few checks that cannot hold, stand in `support/schemathesis.toml`.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from support.service import RunningService

CONFIGURATION = Path(__file__).parents[1] / "support" / "schemathesis.toml"
SECONDS_MAX = 280


@pytest.mark.timeout(SECONDS_MAX + 20)
async def test_schemathesis_finds_nothing(lively: RunningService, tmp_path: Path) -> None:
    status, report = await _schemathesis(lively, lively.operator_token, directory=tmp_path)
    assert status == 0, report
    document = (await lively.http.get("/openapi.json")).json()
    routes = sum(len(methods) for methods in document["paths"].values())
    assert f"Tested: {routes}" in report


@pytest.mark.timeout(SECONDS_MAX + 20)
async def test_client_is_answered_as_documented_too(lively: RunningService, tmp_path: Path) -> None:
    status, report = await _schemathesis(
        lively, lively.token, "--phases", "examples", directory=tmp_path
    )
    assert status == 0, report


async def _schemathesis(
    service: RunningService, token: str, *arguments: str, directory: Path
) -> tuple[int, str]:
    """Exit status and report of a run in `directory`, with a process of its own."""
    program = Path(sys.executable).with_name("schemathesis")
    process = await asyncio.create_subprocess_exec(
        program,
        *("--config-file", str(CONFIGURATION)),
        *("run", f"{service.url}/openapi.json", "--no-color", *arguments),
        cwd=directory,
        env={**os.environ, "TALLYSTICK_KEY": token, "NO_PROXY": "127.0.0.1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS_MAX):
            report, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, report.decode()
