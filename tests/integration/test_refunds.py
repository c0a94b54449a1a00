"""Refunds: of the tenant's own charges, and never more than was captured, at any instant."""

import asyncio
from typing import Any

from support.service import CHARGE, ORDER, RunningService, running_service
from support.world import World


def refund(charge_id: str, minor: int = 2400, currency: str = "EUR") -> dict[str, Any]:
    return {"charge_id": charge_id, "amount": {"minor": minor, "currency": currency}}


async def charged(service: RunningService, key: str = "charge") -> str:
    answer = await service.submit("payments.charge", key, CHARGE, wait=30)
    assert answer.status_code == 201, answer.text
    return answer.json()["charge_id"]


async def refunded(world: World) -> int:
    """What the provider has really given back."""
    return sum(row["amount"] for row in await world.ledger("payments", "refund"))


async def test_a_charge_is_given_back_in_parts_and_not_beyond(
    service: RunningService, world: World
) -> None:
    charge_id = await charged(service)
    first = await service.submit("payments.refund", "a", refund(charge_id, 1000), wait=30)
    assert first.status_code == 201, first.text
    assert set(first.json()) == {"refund_id", "charge_id", "amount"}
    assert first.json()["charge_id"] == charge_id
    again = await service.submit("payments.refund", "a", refund(charge_id, 1000), wait=30)
    assert again.content == first.content
    rest = await service.submit("payments.refund", "b", refund(charge_id, 1400), wait=30)
    assert rest.status_code == 201
    beyond = await service.submit("payments.refund", "c", refund(charge_id, 1), wait=30)
    assert beyond.status_code == 402
    assert beyond.json()["code"] == "refund_exceeds_capture"
    assert await refunded(world) == 2400


async def test_concurrent_refunds_never_exceed_the_capture(
    service: RunningService, world: World
) -> None:
    charge_id = await charged(service)
    answers = await asyncio.gather(
        *(
            service.submit("payments.refund", f"r{number}", refund(charge_id, 1000), wait=30)
            for number in range(8)
        )
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [201] * 2 + [402] * 6
    assert await refunded(world) == 2000


async def test_an_unknown_charge_another_tenants_and_another_currency_are_declined(
    service: RunningService, world: World
) -> None:
    charge_id = await charged(service)
    async with running_service(
        service.settings, tenant=f"{service.tenant}-b", with_worker=False
    ) as other:
        answers = {
            "unknown": await service.submit("payments.refund", "u", refund("ch_nobodys"), wait=30),
            "theirs": await other.submit("payments.refund", "t", refund(charge_id), wait=30),
            "currency": await service.submit(
                "payments.refund", "c", refund(charge_id, currency="USD"), wait=30
            ),
        }
    for name, answer in answers.items():
        assert answer.status_code == 402, name
        assert answer.json()["type"] == "/problems/declined", name
    assert await refunded(world) == 0
    assert (await service.settled("payments.refund", "u"))["safe_new_key"] is True


async def test_what_the_provider_refuses_can_be_refunded_later(
    service: RunningService, world: World
) -> None:
    charge_id = await charged(service)
    await world.faults("payments", "decline", operation="refund")
    no = await service.submit("payments.refund", "no", refund(charge_id), wait=30)
    assert no.status_code == 402
    yes = await service.submit("payments.refund", "yes", refund(charge_id), wait=30)
    assert yes.status_code == 201, yes.text
    assert await refunded(world) == 2400


async def test_a_lost_answer_holds_the_amount_and_the_retry_gives_back_once(
    service: RunningService, world: World
) -> None:
    charge_id = await charged(service)
    await world.faults("payments", "commit_then_drop", operation="refund")
    lost, other = await asyncio.gather(
        service.submit("payments.refund", "lost", refund(charge_id), wait=30),
        service.submit("payments.refund", "other", refund(charge_id), wait=30),
    )
    assert sorted([lost.status_code, other.status_code]) == [201, 402]
    assert await refunded(world) == 2400


async def test_a_refund_that_is_cancelled_before_it_leaves_gives_its_hold_back(
    service: RunningService, world: World
) -> None:
    charge_id = await charged(service)
    await world.faults("payments", "refuse_connection", seconds=3)
    await service.submit("payments.refund", "early", refund(charge_id), wait=0)
    path = "/v1/operations/payments.refund/early"
    async with asyncio.timeout(10):
        while True:
            answer = await service.operator.get(path, params={"wait": 5})
            if answer.json()["steps"][0]["reason"]:
                break
    cancelled = await service.operator.post(
        f"{path}/cancel", headers={"If-Match": answer.headers["etag"]}
    )
    assert cancelled.status_code == 200, cancelled.text
    assert (await service.settled("payments.refund", "early"))["outcome"] == "cancelled"
    later = await service.submit("payments.refund", "later", refund(charge_id), wait=30)
    assert later.status_code == 201, later.text
    assert await refunded(world) == 2400


async def test_an_orders_charge_can_be_refunded_and_then_there_is_nothing_left(
    service: RunningService, world: World
) -> None:
    order = await service.submit("orders.place", "o", ORDER, wait=30)
    charge_id = order.json()["charge_id"]
    assert (
        await service.submit("payments.refund", "a", refund(charge_id), wait=30)
    ).status_code == 201
    assert (
        await service.submit("payments.refund", "b", refund(charge_id), wait=30)
    ).status_code == 402
