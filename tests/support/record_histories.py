"""Record the histories of every path as JSON, for the replay tests.

    python -m support.record_histories DIRECTORY [NAME…]     (from tests/, with servers of its own)

What is recorded is what a real server kept of a real run, with the machine's name, the process's
identity and the server's address taken out. Record anew when a workflow changes on purpose; keep
the old files for as long as runs of the old code can be open: without names, all are recorded.
"""

import asyncio
import json
import re
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

from ledger.migrate import migrate
from operations.contracts import CANCEL_UPDATE, RESOLVE_UPDATE
from operations.orders_place import ORDERS_PLACE
from operations.payments_charge import PAYMENTS_CHARGE
from operations.payments_charge_legacy import PAYMENTS_CHARGE_LEGACY
from operations.states import ClaimState
from runtime.embedded.postgres import FAST_SETTINGS, EmbeddedPostgres
from runtime.embedded.temporal import EmbeddedTemporal
from runtime.settings import Settings
from support.directories import open_directory
from support.reconciling import begin_reconciliation
from support.saga_bench import SagaBench, saga_bench
from support.service import CHARGE, ORDER
from support.world import World

FIGURES: dict[str, Any] = {
    "send_timeout_seconds": 1.0,
    "lookup_horizon_seconds": 1.5,
    "lookup_interval_seconds": 0.2,
}
NOTHING_LOCAL = re.compile(r'"(identity|workerId|binaryChecksum|hostName)": "[^"]*"')
STICKY_QUEUE = re.compile(r'"\d+@[^"]*-[0-9a-f]{32}"')
"""What names the machine or the process that recorded."""

Run = WorkflowHandle[Any, Any]
Story = Callable[[SagaBench, World], Awaitable[Run]]


async def committed(world: World, provider: str) -> None:
    """Wait until the provider has committed something."""
    while not await world.ledger(provider):  # noqa: ASYNC110 - books tell nobody when they change
        await asyncio.sleep(0.01)


async def succeeded(bench: SagaBench, _: World) -> Run:
    """Four steps, nothing lost."""
    return (await bench.begin(ORDERS_PLACE, ORDER)).handle


async def declined(bench: SagaBench, world: World) -> Run:
    """The first step is refused."""
    await world.faults("warehouse", "decline", operation="reserve")
    return (await bench.begin(ORDERS_PLACE, ORDER)).handle


async def compensated(bench: SagaBench, world: World) -> Run:
    """The carrier refuses: a refund and a release."""
    await world.faults("carrier", "decline", operation="book")
    return (await bench.begin(ORDERS_PLACE, ORDER)).handle


async def unknown_resolved(bench: SagaBench, world: World) -> Run:
    """The warehouse's and the processor's answers are lost, and found again."""
    await world.faults("warehouse", "commit_then_drop", operation="reserve")
    await world.faults("payments", "commit_then_500", operation="charge")
    return (await bench.begin(ORDERS_PLACE, ORDER)).handle


async def parked_resolved(bench: SagaBench, world: World) -> Run:
    """A blind acquirer's answer is lost: a person says what happened."""
    await world.faults("acquirer", "commit_then_drop", operation="charge")
    begun = await bench.begin(PAYMENTS_CHARGE_LEGACY, CHARGE)
    while (await bench.now(begun)).state is not ClaimState.PARKED:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.05)
    [sale] = await world.ledger("acquirer", "charge")
    verdict = {"step": "charge", "verdict": "confirmed", "provider_reference": sale["id"]}
    await bench.ask(begun, RESOLVE_UPDATE, {**verdict, "evidence": "their statement"})
    return begun.handle


async def cancelled(bench: SagaBench, world: World) -> Run:
    """Cancelled, by both ways, while the warehouse works."""
    await world.faults("warehouse", "slow", operation="reserve", seconds=0.5)
    begun = await bench.begin(ORDERS_PLACE, ORDER)
    await committed(world, "warehouse")
    await bench.ask(begun, CANCEL_UPDATE, {"requested_by": "op", "reason": "changed my mind"})
    await begun.handle.cancel()
    return begun.handle


async def cancelled_by_temporal(bench: SagaBench, world: World) -> Run:
    """By Temporal's own cancel, in a run that is not the first: the pivot is looked up before."""
    await world.faults("warehouse", "slow", operation="reserve", seconds=0.5)
    begun = await bench.begin(ORDERS_PLACE, ORDER, by_rows=True)
    await committed(world, "warehouse")
    await begun.handle.cancel()
    return begun.handle


async def sent_again(bench: SagaBench, world: World) -> Run:
    """The warehouse loses a request: it is sent again, and looked up before the end."""
    await world.faults("warehouse", "drop_before_commit", operation="reserve")
    return (await bench.begin(ORDERS_PLACE, ORDER)).handle


async def recovered(bench: SagaBench, world: World) -> Run:
    """Terminated in the middle, and taken up by the relay."""
    await world.faults("payments", "slow", operation="charge", seconds=0.5)
    begun = await bench.begin(ORDERS_PLACE, ORDER)
    await committed(world, "payments")
    await begun.handle.terminate("recorded")
    await bench.relay_all()
    return bench.begun(begun.claim).handle


async def charged(bench: SagaBench, world: World) -> Run:
    """One keyed step, and the processor was away first."""
    await world.faults("payments", "rate_limit", operation="charge", seconds=1)
    return (await bench.begin(PAYMENTS_CHARGE, CHARGE)).handle


async def reset(bench: SagaBench, world: World) -> Run:
    """Reset to its beginning after its end."""
    begun = await bench.begin(ORDERS_PLACE, ORDER)
    await begun.ended()
    await bench.reset(begun, to=0)
    return bench.begun(begun.claim).handle


async def reconciled(bench: SagaBench, world: World) -> Run:
    """A charge stands twice, and the list of charges cannot be had at first: a wait, an undo."""
    charge = await bench.begin(PAYMENTS_CHARGE, CHARGE)
    await charge.ended()
    [row] = await world.ledger("payments", "charge")
    twin = {name: row[name] for name in ("operation", "reference", "amount", "currency", "state")}
    await world.seed("payments", [{**twin, "created_at": row["created_at"]}])
    await world.faults("payments", "rate_limit", operation="list", seconds=1)
    return await begin_reconciliation(bench, "recorded")


PATHS: dict[str, Story] = {
    "orders_place.succeeded": succeeded,
    "orders_place.declined": declined,
    "orders_place.compensated": compensated,
    "orders_place.unknown_resolved": unknown_resolved,
    "orders_place.cancelled": cancelled,
    "orders_place.cancelled_by_temporal": cancelled_by_temporal,
    "orders_place.sent_again": sent_again,
    "orders_place.recovered": recovered,
    "orders_place.reset": reset,
    "payments_charge.rate_limited": charged,
    "payments_charge_legacy.parked_resolved": parked_resolved,
    "reconciliation.reconciled": reconciled,
}


def without_local_names(history: str) -> str:
    """The history without what names the machine, and readable in a diff."""
    anonymous = NOTHING_LOCAL.sub(lambda found: f'"{found[1]}": "recorded"', history)
    document = json.loads(STICKY_QUEUE.sub('"recorded-sticky"', anonymous))
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


async def record(directory: Path, names: Sequence[str]) -> None:
    """Run the paths on servers of their own, and write what the server kept."""
    with open_directory() as data:
        for name in ("postgres", "temporal"):
            (data / name).mkdir(mode=0o755)
        async with (
            EmbeddedPostgres(data / "postgres", settings=FAST_SETTINGS) as postgres,
            EmbeddedTemporal(data / "temporal") as temporal,
            World(data / "providers.db") as world,
        ):
            await migrate(postgres.url)
            await world.temperament("blind")
            settings = Settings.model_validate(
                {
                    "database_url": postgres.url,
                    "temporal_address": temporal.address,
                    "temporal_task_queue": "recorded",
                    "acquirer_blind": True,
                    "worker_drain_seconds": 1,
                    "provider_profiles": dict.fromkeys(
                        ("payments", "acquirer", "warehouse", "carrier", "mail"), FIGURES
                    ),
                    **{f"{n}_url": url for n, url in world.urls.items() if n != "admin"},
                }
            )
            async with saga_bench(settings, tenant=f"t-{uuid.uuid4().hex[:6]}") as bench:
                for name in names:
                    await world.clear_faults()
                    await world.wipe()
                    run = await PATHS[name](bench, world)
                    end = await run.result()
                    history = await run.fetch_history()
                    file = directory / f"{name}.json"
                    file.write_text(without_local_names(history.to_json()))
                    sys.stdout.write(f"{name}: {len(history.events)} events, {end}\n")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(record(target, sys.argv[2:] or tuple(PATHS)))
