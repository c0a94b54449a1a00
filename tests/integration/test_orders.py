"""`orders.place` on real parts: the stories of the demo."""

import asyncio

from support.service import ORDER, RunningService
from support.world import World


async def test_an_order_is_placed_and_every_retry_gets_the_same_bytes(
    service: RunningService, world: World
) -> None:
    first = await service.submit("orders.place", "k", ORDER)
    again = await service.submit("orders.place", "k", ORDER)
    assert first.status_code == 201
    assert "idempotent-replayed" not in first.headers
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert len(await world.ledger("payments")) == 1


async def test_two_hundred_first_requests_make_one_run_and_get_one_answer(
    service: RunningService, world: World
) -> None:
    answers = await asyncio.gather(
        *(service.submit("orders.place", "storm", ORDER, wait=30) for _ in range(200))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert [row["operation"] for row in await world.ledger("payments")] == ["charge"]
    runs = [
        run
        async for run in service.temporal.list_workflows(
            f'TallystickTenant = "{service.tenant}" AND TallystickKey = "storm"'
        )
    ]
    assert len(runs) <= 1


async def test_the_same_key_with_a_changed_amount_is_refused(service: RunningService) -> None:
    await service.submit("orders.place", "k", ORDER)
    other = {**ORDER, "amount": {"minor": 2500, "currency": "EUR"}}
    answer = await service.submit("orders.place", "k", other)
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/key-reused"
    assert answer.json()["differing"] == ["/amount/minor"]
    assert "2500" not in answer.text


async def test_a_refusing_carrier_gets_everything_undone(
    service: RunningService, world: World
) -> None:
    await world.faults("carrier", "decline", operation="book")
    answer = await service.submit("orders.place", "k", ORDER, wait=30)
    assert answer.status_code == 424
    assert answer.json()["type"] == "/problems/compensated"
    payments = {row["operation"]: row for row in await world.ledger("payments")}
    assert payments["refund"]["amount"] == payments["charge"]["amount"] == 2400
    warehouse = [row["operation"] for row in await world.ledger("warehouse")]
    assert warehouse == ["reserve", "release"]
    assert await world.ledger("carrier") == []
    assert await world.ledger("mail") == []
