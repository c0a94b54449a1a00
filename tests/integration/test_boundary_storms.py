"""Storms: clients that vanish, and a thousand who ask for the same of two APIs and workers."""

import asyncio
import collections
import json
import random

import aiohttp

from operations.keys import Purpose, derived_key, workflow_id
from runtime.settings import Settings
from support.boundary import CHARGE_PATH, raw_connection, raw_request, run_sql
from support.service import CHARGE, RunningService, running_service
from support.worker_process import api_process, worker_process
from support.world import World

SEED = 20261130
SUBMISSIONS = 1000
KEYS = 250
CLIENTS = 40
DUPLICATES = 1000
DISTINCT = 200
TRIES = 20
"""Of a client that does as it is told: on a busy machine a few are told 202 or 503 first."""

OPEN_CLAIMS = "SELECT count(*) FROM claims WHERE tenant = $1 AND state <> 'done'"
CLAIMS = "SELECT count(*) FROM claims WHERE tenant = $1"


async def _all_are_settled(service: RunningService) -> None:
    async with asyncio.timeout(90):
        while await run_sql(service, OPEN_CLAIMS, service.tenant):  # noqa: ASYNC110 - rows only
            await asyncio.sleep(0.25)


async def _submit_and_vanish(service: RunningService, key: str, chance: random.Random) -> None:
    """Submit, and be gone at a random moment: within the request, the wait, or the answer."""
    body = json.dumps(CHARGE).encode()
    fields = (("idempotency-key", key), ("content-length", str(len(body))))
    request = raw_request("POST", CHARGE_PATH, token=service.token, fields=fields) + body
    async with raw_connection(service.url) as connection:
        if chance.random() < 0.2:
            await connection.send(request[: chance.randrange(1, len(request))])
            return
        await connection.send(request)
        if chance.random() < 0.7:
            await asyncio.sleep(chance.random() * 0.2)
            return
        status, _ = await connection.head()
        assert status in {201, 202}


async def test_thousand_submissions_that_vanish_leave_one_effect_each(
    lively: RunningService, world: World
) -> None:
    chance = random.Random(SEED)
    keys = [f"k{number % KEYS}" for number in range(SUBMISSIONS)]
    chance.shuffle(keys)
    gate = asyncio.Semaphore(CLIENTS)

    async def one(key: str) -> None:
        async with gate:
            await _submit_and_vanish(lively, key, chance)

    await asyncio.gather(*(one(key) for key in keys))
    await _all_are_settled(lively)
    claims = await run_sql(lively, CLAIMS, lively.tenant)
    charges = await world.ledger("payments", "charge")
    assert KEYS * 0.9 < claims <= KEYS
    assert len(charges) == claims
    assert max(collections.Counter(row["key"] for row in charges).values()) == 1


async def test_two_apis_and_two_workers_pass_a_storm(
    settings: Settings, tenant: str, world: World
) -> None:
    """Four processes on one database and one task queue."""
    async with (
        running_service(settings, tenant=tenant, with_worker=False) as service,
        worker_process(settings),
        worker_process(settings),
        api_process(settings) as one,
        api_process(settings) as other,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=100)
        ) as session,
    ):

        async def submit(key: str, number: int) -> bytes:
            url = (one, other)[number % 2]
            headers = {"Authorization": f"Bearer {service.token}", "Prefer": "wait=60"}
            for _ in range(TRIES):
                async with session.put(
                    f"{url}{CHARGE_PATH}/{key}", json=CHARGE, headers=headers
                ) as answer:
                    assert answer.status in {201, 202, 503}, await answer.text()
                    if answer.status == 201:
                        return await answer.read()
                    await asyncio.sleep(float(answer.headers["retry-after"]))
            raise AssertionError(f"{key} was not answered")

        same = [submit("same", number) for number in range(DUPLICATES)]
        distinct = [submit(f"own-{number}", number) for number in range(DISTINCT)]
        answers = await asyncio.gather(*same, *distinct)
        assert len(set(answers[:DUPLICATES])) == 1
        assert len(set(answers[DUPLICATES:])) == DISTINCT
        assert await run_sql(service, CLAIMS, tenant) == DISTINCT + 1
    ours = {_derived(tenant, key) for key in ["same", *(f"own-{n}" for n in range(DISTINCT))]}
    charges = [row["key"] for row in await world.ledger("payments", "charge")]
    assert sorted(key for key in charges if key in ours) == sorted(ours)


def _derived(tenant: str, key: str) -> str:
    """The provider's key of the one charge of an operation."""
    run = workflow_id(operation="payments.charge", tenant=tenant, key=key)
    return derived_key(workflow_id=run, step="charge", ordinal=0, purpose=Purpose.ACTION)
