"""`payments.charge_legacy`: an acquirer without keys is never asked to do the same thing twice."""

import asyncio
import base64
import os
from collections.abc import AsyncGenerator

import pytest
from pydantic import SecretStr

from runtime.profiles import ProfileOverride
from runtime.settings import Settings
from support.service import CHARGE, RunningService, running_service
from support.world import World

LEGACY = "payments.charge_legacy"
HORIZON_SECONDS = 2.5
"""Longer than the lagging acquirer's two seconds, and short enough for a test."""


@pytest.fixture
async def quick(settings: Settings, tenant: str, world: World) -> AsyncGenerator[RunningService]:
    """A service whose acquirer promises to show its records soon."""
    figures = ProfileOverride(lookup_horizon_seconds=HORIZON_SECONDS, lookup_interval_seconds=0.2)
    settings = settings.model_copy(update={"provider_profiles": {"acquirer": figures}})
    async with running_service(settings, tenant=tenant) as running:
        yield running


async def test_a_sale_is_made_once_and_its_receipt_is_replayed(
    quick: RunningService, world: World
) -> None:
    first = await quick.submit(LEGACY, "k", CHARGE, wait=30)
    again = await quick.submit(LEGACY, "k", CHARGE, wait=30)
    assert first.status_code == 201
    assert first.json()["amount"] == CHARGE["amount"]
    assert again.content == first.content
    (sale,) = await world.ledger("acquirer")
    assert sale["id"] == first.json()["charge_id"]


@pytest.mark.parametrize("temperament", ["consistent", "lagging"])
async def test_whether_a_lost_request_arrived_is_found_out_and_it_counts_once(
    quick: RunningService, world: World, temperament: str
) -> None:
    await world.temperament(temperament)
    try:
        await world.faults("acquirer", "commit_then_drop", operation="charge")
        came = await quick.submit(LEGACY, "came", CHARGE, wait=30)
        await world.faults("acquirer", "drop_before_commit", operation="charge")
        never, states = await asyncio.gather(
            quick.submit(LEGACY, "never", CHARGE, wait=30), states_of(quick, "never")
        )
    finally:
        await world.temperament("consistent")
    assert (came.status_code, never.status_code) == (201, 201)
    sales = [row["id"] for row in await world.ledger("acquirer")]
    assert "unknown" in states, "a doubt is shown as one while it lasts"
    assert sales == [came.json()["charge_id"], never.json()["charge_id"]]


async def states_of(service: RunningService, key: str) -> set[str]:
    """Every state that the step shows until it is confirmed."""
    states: set[str] = set()
    async with asyncio.timeout(20):
        while "confirmed" not in states:
            # Not with `wait`: that may answer after a doubt that lasts for a second and a half.
            found = await service.http.get(f"/v1/operations/{LEGACY}/{key}")
            if found.status_code == 200:
                states.add(found.json()["steps"][0]["state"])
            await asyncio.sleep(0.02)
    return states


async def test_a_definite_no_is_a_receipt(quick: RunningService, world: World) -> None:
    answer = await quick.submit(LEGACY, "k", {**CHARGE, "card": "tok_declined"}, wait=30)
    assert (answer.status_code, answer.json()["code"]) == (402, "card_declined")
    assert await world.ledger("acquirer") == []


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_with_payload_keys_nothing_readable_stands_in_the_history(
    settings: Settings, tenant: str, world: World, encrypted: bool
) -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    keys = SecretStr(f"k1:{key}") if encrypted else None
    settings = settings.model_copy(update={"payload_keys": keys, "acquirer_blind": True})
    card = "tok_secret_4711"
    async with running_service(settings, tenant=tenant) as service:
        await world.faults("acquirer", "commit_then_500", operation="charge")
        answer = await service.submit(LEGACY, "k", {**CHARGE, "card": card}, wait=30)
        assert answer.headers["operation-state"] == "parked"
        (sale,) = await world.ledger("acquirer")
        tag = (await service.operator.get(f"/v1/operations/{LEGACY}/k")).headers["etag"]
        decided = await service.operator.post(
            f"/v1/operations/{LEGACY}/k/steps/charge/resolution",
            json={
                "verdict": "confirmed",
                "provider_reference": sale["id"],
                "evidence": "a secret statement",
            },
            headers={"If-Match": tag},
        )
        assert decided.status_code == 200, decided.text
        done = await service.settled(LEGACY, "k")
        assert done["result"]["body"]["charge_id"] == sale["id"]
        run = service.temporal.get_workflow_handle(service.workflow_id(LEGACY, "k"))
        raw = b"".join(event.SerializeToString() for event in (await run.fetch_history()).events)
    readable = {text for text in (card, "a secret statement", sale["id"]) if text.encode() in raw}
    assert readable == (set() if encrypted else {card, "a secret statement", sale["id"]})
