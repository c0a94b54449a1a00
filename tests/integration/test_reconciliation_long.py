"""A run with more to do than one history holds."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client

import activities.reconciliation
import ledger.reconciliation_pages
import workflows.reconciliation
from support.books import Books
from support.reconciling import SEEDED, found, reconcile, seed_defects
from support.service import RunningService
from support.world import World

TURNS_PER_HISTORY = 6


async def test_a_run_over_several_histories_ends_as_one_over_a_single_history_does(
    service: RunningService, world: World, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    await seed_defects(Books(database_url, service.tenant), world, since=now - timedelta(hours=1))
    window = {"since": (now - timedelta(hours=2)).isoformat(), "until": now.isoformat()}
    single = await reconcile(service, "single", {**window, "dry_run": True})
    assert await histories(service.temporal, single["workflow_id"]) == 1

    monkeypatch.setattr(workflows.reconciliation, "TURNS_PER_HISTORY", TURNS_PER_HISTORY)
    monkeypatch.setattr(activities.reconciliation, "PAGES_PER_TURN", 1)
    monkeypatch.setattr(activities.reconciliation, "LIST_LIMIT", 100)
    monkeypatch.setattr(ledger.reconciliation_pages, "PAGE_ROWS", 100)
    several = await reconcile(service, "several", {**window, "dry_run": True})
    assert await histories(service.temporal, several["workflow_id"]) > 3
    assert found(several) == SEEDED
    assert (several["counts"], several["sums"]) == (single["counts"], single["sums"])
    assert sorted(several["would"], key=str) == sorted(single["would"], key=str)

    acting = await reconcile(service, "acting", window)
    assert await histories(service.temporal, acting["workflow_id"]) > 3
    assert acting["counts"] == single["counts"]
    undone = [row for row in acting["findings"] if row["remedy"] == "undo"]
    assert {row["remedy_state"] for row in undone} == {"done"}
    assert len(undone) == len([row for row in single["would"] if row["would"] == "undo"])


async def histories(client: Client, workflow: str) -> int:
    """How many runs, each continued as the next, the workflow has had."""
    number, run_id = 0, None
    while run_id != "":
        history = await client.get_workflow_handle(workflow, run_id=run_id).fetch_history()
        started = history.events[0].workflow_execution_started_event_attributes
        run_id = started.continued_execution_run_id
        number += 1
    return number
