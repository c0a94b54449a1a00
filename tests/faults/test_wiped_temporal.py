"""The executor loses all it knows: Postgres is the authority, and the relay runs what is open."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

from runtime.embedded.temporal import EmbeddedTemporal
from runtime.settings import Settings
from support.service import CHARGE, ORDER, RunningService, running_service
from support.world import World

HELD_SECONDS = 2.0
FORWARD = [("warehouse", "reserve"), ("payments", "charge"), ("carrier", "book")]


class ForgetfulTemporal(EmbeddedTemporal):
    """A server whose database can be thrown away."""

    async def forget_everything(self) -> None:
        """Kill it, delete its database, and start it again, as empty as it once was."""
        await self.hold()
        assert (self.data_dir / "temporal.db").exists()
        for file in self.data_dir.glob("temporal.db*"):
            file.unlink()
        await self.release()
        await self.configure()


@pytest.fixture
async def temporal(data_dir: Path) -> AsyncGenerator[ForgetfulTemporal]:
    """A server of the test's own."""
    async with ForgetfulTemporal(data_dir / "temporal") as started:
        yield started


@pytest.fixture
async def service(
    settings: Settings, temporal: ForgetfulTemporal, tenant: str
) -> AsyncGenerator[RunningService]:
    """An API and a worker on that server."""
    own = settings.model_copy(update={"temporal_address": temporal.address})
    async with running_service(own, tenant=tenant) as running:
        yield running


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Wait for what only the books of somebody else can tell."""
    async with asyncio.timeout(20):
        while not await holds():  # noqa: ASYNC110 - books tell nobody when they change
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("provider", "operation"), FORWARD, ids=str)
async def test_an_order_under_way_is_placed_once_by_the_relay(
    service: RunningService,
    temporal: ForgetfulTemporal,
    world: World,
    provider: str,
    operation: str,
) -> None:
    await world.faults(provider, "slow", operation=operation, seconds=HELD_SECONDS)
    accepted = await service.submit("orders.place", "k", ORDER, wait=0)
    assert accepted.status_code == 202
    await until(lambda: world.ledger(provider, operation))
    run = service.temporal.get_workflow_handle(service.workflow_id("orders.place", "k"))
    lost = (await run.describe()).run_id
    await temporal.forget_everything()
    settled = await service.settled("orders.place", "k")
    assert settled["outcome"] == "succeeded"
    assert (await run.describe()).run_id != lost
    for each, action in FORWARD:
        assert [row["operation"] for row in await world.ledger(each)] == [action]
    receipt = await service.submit("orders.place", "k", ORDER)
    assert (receipt.status_code, receipt.headers["idempotent-replayed"]) == (201, "true")


async def test_what_was_done_before_is_replayed_and_not_done_again(
    service: RunningService, temporal: ForgetfulTemporal, world: World
) -> None:
    first = await service.submit("payments.charge", "k", CHARGE, wait=30)
    assert first.status_code == 201
    await temporal.forget_everything()
    again = await service.submit("payments.charge", "k", CHARGE, wait=30)
    assert (again.status_code, again.content) == (201, first.content)
    new = await service.submit("payments.charge", "new", CHARGE, wait=30)
    assert new.status_code == 201
    assert len(await world.ledger("payments", "charge")) == 2
