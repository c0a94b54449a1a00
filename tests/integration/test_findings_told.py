"""`finding.opened`: a tenant is told of what concerns its operations, once, and of nothing else."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ledger.reconciliation_pages
from ledger.claims import Intent
from operations.failpoints import VARIABLE, Failpoint, from_environment
from operations.keys import Purpose, derived_key, workflow_id
from runtime.settings import Settings
from support.books import Books
from support.reconciling import reconcile
from support.service import RunningService, running_service
from support.webhooks import Receiver, receiving
from support.world import World

HOUR = timedelta(hours=1)


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


async def lost_charge(service: RunningService, *, at: datetime) -> str:
    """An operation that was accepted at `at` and whose run is gone; the reference of its charge."""
    intent = Intent(service.tenant, "payments.charge", "lost", b"f" * 32, "{}", "{}", tells=False)
    claim = await service.ledger.claims.claim(intent, now=at)
    await service.ledger.relay.check_again([claim.id], at=datetime.now(UTC) + HOUR)
    run = workflow_id(operation="payments.charge", tenant=service.tenant, key="lost")
    return derived_key(workflow_id=run, step="charge", ordinal=0, purpose=Purpose.ACTION)


async def seed(service: RunningService, world: World, *, stranger: str) -> None:
    """One defect of every kind that concerns the tenant, two that concern nobody we know, and one
    of another tenant."""
    url, since = service.settings.database_url.get_secret_value(), datetime.now(UTC) - HOUR
    ours = Books(url, service.tenant)
    wrong, doubled, missing, refunded = ours.charges(4, since=since)
    late = ours.charges(1, since=since, prefix="late", state="absent", outcome="compensated")
    await ours.write([wrong, doubled, missing, refunded, *late])
    theirs = Books(url, stranger)
    [other] = theirs.charges(1, since=since)
    await theirs.write([other])
    reference = await lost_charge(service, at=since)
    back = {"operation": "refund", "reference": None, "key": None}
    nobody: dict[str, Any] = {"reference": None, "key": None}
    records = [
        wrong.record(amount=1),
        doubled.record(),
        doubled.record(id="ch_twice", key=None),
        refunded.record(state="refunded"),
        refunded.record(id="re_excess", target=refunded.id, amount=refunded.amount + 5, **back),
        late[0].record(),
        wrong.record(id="ch_lost", reference=reference, key=None),
        wrong.record(id="ch_nobody", **nobody),
        refunded.record(id="re_nobody", target="ch_unheard_of", **back),
        other.record(amount=1),
    ]
    await world.seed("payments", records)


async def test_a_tenant_is_told_once_of_each_finding_about_its_operations_and_of_no_other(
    loopback: Settings, tenant: str, receiver: Receiver, world: World
) -> None:
    async with running_service(loopback, tenant=tenant) as service:
        made = await service.operator.put("/v1/endpoints/all", json={"url": receiver.url + "/"})
        assert made.status_code == 201, made.text
        await seed(service, world, stranger=f"{tenant}-other")
        run = await reconcile(service, "first")
        about = {row["id"]: row for row in run["findings"]}
        assert run["changes"]["opened"] == len(about) == 9
        again = await reconcile(service, "again")
        assert again["changes"]["opened"] == 0
        await receiver.until(lambda _: receiver.types().count("finding.opened") >= 6)
        # What comes behind shows that nothing else was on its way before it.
        behind = {"url": receiver.url + "/behind"}
        tag = {"If-Match": made.headers["etag"]}
        await service.operator.put("/v1/endpoints/all", json=behind, headers=tag)
        await receiver.until(lambda _: receiver.types(path="/behind") == ["endpoint.ping"])
    told = [one for one in receiver.attempts if one.document["type"] == "finding.opened"]
    assert len({one.id for one in told}) == len(told) == 6
    for one in told:
        one.verify(made.json()["secret"])
        data = one.document["data"]
        finding = about[data["id"]]
        assert data == {
            "id": finding["id"],
            "kind": finding["kind"],
            "provider": "payments",
            "operation": "payments.charge",
            "key": data["key"],
            "amount": finding["amount"],
            "links": finding["links"],
        }
    assert {(one.document["data"]["kind"], one.document["data"]["key"]) for one in told} == {
        ("amount_mismatch", "c-0"),
        ("duplicate", "c-1"),
        ("local_only", "c-2"),
        ("refund_excess", "c-3"),
        ("late", "late-0"),
        ("provider_only", "lost"),
    }


@pytest.mark.parametrize("place", [Failpoint.FINDINGS_COMMITTING, Failpoint.FINDINGS_COMMITTED])
async def test_a_page_that_fails_around_its_commit_tells_of_each_finding_once(
    loopback: Settings,
    tenant: str,
    world: World,
    place: Failpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    armed = from_environment({VARIABLE: f"{place}:1:raise"})
    monkeypatch.setattr(ledger.reconciliation_pages, "fail_at", armed)
    async with running_service(loopback, tenant=tenant) as service:
        await service.operator.put("/v1/endpoints/all", json={"url": "http://127.0.0.1:9/"})
        await seed(service, world, stranger=f"{tenant}-other")
        assert len((await reconcile(service, "only"))["findings"]) == 9
        query = "SELECT subject, count(*) FROM outbox WHERE type = 'finding.opened' GROUP BY 1"
        async with service.ledger.database.connection() as connection:
            told = [row["count"] for row in await connection.fetch(query)]
    assert told == [1] * 6
