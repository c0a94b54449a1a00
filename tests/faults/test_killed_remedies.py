"""A remedy of reconciliation is cut off in the middle: what stands twice is taken back once."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger.reconciliation_findings import FindingRow
from operations.failpoints import Failpoint
from operations.reconciliation import FindingKind, FindingState, RemedyState
from runtime.settings import Settings
from support.books import Books
from support.reconciling import begin_reconciliation
from support.saga_bench import SagaBench, saga_bench
from support.worker_process import worker_process
from support.world import World

TWIN = "ch_twin"
DEATH_SECONDS = 40.0


@pytest.fixture
async def bench(settings: Settings, tenant: str) -> AsyncGenerator[SagaBench]:
    """A ledger and an executor; the workers are children."""
    async with saga_bench(settings, tenant=tenant, with_worker=False) as running:
        yield running


@pytest.fixture
async def doubled(bench: SagaBench, world: World, database_url: str) -> None:
    """A charge of an operation that is done, which stands twice at the processor."""
    books = Books(database_url, bench.tenant)
    [charge] = books.charges(1, since=datetime.now(UTC) - timedelta(hours=1))
    await books.write([charge])
    await world.seed("payments", [charge.record(), charge.record(id=TWIN, key=None)])


async def the_duplicate(bench: SagaBench) -> FindingRow:
    """What is found about the charge that stands twice."""
    [finding] = await findings(bench, kind=FindingKind.DUPLICATE)
    return finding


async def findings(bench: SagaBench, **wanted: Any) -> tuple[FindingRow, ...]:
    """Those of the payments, of a `kind` or in a `state`."""
    asked: dict[str, Any] = {"kind": None, "state": None, **wanted}
    return await bench.ledger.reconciliation.findings.page(
        provider="payments", before_id=2**62, limit=10, **asked
    )


async def taken_back_once(bench: SagaBench, world: World) -> None:
    """One refund, of the one that is too many, and nothing is left for a person."""
    assert [row["target"] for row in await world.ledger("payments", "refund")] == [TWIN]
    duplicate = await the_duplicate(bench)
    assert (duplicate.state, duplicate.remedy_state) == (FindingState.RESOLVED, RemedyState.DONE)
    assert await findings(bench, state=FindingState.OPEN) == ()


@pytest.mark.usefixtures("doubled")
@pytest.mark.parametrize(
    "place", [Failpoint.REMEDY_COMMITTED, Failpoint.SEND_LEAVING, Failpoint.SEND_REPLIED]
)
async def test_a_duplicate_is_taken_back_once_by_the_runs_that_go_on_after_a_killed_worker(
    bench: SagaBench, world: World, place: Failpoint
) -> None:
    first = await begin_reconciliation(bench, "first")
    async with worker_process(bench.settings, failpoint=f"{place}:1:kill") as dying:
        async with asyncio.timeout(DEATH_SECONDS):
            assert await dying.wait() == -signal.SIGKILL
    assert (await the_duplicate(bench)).remedy_state is RemedyState.PLANNED
    async with worker_process(bench.settings):
        second = await begin_reconciliation(bench, "second")
        async with asyncio.timeout(DEATH_SECONDS):
            ends = [(await run.result())["state"] for run in (second, first)]
    assert ends == ["done", "done"]
    await taken_back_once(bench, world)


@pytest.mark.usefixtures("doubled")
@pytest.mark.parametrize("place", [Failpoint.REMEDY_COMMITTING, Failpoint.SEND_REPLIED])
async def test_a_duplicate_is_taken_back_once_by_a_run_whose_activity_fails(
    bench: SagaBench, world: World, place: Failpoint
) -> None:
    async with worker_process(bench.settings, failpoint=f"{place}:1:raise"):
        run = await begin_reconciliation(bench, "only")
        async with asyncio.timeout(DEATH_SECONDS):
            assert (await run.result())["state"] == "done"
    await taken_back_once(bench, world)
