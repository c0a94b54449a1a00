"""What operators do: find what is parked, decide with evidence, cancel. On real parts."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from ledger.claims import Intent
from runtime.settings import Settings
from runtime.wiring import now
from support.service import CHARGE, ORDER, RunningService, running_service, tallystick
from support.world import World

LEGACY = "payments.charge_legacy"


@pytest.fixture
async def blind(settings: Settings, tenant: str, world: World) -> AsyncGenerator[RunningService]:
    """A service whose acquirer can be asked nothing."""
    asked_nothing = settings.model_copy(update={"acquirer_blind": True})
    async with running_service(asked_nothing, tenant=tenant) as running:
        yield running


async def parked(service: RunningService, world: World, key: str, *, mode: str) -> dict[str, Any]:
    """A legacy charge whose answer was lost, waiting for a person; returns its resource."""
    await world.faults("acquirer", mode, operation="charge")
    answer = await service.submit(LEGACY, key, CHARGE, wait=30)
    assert answer.status_code == 202, answer.text
    assert answer.headers["operation-state"] == "parked"
    assert int(answer.headers["retry-after"]) >= 30, "a person takes minutes"
    return answer.json()


async def read(service: RunningService, operation: str, key: str) -> tuple[dict[str, Any], str]:
    answer = await service.operator.get(f"/v1/operations/{operation}/{key}")
    return answer.json(), answer.headers["etag"]


async def decide(
    service: RunningService, key: str, *, operation: str = LEGACY, step: str = "charge", **body: Any
) -> httpx.Response:
    """A verdict on the version that is current now."""
    _, tag = await read(service, operation, key)
    return await service.operator.post(
        f"/v1/operations/{operation}/{key}/steps/{step}/resolution",
        json={"evidence": "the acquirer's statement of today", **body},
        headers={"If-Match": tag},
    )


async def cancel(
    service: RunningService, operation: str, key: str, *, tag: str | None = None
) -> httpx.Response:
    current = tag or (await read(service, operation, key))[1]
    return await service.operator.post(
        f"/v1/operations/{operation}/{key}/cancel",
        json={"reason": "the customer called"},
        headers={"If-Match": current},
    )


async def test_what_is_parked_can_be_found_in_the_list_and_in_temporal(
    blind: RunningService, world: World
) -> None:
    resource = await parked(blind, world, "k", mode="commit_then_drop")
    assert resource["steps"][0]["state"] == "parked"
    listed = (await blind.http.get("/v1/operations", params={"state": "parked"})).json()
    assert [row["key"] for row in listed["operations"]] == ["k"]
    query = f'TallystickState = "parked" AND TallystickTenant = "{blind.tenant}"'
    async with asyncio.timeout(15):
        while not [run async for run in blind.temporal.list_workflows(query)]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # Temporal's lists are written behind its histories
    run = blind.temporal.get_workflow_handle(blind.workflow_id(LEGACY, "k"))
    shown = await run.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert "**parked**" in shown.current_details
    assert "| charge | charge at acquirer | blind | parked |" in shown.current_details


async def test_a_confirmed_step_ends_the_operation_with_the_reference_and_the_evidence(
    blind: RunningService, world: World
) -> None:
    await parked(blind, world, "k", mode="commit_then_drop")
    (sale,) = await world.ledger("acquirer")
    answer = await decide(blind, "k", verdict="confirmed", provider_reference=sale["id"])
    assert answer.status_code == 200, answer.text
    assert answer.headers["etag"]
    (decision,) = answer.json()["decisions"]
    assert decision["step"] == "charge"
    assert decision["purpose"] == "action"
    assert decision["verdict"] == "confirmed"
    assert decision["provider_reference"] == sale["id"]
    assert decision["evidence"] == "the acquirer's statement of today"
    assert decision["decided_by"].startswith(f"{blind.tenant}/")
    done = await blind.settled(LEGACY, "k")
    assert done["result"] == {
        "status": 201,
        "body": {"charge_id": sale["id"], "amount": CHARGE["amount"]},
    }
    assert done["decisions"] == [decision]
    assert len(await world.ledger("acquirer")) == 1


async def test_what_is_absent_is_sent_again_and_what_is_given_up_is_left(
    blind: RunningService, world: World
) -> None:
    await parked(blind, world, "again", mode="drop_before_commit")
    assert (await decide(blind, "again", verdict="absent")).status_code == 200
    assert (await blind.settled(LEGACY, "again"))["outcome"] == "succeeded"
    assert len(await world.ledger("acquirer")) == 1
    await parked(blind, world, "over", mode="commit_then_drop")
    assert (await decide(blind, "over", verdict="abandon")).status_code == 200
    done = await blind.settled(LEGACY, "over")
    assert (done["outcome"], done["result"]["status"]) == ("abandoned", 424)
    assert len(await world.ledger("acquirer")) == 2


async def test_a_blind_provider_cannot_be_asked_again(blind: RunningService, world: World) -> None:
    await parked(blind, world, "k", mode="commit_then_drop")
    answer = await decide(blind, "k", verdict="retry")
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/verdict-refused"
    assert answer.json()["detail"].startswith("A blind provider cannot be asked again")
    assert (await read(blind, LEGACY, "k"))[0]["decisions"] == []


async def test_a_reference_of_another_effect_is_refused(
    blind: RunningService, world: World
) -> None:
    mine = await blind.submit(LEGACY, "mine", CHARGE, wait=30)
    await parked(blind, world, "k", mode="commit_then_drop")
    taken = mine.json()["charge_id"]
    answer = await decide(blind, "k", verdict="confirmed", provider_reference=taken)
    assert answer.status_code == 409
    assert "another effect" in answer.json()["detail"]


async def test_a_verdict_needs_the_role_the_version_and_the_evidence(
    blind: RunningService, world: World
) -> None:
    await parked(blind, world, "k", mode="commit_then_drop")
    path = f"/v1/operations/{LEGACY}/k/steps/charge/resolution"
    _, tag = await read(blind, LEGACY, "k")
    body = {"verdict": "absent", "evidence": "looked"}

    async def post(
        client: httpx.AsyncClient, to: str, content: dict[str, Any], **headers: str
    ) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await client.post(to, json=content, headers=named)
        return answer.status_code, answer.json()["type"].removeprefix("/problems/")

    refused = {
        "role": await post(blind.http, path, body, If_Match=tag),
        "no version": await post(blind.operator, path, body),
        "old version": await post(blind.operator, path, body, If_Match='"0-0"'),
        "weak version": await post(blind.operator, path, body, If_Match=f"W/{tag}"),
        "no evidence": await post(blind.operator, path, {"verdict": "absent"}, If_Match=tag),
        "blank": await post(blind.operator, path, {**body, "evidence": "  "}, If_Match=tag),
        "long": await post(blind.operator, path, {**body, "evidence": "x" * 2001}, If_Match=tag),
        "no reference": await post(
            blind.operator, path, {**body, "verdict": "confirmed"}, If_Match=tag
        ),
        "no such verdict": await post(blind.operator, path, {**body, "verdict": "x"}, If_Match=tag),
        "no such step": await post(
            blind.operator, path.replace("/charge/", "/pay/"), body, If_Match=tag
        ),
        "no such key": await post(blind.operator, path.replace("/k/", "/j/"), body, If_Match=tag),
        "no undo yet": await post(blind.operator, path, {**body, "purpose": "undo"}, If_Match=tag),
    }
    assert refused == {
        "role": (403, "forbidden"),
        "no version": (428, "precondition-required"),
        "old version": (412, "precondition-failed"),
        "weak version": (412, "precondition-failed"),
        "no evidence": (422, "validation-failed"),
        "blank": (422, "validation-failed"),
        "long": (422, "validation-failed"),
        "no reference": (422, "validation-failed"),
        "no such verdict": (422, "validation-failed"),
        "no such step": (404, "not-found"),
        "no such key": (404, "not-found"),
        "no undo yet": (409, "verdict-refused"),
    }
    assert (await read(blind, LEGACY, "k"))[1] == tag, "nothing was changed"


async def test_of_two_verdicts_at_once_one_counts(blind: RunningService, world: World) -> None:
    await parked(blind, world, "k", mode="drop_before_commit")
    _, tag = await read(blind, LEGACY, "k")
    path = f"/v1/operations/{LEGACY}/k/steps/charge/resolution"
    answers = await asyncio.gather(
        *(
            blind.operator.post(
                path, json={"verdict": verdict, "evidence": "looked"}, headers={"If-Match": tag}
            )
            for verdict in ("absent", "abandon", "absent", "abandon")
        )
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses[0] == 200
    assert set(statuses[1:]) <= {409, 412}
    assert len((await blind.settled(LEGACY, "k"))["decisions"]) == 1


async def test_an_undo_that_was_refused_is_decided_by_a_person(
    service: RunningService, world: World
) -> None:
    await world.faults("carrier", "decline", operation="book")
    await world.faults("payments", "decline", operation="refund", times=50)
    await service.submit("orders.place", "k", ORDER, wait=0)
    resource = await service.settled("orders.place", "k", state="parked")
    assert {step["name"]: step["undo_state"] for step in resource["steps"]}["charge"] == "parked"
    answer = await decide(
        service,
        "k",
        operation="orders.place",
        verdict="confirmed",
        provider_reference="credit-note-17",
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["decisions"][0]["purpose"] == "undo"
    done = await service.settled("orders.place", "k")
    assert done["outcome"] == "compensated"
    assert [row["operation"] for row in await world.ledger("payments")] == ["charge"]


async def test_a_cancel_of_what_waits_for_a_person_is_kept_until_the_person_decides(
    blind: RunningService, world: World
) -> None:
    await parked(blind, world, "k", mode="drop_before_commit")
    answer = await cancel(blind, LEGACY, "k")
    assert answer.status_code == 200, answer.text
    assert answer.json()["state"] == "parked", "nobody knows what there is to undo"
    wish = answer.json()["decisions"][0]
    assert (wish["step"], wish["verdict"]) == (None, "cancel")
    assert wish["evidence"] == "the customer called"
    assert (await decide(blind, "k", verdict="absent")).status_code == 200
    done = await blind.settled(LEGACY, "k")
    assert done["outcome"] == "cancelled"
    assert await world.ledger("acquirer") == []


async def test_a_cancel_while_a_step_is_under_way_undoes_it(
    service: RunningService, world: World
) -> None:
    await world.faults("warehouse", "slow", operation="reserve", seconds=1.5)
    await service.submit("orders.place", "k", ORDER, wait=0)
    async with asyncio.timeout(10):
        while not await world.ledger("warehouse"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # another process commits it
    answer = await cancel(service, "orders.place", "k")
    assert answer.status_code == 200, answer.text
    done = await service.settled("orders.place", "k")
    assert done["outcome"] == "cancelled"
    assert "the customer called" in done["result"]["body"]["detail"]
    warehouse = [row["operation"] for row in await world.ledger("warehouse")]
    assert warehouse == ["reserve", "release"]
    assert await world.ledger("payments") == []


async def test_what_is_done_cannot_be_cancelled(service: RunningService, world: World) -> None:
    await service.submit("payments.charge", "k", CHARGE)
    _, before = await read(service, "payments.charge", "k")
    answer = await cancel(service, "payments.charge", "k")
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/verdict-refused"
    assert (await read(service, "payments.charge", "k"))[1] == before


async def test_a_local_operation_cannot_be_cancelled(service: RunningService) -> None:
    for account, terms in (("cash", {"floor_minor": None}), ("sales", {})):
        made = await service.http.put(f"/v1/accounts/{account}", json={"currency": "EUR", **terms})
        assert made.status_code == 201, made.text
    transfer = {"from": "cash", "to": "sales", "amount": {"minor": 100, "currency": "EUR"}}
    assert (await service.submit("accounts.transfer", "k", transfer)).status_code == 201
    answer = await cancel(service, "accounts.transfer", "k")
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/verdict-refused"


async def test_without_temporal_a_cancel_is_not_taken(settings: Settings, tenant: str) -> None:
    nowhere = settings.model_copy(update={"temporal_address": "127.0.0.1:9"})
    async with running_service(nowhere, tenant=tenant, with_worker=False) as service:
        request = json.dumps(CHARGE)
        intent = Intent(
            tenant=tenant,
            operation="payments.charge",
            key="k",
            fingerprint=bytes(32),
            request=request,
            profiles="{}",
        )
        await service.ledger.claims.claim(intent, now=now())
        answer = await cancel(service, "payments.charge", "k")
    assert answer.status_code == 503
    assert answer.json()["type"] == "/problems/executor-unavailable"
    assert answer.headers["retry-after"]


async def test_the_command_line_lists_decides_and_cancels(
    blind: RunningService, world: World
) -> None:
    await parked(blind, world, "k", mode="commit_then_drop")
    (sale,) = await world.ledger("acquirer")
    listed = await tallystick(blind, "list", "--state", "parked")
    assert [row["key"] for row in listed] == ["k"]
    resolved = await tallystick(
        blind,
        *("resolve", LEGACY, "k", "charge", "confirmed"),
        *("--provider-reference", sale["id"], "--evidence", "their statement"),
    )
    assert resolved["decisions"][0]["evidence"] == "their statement"
    await blind.settled(LEGACY, "k")
    shown = await tallystick(blind, "status", LEGACY, "k")
    assert shown["outcome"] == "succeeded"
    await parked(blind, world, "other", mode="commit_then_drop")
    cancelled = await tallystick(blind, "cancel", LEGACY, "other", "--reason", "wrong card")
    assert cancelled["decisions"][0]["verdict"] == "cancel"
