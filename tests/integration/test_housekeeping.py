"""The end of retention. Time is an argument: nothing here waits for it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import ScheduleOverlapPolicy

from operations.housekeeping import HOUSEKEEPING_RUN
from runtime.housekeeping import ensure_schedule, schedule_id
from support.service import CHARGE, RunningService
from support.world import World

LATER = datetime.now(UTC) + timedelta(days=31)


async def test_a_key_whose_retention_is_over_answers_410_and_never_charges_again(
    service: RunningService, world: World
) -> None:
    await service.submit("payments.charge", "old", CHARGE)
    assert await service.ledger.housekeeping.expire(now=LATER, limit=10) == 1
    again = await service.submit("payments.charge", "old", CHARGE)
    other = await service.submit("payments.charge", "old", {**CHARGE, "card": "tok_other"})
    receipt = await service.http.get("/v1/operations/payments.charge/old/receipt")
    for answer in (again, other, receipt):
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/key-expired")
    assert len(await world.ledger("payments")) == 1


async def test_nothing_of_an_expired_request_is_kept(service: RunningService) -> None:
    await service.submit("orders.place", "k", _order("secret@example.org"))
    await service.ledger.housekeeping.expire(now=LATER, limit=10)
    async with service.ledger.database.connection() as connection:
        for table in ("claims", "effects"):
            rows = await connection.fetch(f"SELECT {table}::text AS row FROM {table}")
            assert rows
            assert not any("secret@example.org" in row["row"] for row in rows)


async def test_a_day_before_its_end_a_receipt_is_still_there(service: RunningService) -> None:
    first = await service.submit("payments.charge", "k", CHARGE)
    early = LATER - timedelta(days=2)
    assert await service.ledger.housekeeping.expire(now=early, limit=10) == 0
    assert (await service.submit("payments.charge", "k", CHARGE)).content == first.content


async def test_what_is_still_open_never_expires(service: RunningService, world: World) -> None:
    await world.faults("payments", "refuse_connection", seconds=3)
    await service.submit("payments.charge", "open", CHARGE, wait=0)
    centuries = LATER + timedelta(days=36_500)
    assert await service.ledger.housekeeping.expire(now=centuries, limit=10) == 0
    await service.settled("payments.charge", "open")


async def test_batches_are_bounded_and_two_housekeepers_share_the_work(
    service: RunningService,
) -> None:
    await asyncio.gather(*(service.submit("payments.charge", f"k{n}", CHARGE) for n in range(20)))
    expire = service.ledger.housekeeping.expire
    counts = await asyncio.gather(*(expire(now=LATER, limit=7) for _ in range(4)))
    assert max(counts) <= 7
    assert sum(counts) + await expire(now=LATER, limit=100) == 20


async def test_the_schedule_exists_once_and_its_run_ends(service: RunningService) -> None:
    queue = service.settings.temporal_task_queue
    await ensure_schedule(service.temporal, task_queue=queue)
    await ensure_schedule(service.temporal, task_queue=queue)
    schedule = await service.temporal.get_schedule_handle(schedule_id(queue)).describe()
    policy = schedule.schedule.policy
    assert policy.overlap is ScheduleOverlapPolicy.SKIP
    assert policy.catchup_window == timedelta(minutes=1)
    run = await service.temporal.execute_workflow(
        HOUSEKEEPING_RUN, id=f"housekeeping-test/{queue}", task_queue=queue, result_type=int
    )
    assert run == 0


def _order(email: str) -> dict[str, Any]:
    return {
        "sku": "MUG-1",
        "quantity": 1,
        "amount": {"minor": 1200, "currency": "EUR"},
        "card": "tok_visa",
        "email": email,
        "address": "1 Quay St",
    }
