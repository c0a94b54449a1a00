"""The event stream: what it says, how it is taken up again, and what it leaves behind."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from api import streaming
from operations.states import ClaimState
from support.boundary import CHARGE_PATH, claimed, completed, progressed, run_sql
from support.service import RunningService

EVENTS = f"{CHARGE_PATH}/k/events"


async def _read(answer: httpx.Response) -> AsyncIterator[dict[str, str]]:
    """Events as fields; a comment is an event with the field `comment`."""
    event: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line.startswith(":"):
            yield {"comment": line}
        elif line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield event
            event = {}


@asynccontextmanager
async def _stream(
    quiet: RunningService, *, last: str | None = None
) -> AsyncGenerator[tuple[httpx.Response, AsyncIterator[dict[str, str]]]]:
    headers = {} if last is None else {"Last-Event-ID": last}
    async with asyncio.timeout(20), quiet.http.stream("GET", EVENTS, headers=headers) as answer:
        yield answer, _read(answer)


async def _open_streams(quiet: RunningService) -> tuple[float, float]:
    text = (await quiet.http.get("/metrics")).text
    numbers = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
    return (
        float(numbers["tallystick_event_streams"]),
        float(numbers["tallystick_waiting_requests"]),
    )


async def _until_nothing_is_open(quiet: RunningService) -> None:
    async with asyncio.timeout(10):
        while await _open_streams(quiet) != (0.0, 0.0):  # noqa: ASYNC110 - a page can only be asked
            await asyncio.sleep(0.05)


async def test_stream_tells_each_state_and_ends_with_done(quiet: RunningService) -> None:
    claim = await claimed(quiet, "k")
    async with _stream(quiet) as (answer, events):
        assert answer.headers["content-type"].startswith("text/event-stream")
        first = await anext(events)
        await progressed(quiet, claim, state=ClaimState.COMPENSATING)
        second = await anext(events)
        await completed(quiet, claim)
        third = await anext(events)
        assert [event async for event in events] == []
    told: list[dict[str, Any]] = [json.loads(event["data"]) for event in (first, second, third)]
    assert [event["event"] for event in (first, second, third)] == ["state"] * 3
    assert [resource["state"] for resource in told] == ["accepted", "compensating", "done"]
    assert told[1]["steps"][0]["state"] == "sent"
    assert int(first["id"]) < int(second["id"]) < int(third["id"])
    assert told[2] == (await quiet.http.get(f"{CHARGE_PATH}/k")).json()
    await _until_nothing_is_open(quiet)


async def test_stream_is_taken_up_after_the_last_event(quiet: RunningService) -> None:
    claim = await claimed(quiet, "k")
    async with _stream(quiet) as (_, events):
        seen = (await anext(events))["id"]
    async with _stream(quiet, last=seen) as (_, events):
        coming = asyncio.ensure_future(anext(events))
        done, _ = await asyncio.wait({coming}, timeout=0.3)
        assert not done, "what was seen is not told again"
        await completed(quiet, claim)
        last = await coming
        assert json.loads(last["data"])["state"] == "done"
    nothing_more = await quiet.http.get(EVENTS, headers={"Last-Event-ID": last["id"]})
    assert (nothing_more.status_code, nothing_more.content) == (204, b"")


@pytest.mark.parametrize("last", ["999999", "x", "-1", "9" * 40])
async def test_last_event_id_that_cannot_be_is_as_none(quiet: RunningService, last: str) -> None:
    await completed(quiet, await claimed(quiet, "k"))
    async with _stream(quiet, last=last) as (_, events):
        assert [json.loads(event["data"])["state"] async for event in events] == ["done"]


async def test_disconnect_frees_everything(quiet: RunningService) -> None:
    await claimed(quiet, "k")
    for _ in range(5):
        async with _stream(quiet) as (_, events):
            await anext(events)
    await _until_nothing_is_open(quiet)


async def test_stream_has_a_heartbeat_and_a_bounded_life(
    quiet: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(streaming, "LIFE_SECONDS", 0.5)
    await claimed(quiet, "k")
    async with _stream(quiet) as (_, events):
        told = [event async for event in events]
    assert told[0]["event"] == "state"
    assert any("comment" in event for event in told[1:])
    await _until_nothing_is_open(quiet)


async def test_stream_of_a_revoked_key_ends(quiet: RunningService) -> None:
    await claimed(quiet, "k")
    async with _stream(quiet) as (_, events):
        await anext(events)
        await run_sql(
            quiet, "UPDATE api_keys SET revoked_at = now() WHERE tenant = $1", quiet.tenant
        )
        began = asyncio.get_running_loop().time()
        assert [event async for event in events if "data" in event] == []
        assert asyncio.get_running_loop().time() - began < 5


async def test_streams_of_a_tenant_are_bounded(
    quiet: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.limits.STREAMS_PER_TENANT_MAX", 1)
    await claimed(quiet, "k")
    async with _stream(quiet) as (_, events):
        await anext(events)
        refused = await quiet.http.get(EVENTS)
        assert (refused.status_code, refused.json()["type"]) == (429, "/problems/rate-limited")
        assert int(refused.headers["retry-after"]) >= 1
