"""A real `tallystick api` process is stopped: everybody gets an answer, and it ends in time."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic

import httpx

from ledger.access import Role
from runtime.embedded.ports import pick_port
from runtime.embedded.programs import TALLYSTICK
from runtime.settings import Settings
from runtime.wiring import now, open_ledger
from support.boundary import CHARGE_PATH, raw_connection, raw_request
from support.service import CHARGE, client_of


@asynccontextmanager
async def _api_process(
    settings: Settings, *, port: int
) -> AsyncGenerator[asyncio.subprocess.Process]:
    environment = {
        **os.environ,
        "TALLYSTICK_DATABASE_URL": settings.database_url.get_secret_value(),
        "TALLYSTICK_TEMPORAL_ADDRESS": settings.temporal_address,
        "TALLYSTICK_TEMPORAL_TASK_QUEUE": settings.temporal_task_queue,
        "TALLYSTICK_API_PORT": str(port),
        "TALLYSTICK_LOG_LEVEL": "error",
    }
    process = await asyncio.create_subprocess_exec(*TALLYSTICK, "api", env=environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _serves(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.1)


async def _stream(client: httpx.AsyncClient) -> list[str]:
    """The whole event stream, which must end as HTTP ends it."""
    async with client.stream("GET", f"{CHARGE_PATH}/w0/events") as answer:
        return [line async for line in answer.aiter_lines()]


async def test_stopped_api_answers_everybody_and_ends(settings: Settings, tenant: str) -> None:
    port = pick_port()
    async with open_ledger(settings, name="test") as ledger:
        issued = await ledger.access.issue(tenant=tenant, role=Role.CLIENT, now=now())
    url = f"http://127.0.0.1:{port}"
    body = json.dumps(CHARGE).encode()
    async with (
        _api_process(settings, port=port) as process,
        client_of(url, issued.token) as client,
    ):
        await _serves(client)
        posts = [
            asyncio.ensure_future(
                client.put(f"{CHARGE_PATH}/w{n}", json=CHARGE, headers={"Prefer": "wait=60"})
            )
            for n in range(20)
        ]
        while (await client.get(f"{CHARGE_PATH}/w0")).status_code != 200:
            pass
        reads = [
            asyncio.ensure_future(client.get(f"{CHARGE_PATH}/w0", params={"wait": 60}))
            for _ in range(5)
        ]
        streams = [asyncio.ensure_future(_stream(client)) for _ in range(3)]
        async with raw_connection(url) as half_sent, raw_connection(url) as idle:
            fields = (
                ("idempotency-key", "half"),
                ("prefer", "wait=60"),
                ("content-length", str(len(body))),
            )
            head = raw_request("POST", CHARGE_PATH, token=issued.token, fields=fields)
            await half_sent.send(head + body[:10])
            done, _ = await asyncio.wait([*posts, *reads, *streams], timeout=1.0)
            assert not done, "everybody waits"
            process.send_signal(signal.SIGTERM)
            began = monotonic()
            answers = await asyncio.gather(*posts, *reads)
            assert monotonic() - began < 3
            assert {answer.status_code for answer in answers[:20]} == {202}
            assert {answer.status_code for answer in answers[20:]} == {200}
            assert all("preference-applied" not in answer.headers for answer in answers)
            for lines in await asyncio.gather(*streams):
                assert "event: state" in lines
            assert await idle.ended(seconds=3)
            await half_sent.send(body[10:])
            status, _, answer = await half_sent.answer()
            assert (status, json.loads(answer)["state"]) == (202, "accepted")
        async with asyncio.timeout(12):
            ended = await process.wait()
    assert ended in {0, -signal.SIGTERM}
