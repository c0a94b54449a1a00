"""Processes die at the worst moment: a worker while a provider works for it, an API between the
commit of a claim and the start of its run. Real child processes, ended by SIGKILL and SIGTERM."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from operations.orders_place import ORDERS_PLACE
from operations.payments_charge import PAYMENTS_CHARGE
from operations.states import Outcome
from runtime.settings import Settings
from support.saga_bench import Begun, SagaBench, saga_bench
from support.service import CHARGE, ORDER
from support.worker_process import worker_process
from support.world import World

STEPS = [("warehouse", "reserve"), ("payments", "charge"), ("carrier", "book"), ("mail", "send")]
HELD_SECONDS = 2.0
READY_SECONDS = 40.0


@pytest.fixture
async def bench(settings: Settings, tenant: str) -> AsyncGenerator[SagaBench]:
    """A ledger and an executor; the workers are children."""
    async with saga_bench(settings, tenant=tenant, with_worker=False) as running:
        yield running


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what only the books of somebody else can tell."""
    async with asyncio.timeout(READY_SECONDS):
        while not await holds():  # noqa: ASYNC110 - books tell nobody when they change
            await asyncio.sleep(0.02)


async def committed(world: World, provider: str, operation: str) -> None:
    """Wait until the provider has committed the call, and holds back its answer."""

    async def holds() -> bool:
        return bool(await world.ledger(provider, operation))

    await until(holds)


async def placed_once(bench: SagaBench, world: World, begun: Begun) -> None:
    """The order succeeds, with one effect at each provider."""
    async with asyncio.timeout(60):
        assert (await begun.ended()).outcome is Outcome.SUCCEEDED
    assert (await bench.now(begun)).outcome is Outcome.SUCCEEDED
    for provider, operation in STEPS[:3]:
        assert [row["operation"] for row in await world.ledger(provider)] == [operation]
    copies = len(await world.ledger("mail"))
    assert 1 <= copies <= 2  # blind, and declared: a duplicate letter is accepted


@pytest.mark.parametrize(("provider", "operation"), STEPS, ids=str)
async def test_a_worker_killed_while_a_provider_works_for_it_charges_once(
    bench: SagaBench, world: World, provider: str, operation: str
) -> None:
    await world.faults(provider, "slow", operation=operation, seconds=HELD_SECONDS)
    async with worker_process(bench.settings) as first:
        begun = await bench.begin(ORDERS_PLACE, ORDER)
        await committed(world, provider, operation)
        first.kill()
        await first.wait()
        async with worker_process(bench.settings):
            await placed_once(bench, world, begun)


@pytest.mark.parametrize("by_rows", [False, True])
async def test_a_worker_that_is_asked_to_stop_keeps_the_answer_it_waits_for(
    bench: SagaBench, world: World, *, by_rows: bool
) -> None:
    await world.faults("payments", "slow", operation="charge", seconds=HELD_SECONDS)
    async with worker_process(bench.settings) as worker:
        begun = await bench.begin(PAYMENTS_CHARGE, CHARGE, by_rows=by_rows)
        await committed(world, "payments", "charge")
        worker.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await worker.wait() == 0
    # Had the answer been lost, the next worker would have to send again, and meet this fault.
    await world.faults("payments", "decline", operation="charge")
    async with worker_process(bench.settings):
        async with asyncio.timeout(40):
            assert (await begun.ended()).outcome is Outcome.SUCCEEDED
    assert len(await world.ledger("payments", "charge")) == 1
    assert len(await world.armed()) == 1


async def test_a_claim_whose_api_died_before_the_start_is_relayed(
    bench: SagaBench, world: World
) -> None:
    claim = await bench.claim(PAYMENTS_CHARGE, CHARGE)
    async with worker_process(bench.settings):

        async def is_done() -> bool:
            return (await bench.now(bench.begun(claim))).outcome is Outcome.SUCCEEDED

        await until(is_done)
    assert len(await world.ledger("payments", "charge")) == 1
