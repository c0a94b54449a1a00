"""Claims that share a statement: a row that somebody holds, or an endpoint that somebody deletes,
holds up nobody else, and a key is claimed once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from ledger import claims
from ledger.claims import Claim, Intent
from ledger.database import StorageUnavailable
from ledger.ledger import Ledger
from runtime import wiring
from runtime.settings import Settings


@pytest.fixture
async def ledger(settings: Settings) -> AsyncGenerator[Ledger]:
    """A ledger of its own."""
    async with wiring.open_ledger(settings, name="claims") as opened:
        yield opened


@asynccontextmanager
async def holding(settings: Settings, statement: str, *values: object) -> AsyncGenerator[Any]:
    """Somebody who has changed something, and has not committed it."""
    connection = await asyncpg.connect(settings.database_url.get_secret_value())
    try:
        await connection.execute("BEGIN")
        await connection.execute(statement, *values)
        yield connection
    finally:
        await connection.close()


def intent(tenant: str, key: str, *, tells: bool = False) -> Intent:
    return Intent(
        tenant=tenant,
        operation="payments.charge",
        key=key,
        fingerprint=bytes(33),
        request="{}",
        profiles="{}",
        tells=tells,
    )


async def claim_all(ledger: Ledger, *asked: Intent) -> list[Claim]:
    calls = (ledger.claims.claim(each, now=wiring.now()) for each in asked)
    return await asyncio.gather(*calls)


async def test_a_row_that_somebody_is_changing_is_read_at_once_and_holds_up_nobody(
    ledger: Ledger, settings: Settings, tenant: str
) -> None:
    [first] = await claim_all(ledger, intent(tenant, "k"))
    change = "UPDATE claims SET revision = 7 WHERE tenant = $1 AND key = 'k'"
    async with holding(settings, change, tenant), asyncio.timeout(2):
        keys = ["k", *(f"new-{number}" for number in range(20)), "k"]
        found = await claim_all(ledger, *(intent(tenant, key) for key in keys))
    assert [claim.fresh for claim in found] == [False, *([True] * 20), False]
    assert {found[0].id, found[-1].id} == {first.id}
    assert found[0].revision == first.revision


async def test_a_key_that_somebody_slow_is_claiming_is_refused_alone(
    ledger: Ledger, settings: Settings, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LOCK_WAIT_SECONDS", 0.2)
    claiming = (
        "INSERT INTO claims (tenant, operation, key, fingerprint, request, profiles, state,"
        " created_at, updated_at, check_at) VALUES ($1, 'payments.charge', 'k', ''::bytea, '{}',"
        " '{}', 'accepted', now(), now(), now())"
    )
    async with holding(settings, claiming, tenant) as holder:
        keys = [*(f"new-{number}" for number in range(20)), "k"]
        calls = (ledger.claims.claim(intent(tenant, key), now=wiring.now()) for key in keys)
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(found[-1], StorageUnavailable)
        assert all(isinstance(claim, Claim) and claim.fresh for claim in found[:-1])
        await holder.execute("COMMIT")
    [now_seen] = await claim_all(ledger, intent(tenant, "k"))
    assert not now_seen.fresh


async def test_one_key_asked_for_by_many_is_fresh_for_one(ledger: Ledger, tenant: str) -> None:
    asked = [intent(tenant, f"k{number % 10}") for number in range(200)]
    found = await claim_all(ledger, *asked)
    assert sum(claim.fresh for claim in found) == 10
    assert [claim.key for claim in found] == [each.key for each in asked]
    assert len({claim.id for claim in found}) == 10


async def test_an_endpoint_that_is_being_deleted_fails_no_claim(
    ledger: Ledger, settings: Settings, tenant: str
) -> None:
    url, at = "https://hooks.example/", wiring.now()
    assert await ledger.endpoints.add(
        tenant=tenant, endpoint="all", url=url, secret="whsec_c2VjcmV0", now=at
    )
    delete = "DELETE FROM endpoints WHERE tenant = $1"
    async with holding(settings, delete, tenant) as holder:
        asked = [intent(tenant, f"k{number}", tells=True) for number in range(10)]
        calls = asyncio.create_task(claim_all(ledger, *asked))
        await waits_for_a_lock(holder)
        await holder.execute("COMMIT")
        found = await calls
    assert all(claim.fresh for claim in found)


async def waits_for_a_lock(watcher: Any) -> None:
    """Wait until some statement waits for the watcher's transaction."""
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    )
    async with asyncio.timeout(10):
        while not await watcher.fetchval(asked):  # noqa: ASYNC110 - a lock tells nobody
            await asyncio.sleep(0.005)
