"""Events out: at least once, in order per operation, and never in anybody's way."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from ledger.claims import Claim, Intent
from ledger.database import Database
from ledger.ledger import Ledger
from ledger.outbox import DISABLE_AFTER_DAYS, LEASE_SECONDS, Delivery
from operations.contracts import Completion, Progress, StoredReceipt
from operations.states import ClaimState, Outcome
from runtime.deliverer import Deliverer, GuardedResolver
from runtime.settings import Settings
from support.service import CHARGE, RunningService, client_of, running_service, serving
from support.webhooks import Received, Receiver, receiving

NOW = datetime.now(UTC)
SECRET = "whsec_c2VjcmV0LW9mLWFuLWVuZHBvaW50"
TRANSFER = {"from": "cash", "to": "sales", "amount": {"minor": 5, "currency": "EUR"}}
RECEIPT = StoredReceipt(status=201, headers=(), body=b"{}")


@pytest.fixture
async def ledger(database_url: str) -> AsyncGenerator[Ledger]:
    """A ledger of the test's own."""
    opened = Ledger.on(await Database.open(database_url))
    yield opened
    await opened.close()


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    """A tenant's server."""
    async with receiving() as opened:
        yield opened


@pytest.fixture
def loopback(settings: Settings) -> Settings:
    """Settings that allow endpoints on this machine."""
    allowed = {"endpoints_allow_http": True, "endpoints_allow_private": True}
    return settings.model_copy(update=allowed)


async def test_an_operations_events_arrive_in_order_signed_and_until_they_are_taken(
    loopback: Settings, tenant: str, receiver: Receiver
) -> None:
    failures = {"operation.accepted": 1}

    def answer(received: Received) -> int:
        kind = received.document["type"]
        failures[kind] = failures.get(kind, 0) - 1
        return 503 if failures[kind] >= 0 else 200

    receiver.answer = answer
    async with running_service(loopback, tenant=tenant) as service:
        made = await service.operator.put("/v1/endpoints/all", json={"url": receiver.url + "/"})
        assert made.status_code == 201, made.text
        done = await service.submit("payments.charge", "k", CHARGE)
        assert done.status_code == 201
        await receiver.until(lambda _: "operation.done" in receiver.types())
        for received in receiver.attempts:
            received.verify(made.json()["secret"])
        told = [one for one in receiver.attempts if one.document["type"] != "endpoint.ping"]
        assert [one.document["type"] for one in told] == ["operation.accepted"] * 2 + [
            "operation.done"
        ]
        assert len({(one.id, one.body) for one in told}) == 2
        accepted, ended = told[0].document["data"], told[-1].document["data"]
        assert accepted["revision"] < ended["revision"]
        assert ended == {
            "operation": "payments.charge",
            "key": "k",
            "state": "done",
            "outcome": "succeeded",
            "status": 201,
            "revision": ended["revision"],
        }
        for account in ("cash", "sales"):
            await service.http.put(f"/v1/accounts/{account}", json={"currency": "EUR"})
        refused = await service.submit("accounts.transfer", "t", TRANSFER)
        assert refused.status_code == 402  # a local operation, told of in its one transaction
        await receiver.until(lambda _: receiver.types().count("operation.done") == 2)
        told_last = receiver.attempts[-1].document["data"]
        assert (told_last["operation"], told_last["outcome"]) == ("accounts.transfer", "declined")
        async with asyncio.timeout(10):
            while (seen := await _seen(service))["pending"]:
                continue
        assert (seen["state"], seen["failures"]) == ("enabled", 0)


async def test_what_is_submitted_after_the_first_endpoints_answer_is_told_of_by_every_process(
    loopback: Settings, tenant: str
) -> None:
    async with (
        running_service(loopback, tenant=tenant, with_worker=False) as service,
        serving(loopback) as url,
        client_of(url, service.token) as elsewhere,
    ):
        keyed = {"Idempotency-Key": "before", "Prefer": "respond-async"}
        path = "/v1/operations/payments.charge"
        assert (await elsewhere.post(path, json=CHARGE, headers=keyed)).status_code == 202
        made = await service.operator.put("/v1/endpoints/all", json={"url": "http://127.0.0.1:9/"})
        assert made.status_code == 201
        after = {**keyed, "Idempotency-Key": "after"}
        assert (await elsewhere.post(path, json=CHARGE, headers=after)).status_code == 202
        events = await _take(service.ledger, now=datetime.now(UTC))
        assert sorted(event.type for event in events) == ["endpoint.ping", "operation.accepted"]


async def test_a_dead_endpoint_holds_up_nobody(ledger: Ledger, receiver: Receiver) -> None:
    receiver.answer = lambda received: None if received.path == "/dead" else 200
    for tenant in ("dead", "alive"):
        await _endpoint(ledger, tenant, f"{receiver.url}/{tenant}")
    claims = [await _claim(ledger, tenant, n) for n in range(20) for tenant in ("dead", "alive")]
    async with _delivering(ledger):
        await receiver.until(
            lambda _: Counter(receiver.types(path="/alive"))["operation.accepted"] == 20, seconds=8
        )
        await asyncio.gather(*(_end(ledger, claim) for claim in claims))
        await receiver.until(
            lambda _: Counter(receiver.types(path="/alive"))["operation.done"] == 20, seconds=8
        )
    assert len(receiver.types(path="/dead")) <= 11


async def test_many_operations_keep_their_own_order(ledger: Ledger, receiver: Receiver) -> None:
    flaky = iter(range(10_000))
    receiver.answer = lambda _: 500 if next(flaky) % 9 == 5 else 200
    await _endpoint(ledger, "acme", f"{receiver.url}/")
    claims = [await _claim(ledger, "acme", n) for n in range(12)]
    async with _delivering(ledger, hurry=60), _delivering(ledger, hurry=60):
        for claim in claims:
            await _park(ledger, claim)
            await _end(ledger, claim)
        await receiver.until(lambda _: sum(map(len, _orders(receiver).values())) == 36)
    for order in _orders(receiver).values():
        assert order == ["operation.accepted", "operation.parked", "operation.done"]


async def test_what_was_committed_is_delivered_after_a_death(
    ledger: Ledger, receiver: Receiver
) -> None:
    await _endpoint(ledger, "acme", f"{receiver.url}/")
    await _claim(ledger, "acme", 1)
    taken = await _take(ledger, now=NOW + timedelta(seconds=1))
    assert {delivery.type for delivery in taken} == {"endpoint.ping", "operation.accepted"}
    # The process that took them dies here. Nobody else takes them while they may be under way.
    assert await _take(ledger, now=NOW + timedelta(seconds=LEASE_SECONDS - 1)) == ()
    async with _delivering(ledger, ahead_seconds=LEASE_SECONDS + 2):
        await receiver.until(lambda found: len(found) == 2)
    assert {one.id for one in receiver.attempts} == {delivery.message_id for delivery in taken}


async def test_an_endpoint_that_fails_for_days_is_switched_off_and_says_why(
    ledger: Ledger,
) -> None:
    await _endpoint(ledger, "acme", "https://example.org/")
    for days in range(DISABLE_AFTER_DAYS + 1):
        now = NOW + timedelta(days=days, minutes=1)
        (delivery,) = await _take(ledger, now=now)
        still_on = await ledger.outbox.failed(delivery, error="It answered 500", now=now)
        assert still_on is (days < DISABLE_AFTER_DAYS)
    assert await _take(ledger, now=NOW + timedelta(days=9)) == ()
    endpoint = await ledger.endpoints.read(tenant="acme", endpoint="all")
    assert endpoint is not None
    assert (endpoint.enabled, endpoint.last_error, endpoint.pending) == (
        False,
        "It answered 500",
        1,
    )


async def test_endpoints_are_managed_on_the_version_that_was_read(
    loopback: Settings, tenant: str
) -> None:
    first, second = {"url": "http://127.0.0.1:9/a"}, {"url": "http://127.0.0.1:9/b"}
    async with running_service(loopback, tenant=tenant, with_worker=False) as service:
        http, path = service.operator, "/v1/endpoints/orders"
        assert (await service.http.put(path, json=first)).status_code == 403
        made = await http.put(path, json=first)
        assert made.status_code == 201
        again = await http.put(path, json=first)
        assert (again.status_code, "secret" in again.json()) == (200, False)
        assert (await http.put(path, json=second)).status_code == 428
        stale = {"If-Match": '"other"'}
        known = {"If-Match": made.headers["etag"]}
        assert (await http.put(path, json=second, headers=stale)).status_code == 412
        changed = await http.put(path, json=second, headers=known)
        assert (changed.status_code, changed.json()["url"]) == (200, second["url"])
        assert (await http.post(f"{path}/secret", headers=known)).status_code == 412
        rotated = await http.post(f"{path}/secret", headers={"If-Match": changed.headers["etag"]})
        assert rotated.json()["secret"] != made.json()["secret"]
        deliveries = await _take(service.ledger, now=datetime.now(UTC))
        assert {one.secrets for one in deliveries} == {
            (rotated.json()["secret"], made.json()["secret"])
        }
        assert [one["id"] for one in (await http.get("/v1/endpoints")).json()["endpoints"]] == [
            "orders"
        ]
        gone = await http.delete(path, headers={"If-Match": rotated.headers["etag"]})
        assert gone.status_code == 204
        assert (await http.get(path)).status_code == 404


async def test_an_endpoint_inside_the_network_is_refused(settings: Settings, tenant: str) -> None:
    async with running_service(settings, tenant=tenant, with_worker=False) as service:
        for url in ("http://example.org/", "https://169.254.169.254/", "https://localhost/"):
            answer = await service.operator.put("/v1/endpoints/x", json={"url": url})
            assert answer.status_code == 422, url


async def test_a_name_that_points_inward_is_refused_when_it_is_connected(
    receiver: Receiver,
) -> None:
    url = receiver.url.replace("127.0.0.1", "localhost")
    for allowed in (True, False):
        connector = aiohttp.TCPConnector(resolver=GuardedResolver(allow_private=allowed))
        async with aiohttp.ClientSession(connector=connector) as session:
            if allowed:
                assert (await session.post(url, json={})).status == 204
            else:
                with pytest.raises(aiohttp.ClientConnectorError):
                    await session.post(url, json={})


async def _seen(service: RunningService) -> dict[str, Any]:
    """The endpoint as its tenant sees it: a 2xx is noted a moment after it was sent."""
    return (await service.operator.get("/v1/endpoints/all")).json()


@asynccontextmanager
async def _delivering(
    ledger: Ledger, *, ahead_seconds: float = 0.0, hurry: int = 1
) -> AsyncGenerator[None]:
    """A deliverer; `hurry` makes its clock, and so its pauses, so many times faster."""
    began = datetime.now(UTC)

    def now() -> datetime:
        passed = datetime.now(UTC) - began
        return began + passed * hurry + timedelta(seconds=ahead_seconds)

    deliverer = Deliverer(ledger, now=now, allow_http=True, allow_private=True, poll_seconds=0.05)
    task = asyncio.create_task(deliverer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _take(ledger: Ledger, *, now: datetime) -> tuple[Delivery, ...]:
    return await ledger.outbox.take(busy=[], each_max=10, endpoints_max=10, now=now)


async def _endpoint(ledger: Ledger, tenant: str, url: str) -> None:
    made = await ledger.endpoints.add(
        tenant=tenant, endpoint="all", url=url, secret=SECRET, now=NOW
    )
    assert made is not None


async def _claim(ledger: Ledger, tenant: str, number: int) -> Claim:
    intent = Intent(tenant, "payments.charge", f"k-{number}", b"f" * 32, "{}", "{}")
    return await ledger.claims.claim(intent, now=NOW)


async def _park(ledger: Ledger, claim: Claim) -> None:
    for _ in range(2):
        progress = Progress(claim_id=claim.id, tenant=claim.tenant, state=ClaimState.PARKED)
        await ledger.progress.record(progress, now=NOW)


async def _end(ledger: Ledger, claim: Claim) -> None:
    completion = Completion(
        claim_id=claim.id,
        tenant=claim.tenant,
        operation=claim.operation,
        workflow_id=f"w-{claim.id}",
        outcome=Outcome.SUCCEEDED,
        receipt=RECEIPT,
        retention_days=1,
    )
    for _ in range(2):
        await ledger.progress.complete(completion, now=NOW)


def _orders(receiver: Receiver) -> dict[str, list[str]]:
    """By key: the types of its events, each where it was first seen."""
    seen: set[str] = set()
    orders: dict[str, list[str]] = {}
    for one in receiver.attempts:
        data: dict[str, Any] = one.document["data"]
        if "key" in data and one.id not in seen:
            seen.add(one.id)
            orders.setdefault(data["key"], []).append(one.document["type"])
    return orders
