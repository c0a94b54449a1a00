"""Limits: sizes, times, depth, and how many new operations a second."""

import asyncio
import json
from collections.abc import AsyncGenerator

import httpx
import pytest
import structlog

from api import boundary
from api.observing import HEAD_BYTES_MAX
from api.turns import Turns
from runtime import http_protocol
from runtime.settings import Settings
from support.boundary import (
    CHARGE_PATH,
    claimed,
    completed,
    raw_connection,
    raw_request,
    run_sql,
)
from support.service import CHARGE, RunningService, running_service

BODY_BYTES_MAX = 256 * 1024


@pytest.fixture
async def limited(settings: Settings, tenant: str) -> AsyncGenerator[RunningService]:
    """An API that lets five new operations of a tenant through, and then one in 100 s."""
    chosen = {"api_new_operations_per_second": 0.01, "api_new_operations_burst": 5}
    async with running_service(
        settings.model_copy(update=chosen), tenant=tenant, with_worker=False
    ) as running:
        yield running


async def test_body_of_the_limit_is_read_and_one_byte_more_is_413(quiet: RunningService) -> None:
    body = json.dumps({"card": "x" * BODY_BYTES_MAX}).encode()[:BODY_BYTES_MAX]
    headers = {"idempotency-key": "k"}
    at_limit = await quiet.http.post(CHARGE_PATH, content=body, headers=headers)
    assert at_limit.json()["type"] == "/problems/body-malformed"
    beyond = await quiet.http.post(CHARGE_PATH, content=body + b"x", headers=headers)
    assert (beyond.status_code, beyond.json()["type"]) == (413, "/problems/body-too-large")


async def test_body_without_a_length_is_413_once_it_is_too_large(quiet: RunningService) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        for _ in range(64):
            yield b"x" * 8192

    answer = await quiet.http.post(CHARGE_PATH, content=endless(), headers={"idempotency-key": "k"})
    assert (answer.status_code, answer.json()["type"]) == (413, "/problems/body-too-large")


async def test_deep_body_is_400_and_holds_nobody_up(quiet: RunningService) -> None:
    deep = (b'{"a":' * 50_000 + b"1" + b"}" * 50_000)[:BODY_BYTES_MAX]
    refused = asyncio.create_task(
        quiet.http.post(CHARGE_PATH, content=deep, headers={"idempotency-key": "k"})
    )
    alive = await quiet.http.get("/healthz")
    assert alive.elapsed.total_seconds() < 1
    assert (await refused).json()["type"] == "/problems/body-malformed"


@pytest.mark.parametrize("finished", [True, False], ids=["whole head", "endless head"])
async def test_headers_beyond_the_limit_are_431(quiet: RunningService, finished: bool) -> None:
    head = raw_request(
        "GET", "/v1/operations", token=quiet.token, fields=(("x-large", "x" * 100_000),)
    )
    async with raw_connection(quiet.url) as connection:
        await connection.send(head if finished else head[:-4])
        status, fields, body = await connection.answer()
        assert (status, json.loads(body)["type"]) == (431, "/problems/headers-too-large")
        assert fields["content-type"] == "application/problem+json"
        assert await connection.ended()
    assert (await quiet.http.get("/healthz")).status_code == 200


async def test_headers_below_the_limit_are_read(quiet: RunningService) -> None:
    large = {"x-large": "x" * (HEAD_BYTES_MAX - 1024)}
    assert (await quiet.http.get("/v1/operations", headers=large)).status_code == 200


async def test_path_beyond_the_limit_is_431(quiet: RunningService) -> None:
    answer = await quiet.http.get(f"{CHARGE_PATH}/{'k' * (HEAD_BYTES_MAX + 1)}")
    assert answer.status_code == 431


async def test_head_that_trickles_is_408(
    quiet: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.3)
    async with raw_connection(quiet.url) as connection:
        await connection.send(b"GET /v1/operations HTTP/1.1\r\nhost: a\r\n")
        status, fields, body = await connection.answer()
        assert (status, json.loads(body)["type"]) == (408, "/problems/request-timeout")
        assert fields["connection"] == "close"
        assert await connection.ended()
    async with raw_connection(quiet.url) as silent:
        assert await silent.ended(seconds=3)


async def test_body_that_trickles_is_408(
    quiet: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boundary, "BODY_SECONDS", 0.3)
    async with raw_connection(quiet.url) as connection:
        fields = (("idempotency-key", "k"), ("content-length", "100"))
        await connection.send(raw_request("POST", CHARGE_PATH, token=quiet.token, fields=fields))
        await connection.send(b"{")
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["type"]) == (408, "/problems/request-timeout")
        assert await connection.ended()


async def test_body_that_nobody_reads_is_cut(
    quiet: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 0.5)
    async with raw_connection(quiet.url) as connection:
        fields = (("idempotency-key", "k"), ("content-length", "10000000"))
        await connection.send(raw_request("POST", CHARGE_PATH, token=quiet.token, fields=fields))
        status, _, _ = await connection.answer()
        assert status == 413
        assert await connection.ended(seconds=3)


async def test_slow_answer_does_not_cut_the_next_request_behind_it(
    quiet: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 0.2)
    await claimed(quiet, "k")
    held = raw_request("GET", f"{CHARGE_PATH}/k?wait=1", token=quiet.token)
    following = raw_request("GET", "/healthz", token=quiet.token)
    async with raw_connection(quiet.url) as connection:
        await connection.send(held + following[:20])
        await asyncio.sleep(0.5)
        await connection.send(following[20:])
        assert (await connection.answer())[0] == 200
        assert (await connection.answer())[0] == 200


async def test_only_new_operations_are_rate_limited(limited: RunningService) -> None:
    await completed(limited, await claimed(limited, "done"))
    answers = await asyncio.gather(
        *(limited.submit("payments.charge", f"k{n}", CHARGE, wait=0) for n in range(20))
    )
    refused = [answer for answer in answers if answer.status_code == 429]
    accepted = [answer for answer in answers if answer.status_code == 202]
    assert (len(accepted), len(refused)) == (5, 15)
    for answer in refused:
        assert answer.json()["type"] == "/problems/rate-limited"
        assert 1 <= int(answer.headers["retry-after"]) <= 100
    assert await run_sql(limited, "SELECT count(*) FROM claims") == 6, "a refusal claims nothing"
    attached = accepted[0].json()["key"]
    for key, status in (("done", 201), (attached, 202)):
        again = await asyncio.gather(
            *(limited.submit("payments.charge", key, CHARGE, wait=0) for _ in range(30))
        )
        assert {answer.status_code for answer in again} == {status}
    other = await limited.submit("payments.charge", "done", {**CHARGE, "card": "x"}, wait=0)
    assert other.status_code == 409


async def test_storm_of_one_new_key_costs_one_token(limited: RunningService) -> None:
    async def submit(key: str) -> httpx.Response:
        return await limited.submit("payments.charge", key, CHARGE, wait=0)

    for storm in range(5):
        answers = await asyncio.gather(*(submit(f"storm-{storm}") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {202}
    assert (await submit("one-more")).status_code == 429


async def test_metrics_count_what_became_of_submissions(quiet: RunningService) -> None:
    def counted(text: str, fate: str) -> float:
        name = f'tallystick_claims_total{{fate="{fate}",operation="payments.charge"}} '
        return sum(float(line[len(name) :]) for line in text.splitlines() if line.startswith(name))

    fates = ("fresh", "attached", "replayed", "refused")
    before = (await quiet.http.get("/metrics")).text
    await completed(quiet, await claimed(quiet, "done"))
    await quiet.submit("payments.charge", "k", CHARGE, wait=0)
    await quiet.submit("payments.charge", "k", CHARGE, wait=0)
    await quiet.submit("payments.charge", "done", CHARGE)
    await quiet.submit("payments.charge", "k", {})
    answer = await quiet.http.get("/metrics")
    after = answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert [counted(after, fate) - counted(before, fate) for fate in fates] == [1, 1, 1, 1]
    line = 'tallystick_requests_total{operation="payments.charge",outcome="succeeded",status="201"}'
    assert line in after
    assert 'tallystick_request_seconds_bucket{le="0.05",operation="payments.charge"}' in after
    assert "tallystick_waiting_requests" in after
    assert quiet.tenant not in after


async def test_bug_is_a_problem_document_without_internals(
    quiet: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise LookupError("select secret from somewhere")

    monkeypatch.setattr("api.resources.resource", broken)
    await claimed(quiet, "k")
    with structlog.testing.capture_logs() as logged:
        answer = await quiet.http.get(f"{CHARGE_PATH}/k")
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal-error")
    failures = [line for line in logged if line["event"] == "request.failed"]
    assert [line["request_id"] for line in failures] == [answer.json()["request_id"]]
    assert "secret" not in answer.text
    assert (await quiet.http.get("/problems/internal-error")).status_code == 200


async def test_a_tenant_with_too_many_starts_waiting_is_refused_new_ones(
    quiet: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await claimed(quiet, "known")
    await completed(quiet, known)

    def full(_turns: Turns, tenant: str) -> bool:
        return tenant == quiet.tenant

    monkeypatch.setattr(Turns, "is_full", full)
    refused = await quiet.submit("payments.charge", "new", CHARGE)
    assert (refused.status_code, refused.json()["type"]) == (429, "/problems/rate-limited")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await quiet.submit("payments.charge", "known", CHARGE)).status_code == 201
