"""Outages of real parts: the answer is prompt and true, and nothing needs a restart."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import asyncpg
import httpx
import pytest

from ledger.migrate import migrate
from runtime.embedded.postgres import FAST_SETTINGS, EmbeddedPostgres
from runtime.embedded.temporal import EmbeddedTemporal
from runtime.settings import Settings
from support.boundary import CHARGE_PATH
from support.directories import open_directory
from support.service import CHARGE, RunningService, running_service
from support.world import World

WAIT_SECONDS = 1.0
BOUND_SECONDS = 4.0
"""For a refusal: the wait for a connection, and what a busy machine adds."""


@pytest.fixture(scope="module")
async def own_parts() -> AsyncIterator[tuple[EmbeddedPostgres, EmbeddedTemporal]]:
    """Servers that may be taken down."""
    with open_directory() as directory:
        for name in ("postgres", "temporal"):
            (directory / name).mkdir(mode=0o755)
        postgres = EmbeddedPostgres(directory / "postgres", settings=FAST_SETTINGS)
        temporal = EmbeddedTemporal(directory / "temporal")
        await asyncio.gather(postgres.__aenter__(), temporal.__aenter__())
        await migrate(postgres.url)
        yield postgres, temporal
        await asyncio.gather(*(part.__aexit__(None, None, None) for part in (postgres, temporal)))


@pytest.fixture
def own_settings(own_parts: tuple[EmbeddedPostgres, EmbeddedTemporal], world: World) -> Settings:
    postgres, temporal = own_parts
    return Settings.model_validate(
        {
            "database_url": postgres.url,
            "database_wait_seconds": WAIT_SECONDS,
            "temporal_address": temporal.address,
            "temporal_task_queue": f"q-{uuid.uuid4().hex[:10]}",
            "api_port": 0,
            "worker_drain_seconds": 1,
            **{f"{name}_url": world.urls[name] for name in world.urls if name != "admin"},
        }
    )


async def _asked(service: RunningService) -> dict[str, tuple[httpx.Response, float]]:
    """Every kind of request, all at once: the answers, and the seconds that each took."""

    async def timed(answer: asyncio.Future[httpx.Response]) -> tuple[httpx.Response, float]:
        began = monotonic()
        return await answer, monotonic() - began

    asked = {
        "submit": service.submit("payments.charge", "new", CHARGE),
        "replay": service.http.put(f"{CHARGE_PATH}/old", json=CHARGE),
        "read": service.http.get(f"{CHARGE_PATH}/old"),
        "hold": service.http.get(f"{CHARGE_PATH}/old", params={"wait": 30}),
        "receipt": service.http.get(f"{CHARGE_PATH}/old/receipt"),
        "events": service.http.get(f"{CHARGE_PATH}/old/events"),
        "list": service.http.get("/v1/operations"),
    }
    answers = await asyncio.gather(*(timed(asyncio.ensure_future(one)) for one in asked.values()))
    return dict(zip(asked, answers, strict=True))


async def _notices_that_postgres_is_gone(service: RunningService) -> None:
    """A backend may outlive its server by a moment, and answer: a stream that opens just then goes
    on through the outage, as it should, and would be waited for in vain."""
    async with asyncio.timeout(10):
        while (await service.http.get("/readyz")).status_code != 503:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)


async def _ended(service: RunningService, run: str) -> dict[str, Any]:
    """A reconciliation run once it has ended, without asking for it again."""
    async with asyncio.timeout(40):
        while True:
            document: dict[str, Any] = (await service.operator.get(run)).json()
            if document["ended_at"] is not None:
                return document
            await asyncio.sleep(0.1)


async def test_postgres_gone_is_503_and_recovers_without_a_restart(
    own_settings: Settings,
    own_parts: tuple[EmbeddedPostgres, EmbeddedTemporal],
    world: World,
    tenant: str,
) -> None:
    postgres, _ = own_parts
    async with running_service(own_settings, tenant=tenant) as service:
        first = await service.submit("payments.charge", "old", CHARGE, wait=30)
        assert first.status_code == 201
        await postgres.hold()
        await _notices_that_postgres_is_gone(service)
        for pause in (0.0, 6.0):  # at once, and when the copy of the keys has become stale
            await asyncio.sleep(pause)
            for kind, (answer, seconds) in (await _asked(service)).items():
                assert answer.status_code == 503, (kind, answer.text)
                assert answer.json()["type"] == "/problems/storage-unavailable"
                assert int(answer.headers["retry-after"]) >= 1
                assert seconds < BOUND_SECONDS, kind
        ready, alive = await service.http.get("/readyz"), await service.http.get("/healthz")
        assert (ready.status_code, ready.json()["postgres"]) == (503, "unreachable")
        assert alive.status_code == 200
        await postgres.release()
        async with asyncio.timeout(20):
            while (await service.submit("payments.charge", "new", CHARGE)).status_code == 503:
                pass
        new = await service.http.get(f"{CHARGE_PATH}/new/receipt")
        assert new.status_code == 201
        again = await service.http.put(f"{CHARGE_PATH}/old", json=CHARGE)
        assert (again.status_code, again.content) == (201, first.content)
        assert (await service.http.get("/readyz")).status_code == 200
    assert len(await world.ledger("payments", "charge")) == 2


async def test_temporal_gone_is_202_at_once_and_done_when_it_is_back(
    own_settings: Settings,
    own_parts: tuple[EmbeddedPostgres, EmbeddedTemporal],
    world: World,
    tenant: str,
) -> None:
    _, temporal = own_parts
    async with running_service(own_settings, tenant=tenant) as service:
        await temporal.hold()
        began = monotonic()
        answers = await asyncio.gather(
            *(service.submit("payments.charge", f"k{n % 3}", CHARGE, wait=20) for n in range(9))
        )
        assert monotonic() - began < BOUND_SECONDS
        ready = await service.http.get("/readyz")
        assert (ready.status_code, ready.json()["temporal"]) == (200, "unreachable")
        fresh = [answer for answer in answers if "preference-applied" not in answer.headers]
        assert {answer.status_code for answer in answers} == {202}
        assert fresh, "what did not wait does not say that it waited"
        await temporal.release()
        for number in range(3):
            await service.settled("payments.charge", f"k{number}", seconds=40)
    assert len(await world.ledger("payments", "charge")) == 3


async def test_a_reconciliation_asked_for_while_temporal_is_gone_runs_when_it_is_back(
    own_settings: Settings,
    own_parts: tuple[EmbeddedPostgres, EmbeddedTemporal],
    world: World,
    tenant: str,
) -> None:
    _, temporal = own_parts
    runs, keyed = "/v1/reconciliation/payments/runs", {"Idempotency-Key": "r", "Prefer": "wait=20"}
    schedule, daily = "/v1/reconciliation/payments/schedule", {"every": "P1D"}
    async with running_service(own_settings, tenant=tenant) as service:
        await world.seed("payments", [{"operation": "charge", "amount": 7, "currency": "EUR"}])
        await temporal.hold()
        asked = await service.operator.post(runs, json={}, headers=keyed)
        again = await service.operator.post(runs, json={}, headers=keyed)
        for answer in (asked, again):
            assert (answer.status_code, answer.json()["state"]) == (202, "accepted")
            assert int(answer.headers["retry-after"]) >= 1
        assert again.headers["location"] == asked.headers["location"]
        refused = await service.operator.put(schedule, json=daily)
        assert refused.status_code == 503
        assert refused.json()["type"] == "/problems/executor-unavailable"
        assert int(refused.headers["retry-after"]) >= 1
        await temporal.release()
        run = await _ended(service, asked.headers["location"])
        assert (run["state"], run["counts"]["provider_only"]) == ("done", 1)
        set_now = await service.operator.put(schedule, json=daily)
        assert (set_now.status_code, set_now.json()["every"]) == (200, "P1D")


async def test_exhausted_pool_is_a_bounded_wait_and_then_503(
    own_settings: Settings, tenant: str
) -> None:
    small = own_settings.model_copy(update={"database_connections": 2})
    async with running_service(small, tenant=tenant, with_worker=False) as service:
        await service.http.get("/v1/operations")
        blocker = await asyncpg.connect(small.database_url.get_secret_value())
        try:
            held = blocker.transaction()
            await held.start()
            await blocker.execute("LOCK TABLE claims IN ACCESS EXCLUSIVE MODE")
            began = monotonic()
            reads = [
                asyncio.ensure_future(service.http.get(f"{CHARGE_PATH}/k{n}")) for n in range(12)
            ]
            done, pending = await asyncio.wait(reads, timeout=BOUND_SECONDS)
            assert len(pending) <= 2, "only those that hold a connection still wait"
            assert {read.result().status_code for read in done} == {503}
            assert monotonic() - began <= BOUND_SECONDS + 1
            await held.rollback()
            assert {(await read).status_code for read in pending} == {404}
        finally:
            await blocker.close()
        assert (await service.http.get(f"{CHARGE_PATH}/k")).status_code == 404
