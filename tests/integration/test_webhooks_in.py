"""Webhooks in: verified, taken in once, moving states forward only, settling what is unknown."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from ledger import inbox
from ledger.claims import Intent
from ledger.database import Database
from ledger.ledger import Ledger
from operations.contracts import EffectRecord, Progress
from operations.guarantees import Guarantee
from operations.messages import Message, Novelty, Reading
from operations.states import ClaimState, EffectState
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.settings import Settings
from support.databases import cloned_database
from support.service import CHARGE, RunningService, running_service, tallystick
from support.webhooks import SECRET, STRIPE_SECRET, record, signed, stripe_signed
from support.world import World

NOW = datetime.now(UTC)
OTHER_SECRET = "whsec_b3RoZXI="


@pytest.fixture
def listening(settings: Settings) -> Settings:
    """Settings with secrets; two of them for the payments, of which the second signs."""
    secrets: dict[str, Any] = {
        "payments": (SecretStr(OTHER_SECRET), SecretStr(SECRET)),
        "acquirer": SecretStr(SECRET),
        "stripe": SecretStr(STRIPE_SECRET),
    }
    return settings.model_copy(update={"webhook_secrets": secrets})


@pytest.fixture
async def ledger(database_url: str) -> AsyncGenerator[Ledger]:
    """A ledger of the test's own."""
    opened = Ledger.on(await Database.open(database_url))
    yield opened
    await opened.close()


async def test_only_a_good_and_recent_signature_is_taken(listening: Settings, tenant: str) -> None:
    async with running_service(listening, tenant=tenant, with_worker=False) as service:
        body = record("ch_1", 1, "succeeded")

        async def sent(provider: str, body: bytes, headers: Any) -> tuple[int, str]:
            answer = await service.http.post(
                f"/v1/webhooks/{provider}", content=body, headers={"Authorization": "", **headers}
            )
            document = answer.json()
            return answer.status_code, document.get("status") or document["type"]

        invalid = (400, "/problems/signature-invalid")
        assert await sent("payments", body, signed(body)) == (200, "new")
        assert await sent("payments", body, signed(body, message_id="evt_2")) == (200, "repeated")
        assert await _refused(service, "payments", body + b" ", signed(body)) == invalid
        assert await _refused(service, "payments", body, signed(body, age_seconds=301)) == invalid
        assert await _refused(service, "payments", body, signed(body, age_seconds=-301)) == invalid
        assert await _refused(service, "payments", body, {}) == invalid
        assert await _refused(service, "mail", body, signed(body)) == invalid
        assert (await _refused(service, "nobody", body, signed(body)))[0] == 404
        garbage = {**signed(body), "webhook-signature": "v1,é v1 ,,"}
        assert await _refused(service, "payments", body, garbage) == invalid
        unknown = b'{"type": "something.else"}'
        assert await sent("payments", unknown, signed(unknown)) == (200, "new")
        assert await sent("payments", unknown, signed(unknown)) == (200, "repeated")
        newer = record("ch_1", 3, "refunded")
        late = record("ch_1", 2, "partially_refunded")
        assert await sent("payments", newer, signed(newer)) == (200, "new")
        assert await sent("payments", late, signed(late)) == (200, "late")
        assert await sent("payments", late, signed(late)) == (200, "repeated")


async def test_stripe_signs_in_its_own_way(listening: Settings, tenant: str) -> None:
    intent = {
        "object": "payment_intent",
        "id": "pi_1",
        "status": "succeeded",
        "amount": 2400,
        "amount_received": 2400,
        "currency": "eur",
        "created": 1_700_000_000,
        "metadata": {"tallystick_reference": "ts_unheard_of"},
    }
    body = json.dumps({"id": "evt_1", "object": "event", "data": {"object": intent}}).encode()
    async with running_service(listening, tenant=tenant, with_worker=False) as service:
        url = "/v1/webhooks/stripe"
        rotated = stripe_signed(body, secrets=("whsec_new", STRIPE_SECRET))
        assert (await service.http.post(url, content=body, headers=rotated)).status_code == 200
        again = await service.http.post(url, content=body, headers=stripe_signed(body))
        assert again.json() == {"status": "repeated"}
        for wrong in (
            stripe_signed(body, age_seconds=301),
            stripe_signed(body, secrets=("whsec_other",)),
            stripe_signed(body + b" "),
            {"Stripe-Signature": "t=1,v1="},
            signed(body),
        ):
            assert (await service.http.post(url, content=body, headers=wrong)).status_code == 400
        kept = await service.ledger.inbox.due(now=NOW + timedelta(hours=1), limit=10)
        assert kept == ()
        async with service.ledger.database.connection() as connection:
            row = await connection.fetchrow("SELECT * FROM inbox")
        assert row is not None
        assert (row["provider"], row["entity"], row["reading"]) == ("payments", "pi_1", "waiting")


async def test_an_event_settles_what_no_look_up_can(
    listening: Settings, tenant: str, world: World
) -> None:
    async with running_service(listening, tenant=tenant) as service:
        await world.temperament("blind")
        await world.faults("acquirer", "commit_then_drop", operation="charge")
        order = {
            "provider": "acquirer",
            "url": f"{service.url}/v1/webhooks/acquirer",
            "secret": SECRET,
            "mode": "thrice_shuffled",
            "seconds": 0.1,
        }
        try:
            assert (await world.admin("POST", "/admin/webhooks", order))[0] == 201
            answer = await service.submit("payments.charge_legacy", "k", CHARGE, wait=20)
        finally:
            await world.admin("DELETE", "/admin/webhooks")
            await world.temperament("consistent")
        assert answer.status_code == 201, answer.text
        (sale,) = await world.ledger("acquirer", "charge")
        assert await _decisions(service.ledger) == [
            ("confirmed", sale["id"], "webhook:acquirer", f"evt_{sale['id']}_1")
        ]


async def test_the_sweep_tells_a_run_what_a_dead_process_did_not(
    listening: Settings, tenant: str, world: World
) -> None:
    async with running_service(listening, tenant=tenant) as service:
        await world.temperament("blind")
        try:
            await world.faults("acquirer", "commit_then_drop", operation="charge")
            await service.submit("payments.charge_legacy", "k", CHARGE, wait=0)
            sales = await _sales(world)
            message = Message(
                provider="acquirer",
                entity=sales[0]["id"],
                version="1",
                rank=1,
                exists=True,
                reference=sales[0]["reference"],
                amount_minor=2400,
                currency="EUR",
            )
            taken = await service.ledger.inbox.take(message, now=datetime.now(UTC))
            assert taken.reading is Reading.CONFIRMED
            resource = await service.settled("payments.charge_legacy", "k", seconds=20)
        finally:
            await world.temperament("consistent")
        assert resource["outcome"] == "succeeded"
        assert len(await world.ledger("acquirer", "charge")) == 1


async def test_thrice_and_shuffled_ends_as_once_in_order(
    postgres: EmbeddedPostgres, template: str
) -> None:
    history = [
        _message(f"ch_{number}", version, state, reference=f"ref-{number}")
        for number in range(8)
        for version, state in enumerate(("succeeded", "partially_refunded", "refunded"), start=1)
    ]
    shuffled = history * 3
    random.Random(5).shuffle(shuffled)
    ends: list[Any] = []
    for messages in (history, shuffled):
        async with cloned_database(postgres.url, template=template) as url:
            ledger = Ledger.on(await Database.open(url))
            for number in range(8):
                await _unknown_effect(ledger, reference=f"ref-{number}")
            readings = await _take_side_by_side(ledger, messages)
            assert readings.count(Novelty.REPEATED) == len(messages) - len(history)
            ends.append(await _state(ledger))
            await ledger.close()
    assert ends[0] == ends[1]
    assert {row[1] for row in ends[0]["effects"]} == {"confirmed"}
    assert {row[2] for row in ends[0]["entities"]} == {"refunded"}


async def test_an_event_that_came_first_is_matched_once_its_effect_is_recorded(
    ledger: Ledger,
) -> None:
    early = await ledger.inbox.take(_message("ch_1", 1, "succeeded", reference="ref-1"), now=NOW)
    assert (early.reading, early.proof) == (Reading.WAITING, None)
    assert await ledger.inbox.due(now=NOW + timedelta(minutes=5), limit=10) == ()
    claim_id = await _unknown_effect(ledger, reference="ref-1", now=NOW + timedelta(minutes=6))
    (proof,) = await ledger.inbox.due(now=NOW + timedelta(minutes=6), limit=10)
    assert (proof.claim_id, proof.provider_reference) == (claim_id, "ch_1")
    async with ledger.database.connection() as connection:
        row = await connection.fetchrow("SELECT state, provider_reference FROM effects")
    assert row is not None
    assert tuple(row) == ("confirmed", "ch_1")


async def test_a_message_with_another_amount_settles_nothing(ledger: Ledger) -> None:
    await _unknown_effect(ledger, reference="ref-1")
    message = _message("ch_1", 1, "succeeded", reference="ref-1", amount=2300)
    assert (await ledger.inbox.take(message, now=NOW)).reading is Reading.DIFFERS
    async with ledger.database.connection() as connection:
        assert await connection.fetchval("SELECT state FROM effects") == "unknown"


ELSEWHERE = ("reconcile", "contradictions", "--provider", "acquirer")


async def test_operators_list_the_messages_that_contradict_our_books(
    listening: Settings, tenant: str
) -> None:
    path = "/v1/reconciliation/contradictions"
    async with running_service(listening, tenant=tenant, with_worker=False) as service:
        await _unknown_effect(service.ledger, reference="ref-1")
        for version, amount in ((1, 2300), (2, 2400)):  # the second one is right, and settles it
            message = _message("ch_1", version, "paid", reference="ref-1", amount=amount)
            await service.ledger.inbox.take(message, now=NOW)
        listed = (await service.operator.get(path)).json()["contradictions"]
        assert [(row["entity"], row["version"], row["reading"]) for row in listed] == [
            ("ch_1", "1", "differs")
        ]
        assert listed[0]["amount"] == {"minor": 2300, "currency": "EUR"}
        assert (listed[0]["tenant"], listed[0]["key"]) == ("acme", "ref-1")
        of_another = await service.operator.get(path, params={"provider": "acquirer"})
        assert of_another.json() == {"contradictions": [], "next_cursor": None}
        assert (await service.http.get(path)).status_code == 403
        assert await tallystick(service, "reconcile", "contradictions") == listed
        assert await tallystick(service, *ELSEWHERE) == []


async def test_what_a_consumer_rolls_back_was_not_taken(ledger: Ledger) -> None:
    message = _message("shipment-1", 1, "left")
    async with ledger.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        assert (await inbox.take(connection, message, now=NOW)).novelty is Novelty.NEW
        await transaction.rollback()
    async with ledger.database.transaction() as connection:
        assert (await inbox.take(connection, message, now=NOW)).novelty is Novelty.NEW


async def _sales(world: World) -> list[dict[str, Any]]:
    """What the acquirer committed, once it did."""
    async with asyncio.timeout(10):
        while True:
            if sales := await world.ledger("acquirer", "charge"):
                return sales


async def _refused(
    service: RunningService, provider: str, body: bytes, headers: dict[str, str]
) -> tuple[int, str]:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    answer = await service.http.post(f"/v1/webhooks/{provider}", content=body, headers=raw)
    return answer.status_code, answer.json()["type"]


def _message(
    entity: str, version: int, state: str, *, reference: str | None = None, amount: int = 2400
) -> Message:
    return Message(
        provider="payments",
        entity=entity,
        version=str(version),
        rank=version,
        state=state,
        exists=True,
        reference=reference,
        amount_minor=amount,
        currency="EUR",
    )


async def _unknown_effect(ledger: Ledger, *, reference: str, now: datetime = NOW) -> int:
    """An accepted operation with a charge of which nobody knows whether it happened."""
    claim = await ledger.claims.claim(
        Intent("acme", "payments.charge", reference, b"f" * 32, "{}", "{}"), now=now
    )
    effect = EffectRecord(
        step="charge",
        provider="payments",
        account="default",
        region="default",
        guarantee=Guarantee.KEYED,
        action="charge",
        key=reference,
        state=EffectState.UNKNOWN,
        request={"amount_minor": 2400, "currency": "EUR"},
        sends=1,
    )
    progress = Progress(
        claim_id=claim.id, tenant="acme", state=ClaimState.ACCEPTED, effects=(effect,)
    )
    assert await ledger.progress.record(progress, now=now)
    return claim.id


async def _take_side_by_side(ledger: Ledger, messages: Sequence[Message]) -> list[Novelty]:
    """Eight at a time, in the order given."""
    gate = asyncio.Semaphore(8)

    async def take(message: Message) -> Novelty:
        async with gate:
            return (await ledger.inbox.take(message, now=NOW)).novelty

    return list(await asyncio.gather(*(take(message) for message in messages)))


async def _state(ledger: Ledger) -> dict[str, Any]:
    queries = {
        "effects": "SELECT key, state, provider_reference FROM effects ORDER BY key",
        "entities": "SELECT entity, rank, state, version FROM entities ORDER BY entity",
        "inbox": "SELECT entity, version, state FROM inbox ORDER BY entity, version",
    }
    async with ledger.database.connection() as connection:
        return {
            name: [tuple(row) for row in await connection.fetch(query)]
            for name, query in queries.items()
        }


async def _decisions(ledger: Ledger) -> list[tuple[Any, ...]]:
    query = "SELECT verdict, provider_reference, decided_by, evidence FROM decisions"
    async with ledger.database.connection() as connection:
        return [tuple(row) for row in await connection.fetch(query)]
