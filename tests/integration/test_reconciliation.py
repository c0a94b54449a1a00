"""Reconciliation on real parts: seeded defects, remedies, schedules, and what is lost and found."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import asyncpg
from temporalio.client import (
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleOverlapPolicy,
)

from operations.keys import Purpose, derived_key
from runtime.settings import Settings
from support.books import Books
from support.reconciling import PATH, SEEDED, found, reconcile, seed_defects
from support.service import CHARGE, ORDER, RunningService, running_service
from support.world import World

T = TypeVar("T")


async def all_findings(service: RunningService, **query: str) -> list[dict[str, Any]]:
    answer = await service.operator.get(f"{PATH}/findings", params={"limit": "200", **query})
    return answer.json()["findings"]


async def test_of_a_thousand_operations_exactly_the_twenty_defects_are_found(
    service: RunningService, world: World, database_url: str
) -> None:
    now = datetime.now(UTC)
    await seed_defects(Books(database_url, service.tenant), world, since=now - timedelta(hours=1))
    window = {"since": (now - timedelta(hours=2)).isoformat(), "until": now.isoformat()}
    before = len(await world.ledger("payments"))

    dry = await reconcile(service, "dry", {**window, "dry_run": True})
    assert found(dry) == SEEDED
    assert Counter(row["would"] for row in dry["would"]) == {"none": 14, "undo": 6}
    assert await all_findings(service) == []
    assert len(await world.ledger("payments")) == before

    first = await reconcile(service, "first", window)
    assert found(first) == SEEDED
    assert first["changes"]["opened"] == 20
    done = [row for row in first["findings"] if row["remedy"] == "undo"]
    assert Counter(row["kind"] for row in done) == {"duplicate": 3, "late": 3}
    assert {(row["state"], row["remedy_state"]) for row in done} == {("resolved", "done")}
    refunds = [row for row in await world.ledger("payments", "refund") if row["key"]]
    assert {row["target"] for row in refunds} == {row["record_id"] for row in done}
    assert len(refunds) == 6

    tags = {row["id"]: row["updated_at"] for row in await all_findings(service)}
    second = await reconcile(service, "second", window)
    assert second["changes"]["opened"] == 0
    assert second["changes"]["persisting"] == 14
    assert {row["id"]: row["updated_at"] for row in await all_findings(service)} == tags
    assert len(await world.ledger("payments")) == before + 6


async def test_a_clean_world_has_no_findings(service: RunningService, world: World) -> None:
    await world.faults("carrier", "decline", operation="book")
    undone = await service.submit("orders.place", "undone", ORDER, wait=30)
    assert undone.status_code == 424
    for key in ("a", "b"):
        assert (await service.submit("orders.place", key, ORDER, wait=30)).status_code == 201
    legacy = await service.submit("payments.charge_legacy", "c", CHARGE, wait=30)
    assert legacy.status_code == 201
    for provider in ("payments", "acquirer", "warehouse", "carrier"):
        run = await reconcile(service, f"clean-{provider}", at=provider)
        assert found(run) == {}, run
        assert run["counts"]["matched"] == len(await world.ledger(provider)), run
        assert all(halves["difference_minor"] == 0 for halves in run["sums"].values()), run


async def test_a_parked_effect_that_the_provider_has_is_resolved_and_its_run_told(
    settings: Settings, world: World, tenant: str
) -> None:
    impatient = settings.model_copy(
        update={
            "provider_profiles": Settings.model_validate(
                {"provider_profiles": {"acquirer": {"patience_seconds": 0.5}}}
            ).provider_profiles
        }
    )
    async with running_service(impatient, tenant=tenant) as service:
        for key, terminated in (("told", False), ("terminated", True)):
            await world.faults("acquirer", "commit_then_drop", operation="charge")
            await world.faults("acquirer", "drop_before_commit", operation="look_up", times=100)
            await service.submit("payments.charge_legacy", key, CHARGE, wait=0)
            await service.settled("payments.charge_legacy", key, state="parked")
            await world.clear_faults()
            if terminated:
                run = service.workflow_id("payments.charge_legacy", key)
                await service.temporal.get_workflow_handle(run).terminate("a test")
            document = await reconcile(service, f"run-{key}", at="acquirer")
            assert found(document) == {"late": 1}
            assert document["findings"][0]["remedy_state"] == "done", document
            ended = await service.settled("payments.charge_legacy", key)
            assert ended["outcome"] == "succeeded"
        assert len(await world.ledger("acquirer")) == 2


async def test_what_an_older_backup_has_lost_is_shown_as_provider_only(
    service: RunningService, world: World, database_url: str
) -> None:
    await service.submit("payments.charge", "kept", CHARGE, wait=30)
    backup = datetime.now(UTC)
    await service.submit("payments.charge", "lost", CHARGE, wait=30)
    connection = await asyncpg.connect(database_url)
    try:
        old = "(SELECT id FROM claims WHERE created_at > $1)"
        for table in ("business_rows", "effects"):
            await connection.execute(f"DELETE FROM {table} WHERE claim_id IN {old}", backup)
        await connection.execute("DELETE FROM claims WHERE created_at > $1", backup)
    finally:
        await connection.close()
    run = await reconcile(service, "after-restore")
    assert found(run) == {"provider_only": 1}
    kept, lost = await world.ledger("payments")
    assert run["findings"][0]["record_id"] == lost["id"] != kept["id"]
    assert run["findings"][0]["remedy"] == "none"


async def test_a_record_of_an_operation_whose_run_was_lost_names_that_operation(
    service: RunningService, world: World, database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    past = datetime.now(UTC) - timedelta(hours=1)
    try:
        await connection.execute(
            "INSERT INTO claims (tenant, operation, key, fingerprint, request, profiles, state,"
            " created_at, updated_at, check_at) VALUES ($1, 'payments.charge', 'k', '\\x01', '{}',"
            " '{}', 'accepted', $2, $2, $3)",
            service.tenant,
            past,
            past + timedelta(days=2),
        )
    finally:
        await connection.close()
    key = derived_key(
        workflow_id=service.workflow_id("payments.charge", "k"),
        step="charge",
        ordinal=0,
        purpose=Purpose.ACTION,
    )
    record = {"operation": "charge", "reference": key, "amount": 5, "currency": "EUR"}
    await world.seed("payments", [{**record, "created_at": past.isoformat()}])
    run = await reconcile(service, "lost-run")
    assert found(run) == {"provider_only": 1}
    assert run["findings"][0]["evidence"]["operation"]["key"] == "k"


async def test_a_finding_is_changed_only_as_it_was_read(
    service: RunningService, world: World
) -> None:
    await world.seed("payments", [{"operation": "charge", "amount": 7, "currency": "EUR"}])
    run = await reconcile(service, "one")
    path = run["findings"][0]["links"]["self"]
    read = await service.operator.get(path)
    body = {"state": "acknowledged", "note": "asked them"}
    assert (await service.operator.patch(path, json=body)).status_code == 428
    tag = {"If-Match": read.headers["etag"]}
    assert (await service.operator.patch(path, json=body, headers=tag)).status_code == 200
    assert (await service.operator.patch(path, json=body, headers=tag)).status_code == 412
    latest = {"If-Match": (await service.operator.get(path)).headers["etag"]}
    body = {"state": "resolved", "note": "it was ours, by telephone"}
    resolved = await service.operator.patch(path, json=body, headers=latest)
    assert resolved.json()["state"] == "resolved"
    happened = [entry["happened"] for entry in resolved.json()["history"]]
    assert happened == ["found", "acknowledged", "resolved"]
    await reconcile(service, "two")
    assert (await service.operator.get(path)).json()["state"] == "resolved"
    assert await all_findings(service, state="open") == []


async def test_a_run_is_keyed_like_any_write_and_for_operators_only(
    service: RunningService,
) -> None:
    path, keyed = f"{PATH}/payments/runs", {"Idempotency-Key": "r"}
    first = await service.operator.post(path, json={}, headers=keyed)
    again = await service.operator.post(path, json={}, headers=keyed)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    other = await service.operator.post(path, json={"dry_run": True}, headers=keyed)
    assert other.status_code == 409
    assert (await service.operator.post(path, json={})).status_code == 400
    assert (await service.operator.post(f"{PATH}/mail/runs", headers=keyed)).status_code == 404
    for method, at in (("GET", path), ("GET", f"{PATH}/findings"), ("PUT", path[:-4] + "schedule")):
        assert (await service.http.request(method, at, json={})).status_code == 403
    listed = (await service.operator.get(path, params={"format": "csv"})).text
    assert listed.splitlines()[0].startswith("id,provider,state")
    report = await service.operator.get(f"{PATH}/payments/report")
    assert "<svg" in report.text
    assert "http" not in report.text


async def test_a_schedule_skips_what_would_overlap_and_ends_before_the_next_run(
    service: RunningService, world: World
) -> None:
    body = {"every": "PT15M", "paused": False}
    answer = await service.operator.put(f"{PATH}/carrier/schedule", json=body)
    assert answer.status_code == 200
    assert answer.json()["every"] == "PT15M"
    assert len(answer.json()["next_runs"]) > 0
    for wrong in ("PT1S", "P1Y", "soon"):
        refused = await service.operator.put(f"{PATH}/carrier/schedule", json={"every": wrong})
        assert refused.status_code == 422
    queue = service.settings.temporal_task_queue
    handle = service.temporal.get_schedule_handle(f"reconciliation/carrier@{queue}")
    try:
        schedule = (await handle.describe()).schedule
        assert schedule.policy.overlap is ScheduleOverlapPolicy.SKIP
        assert schedule.policy.catchup_window == timedelta(minutes=7.5)
        assert isinstance(schedule.action, ScheduleActionStartWorkflow)
        assert schedule.action.execution_timeout is not None
        assert schedule.action.execution_timeout < timedelta(minutes=15)

        await world.faults("carrier", "slow", operation="list", seconds=4)
        await handle.trigger()
        # Two triggers within one second would be one: the second has to meet a run under way.
        await _until(lambda: _running(handle))
        await handle.trigger()
        skipped = await _until(lambda: _skipped(handle))
        ended = await _until(lambda: _ended_runs(service))
        assert skipped == 1
        assert [run["trigger"] for run in ended] == ["schedule"]
        watermark = (await service.operator.get(f"{PATH}/carrier/schedule")).json()["watermark"]
        assert watermark == ended[0]["until"]
    finally:
        await handle.delete()


async def _until(look: Callable[[], Awaitable[T]]) -> T:
    """What `look` sees, once it sees something; Temporal tells nobody about schedules."""
    for _ in range(200):
        if seen := await look():
            return seen
        await asyncio.sleep(0.1)
    raise TimeoutError


async def _running(handle: ScheduleHandle) -> int:
    return len((await handle.describe()).info.running_actions)


async def _skipped(handle: ScheduleHandle) -> int:
    return (await handle.describe()).info.num_actions_skipped_overlap


async def _ended_runs(service: RunningService) -> list[dict[str, Any]]:
    runs = (await service.operator.get(f"{PATH}/carrier/runs")).json()["runs"]
    return [run for run in runs if run["state"] == "done"]
