"""The front door from outside: who gets in, what is told to whom, and what is never told."""

import contextlib
import io
import logging
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from temporalio import activity

from runtime.telemetry import configure_logs
from support.service import CHARGE, ORDER, RunningService
from support.world import World

OPEN_PATHS = {"/healthz", "/readyz", "/metrics", "/problems/{name}", "/v1/webhooks/{provider}"}
"""What needs no key. Webhooks need a signature instead."""

NOT_IN_THE_DOCUMENT = ("/docs", "/docs/start.js", "/openapi.json")
STRANGERS = (None, "Bearer tsk_0123456789ab_wrong", "Basic dTpw", "Bearer", "Bearer x")


async def _routes(service: RunningService) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path with something in its parameters, and description of every route."""
    document = (await service.http.get("/openapi.json")).json()
    return [
        (method.upper(), path, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
    ]


def _filled(path: str) -> str:
    values = {"id": "cash", "finding": "1", "run": "1", "provider": "payments", "step": "charge"}
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "key-1"), path)


async def test_every_route_but_the_named_ones_wants_a_key(quiet: RunningService) -> None:
    routes = await _routes(quiet)
    assert {path for _, path, found in routes if "security" not in found} == OPEN_PATHS
    let_in: list[str] = []
    for method, path, _ in routes:
        if path in OPEN_PATHS:
            continue
        for credential in STRANGERS if method == "GET" else STRANGERS[:2]:
            request = quiet.http.build_request(method, _filled(path), json={})
            del request.headers["authorization"]
            if credential is not None:
                request.headers["authorization"] = credential
            answer = await quiet.http.send(request)
            if answer.status_code != 401 or "www-authenticate" not in answer.headers:
                let_in.append(f"{method} {path} {credential}: {answer.status_code}")
    assert let_in == []


async def test_what_is_not_in_the_document_wants_a_key_or_is_documentation(
    quiet: RunningService,
) -> None:
    for path in NOT_IN_THE_DOCUMENT:
        assert (await quiet.http.get(path, headers={"Authorization": ""})).status_code == 200
    generic = "/v1/operations/payments.charge/k"
    for path in (generic, f"{generic}/receipt", f"{generic}/events"):
        answer = await quiet.http.head(path, headers={"Authorization": ""})
        assert answer.status_code == 401


async def test_operators_routes_refuse_clients(quiet: RunningService) -> None:
    operators = [
        (method, path)
        for method, path, found in await _routes(quiet)
        if found.get("security") == [{"operator_key": []}]
    ]
    assert len(operators) > 15
    for method, path in operators:
        answer = await quiet.http.request(
            method, _filled(path), json={}, headers={"Idempotency-Key": "k", "If-Match": "*"}
        )
        assert (method, path, answer.status_code) == (method, path, 403)


async def test_docs_load_nothing_from_elsewhere(quiet: RunningService) -> None:
    page = await quiet.http.get("/docs")
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(sources) >= 3
    assert not [source for source in sources if "//" in source]
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "default-src 'none'" in policy
    for source in sources:
        if not source.startswith("data:"):
            found = await quiet.http.get(f"/{source}")
            assert found.status_code == 200
            assert found.headers["x-content-type-options"] == "nosniff"
    assert (await quiet.http.get("/docs/..%2Fapp.py")).status_code in {404, 422}


async def test_405_names_what_all_routes_of_the_path_allow(quiet: RunningService) -> None:
    answer = await quiet.http.patch("/v1/accounts/cash", json={})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, PUT"
    answer = await quiet.http.delete("/v1/operations/orders.place/k")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, PUT")


async def test_numbers_are_not_taken_for_dates_or_booleans(quiet: RunningService) -> None:
    runs = "/v1/reconciliation/payments/runs"
    for body in ({"since": 1_700_000_000}, {"since": "1700000000"}, {"dry_run": 1}):
        answer = await quiet.operator.post(runs, json=body, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 422
    answer = await quiet.http.get("/v1/operations", params={"created_after": "1700000000"})
    assert answer.status_code == 422


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    """All that is logged, at the finest level a deployment can choose."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    configured = structlog.get_config()
    written = io.StringIO()
    with contextlib.redirect_stderr(written):
        configure_logs(style="json", level="debug")
    # A logger that was used once would be the one of this test for ever.
    structlog.configure(cache_logger_on_first_use=False)
    yield written
    root.handlers[:] = before
    root.setLevel(level)
    structlog.configure(**configured)


async def test_logs_and_metrics_hold_no_key_no_body_and_no_credential(
    logs: io.StringIO, service: RunningService, world: World
) -> None:
    marker = f"m4rk{uuid.uuid4().hex[:8]}"
    body = {**CHARGE, "card": f"tok_{marker}", "description": marker}
    order = {**ORDER, "card": f"tok_{marker}", "email": f"{marker}@example.org", "address": marker}
    await world.faults("payments", "commit_then_500", operation="charge", times=1)
    await world.faults("carrier", "decline", operation="book", times=1)
    done = await service.submit("payments.charge", f"{marker}-1", body, wait=30)
    undone = await service.submit("orders.place", f"{marker}-2", order, wait=30)
    assert (done.status_code, undone.status_code) == (201, 424)
    key = {"Idempotency-Key": f"{marker}-3"}
    path = "/v1/operations/payments.charge"
    refused = [
        await service.submit("payments.charge", f"{marker}-1", {**body, "description": "x"}),
        await service.submit("payments.charge", f"{marker}-3", {**body, marker: marker}),
        await service.http.post(path, content=f'{{"{marker}": ', headers=key),
        await service.http.post(path, json=body, headers={"Idempotency-Key": f"{marker} , x"}),
        await service.http.get(f"{path}/{marker}-never"),
        await service.http.get(f"/{marker}"),
        await service.http.get(path, headers={"Authorization": f"Bearer tsk_{marker}_{marker}"}),
        await service.http.get(
            f"{path}/k", headers={"Authorization": f"Bearer tsk_{marker}_{marker}"}
        ),
        await service.http.post(
            "/v1/webhooks/payments", content=marker, headers={"webhook-signature": marker}
        ),
    ]
    assert {answer.status_code for answer in refused} == {409, 422, 400, 404, 405, 401}
    metrics = (await service.http.get("/metrics")).text
    everything = logs.getvalue() + metrics
    assert "tallystick_requests_total" in everything
    secret = service.token.rpartition("_")[2]
    assert secret not in everything
    assert service.tenant not in metrics
    leaks = [line[:400] for line in everything.splitlines() if marker in line]
    assert leaks == [], "\n".join(leaks)
    assert activity.logger.activity_info_on_message is False
