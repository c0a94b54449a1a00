"""The worker: performs runs and their steps, relays claims, and says how it is."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import structlog
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from temporalio import activity
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import (
    FixedSizeSlotSupplier,
    PollerBehaviorSimpleMaximum,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerDeploymentConfig,
    WorkerTuner,
    WorkflowRunner,
)

from activities.books import LedgerActivities
from activities.elsewhere import ElsewhereActivities
from activities.housekeeping import HousekeepingActivities
from activities.reconciliation import ReconciliationActivities
from activities.remedies import Remedies
from activities.steps import StepActivities
from ledger.ledger import Ledger
from providers.contract import Provider
from runtime import temporal, wiring
from runtime.housekeeping import keeping_schedule
from runtime.offering import offering_of
from runtime.payload_walks import leave_out_idle_walks
from runtime.reconciliation import ReconciliationKeeper, RunTeller
from runtime.relay import Relay
from runtime.settings import Settings
from runtime.slots import RunSlots
from runtime.temporal import TemporalExecutor
from workflows.registry import SERVICE_WORKFLOWS

WORKFLOW_POLLS = 5
NEW_RUN_POLLS = 3
"""Of these, so many are for runs that no worker has in memory. Most runs are over after their first
task: with one poll for these, as is usual, each would wait until the one before it was fetched."""

STICKY_SECONDS = 3.0
"""How long a run waits for the worker that has it in memory before any other may take it."""

_log = structlog.get_logger(__name__)


def make_worker(
    client: Client,
    *,
    settings: Settings,
    ledger: Ledger,
    providers: Mapping[str, Provider],
    announce: Callable[[int], None],
    workflows: Sequence[type] | None = None,
    runner: WorkflowRunner | None = None,
) -> Worker:
    """The Temporal worker. Not sandboxed: the sandbox imports every module anew for each run, and
    tests prove determinism in it; see `docs/decisions`."""
    leave_out_idle_walks()
    steps = StepActivities(ledger=ledger, providers=providers)
    reconciliation = reconciliation_activities(
        client, settings=settings, ledger=ledger, providers=providers
    )
    books = LedgerActivities(ledger=ledger, announce=announce)
    elsewhere = ElsewhereActivities(ledger=ledger)
    return Worker(
        client,
        task_queue=settings.temporal_task_queue,
        workflows=[
            *(workflows or offering_of(settings.extra_operations).workflows),
            *SERVICE_WORKFLOWS,
        ],
        activities=[
            *reconciliation.all(),
            *(steps.perform, steps.look_up),
            *(books.record, books.recall, books.complete),
            *(elsewhere.begin, elsewhere.take_back),
            HousekeepingActivities(ledger=ledger).expire,
        ],
        workflow_runner=runner or UnsandboxedWorkflowRunner(),
        tuner=WorkerTuner.create_composite(
            workflow_supplier=RunSlots(steps.calls, slots_max=settings.worker_concurrent_steps),
            activity_supplier=FixedSizeSlotSupplier(settings.worker_concurrent_steps),
            local_activity_supplier=FixedSizeSlotSupplier(settings.worker_concurrent_steps),
            nexus_supplier=FixedSizeSlotSupplier(1),
        ),
        # So many, and no more: idle polls hold slots too, and must not hold all of them.
        workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(WORKFLOW_POLLS),
        nonsticky_to_sticky_poll_ratio=NEW_RUN_POLLS / WORKFLOW_POLLS,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY_SECONDS),
        graceful_shutdown_timeout=timedelta(seconds=drain_seconds(settings, providers)),
        deployment_config=deployment_of(settings),
    )


def reconciliation_activities(
    client: Client, *, settings: Settings, ledger: Ledger, providers: Mapping[str, Provider]
) -> ReconciliationActivities:
    """The activities that compare the providers' books with ours."""
    operations = offering_of(settings.extra_operations).operations
    executor = TemporalExecutor(client, task_queue=settings.temporal_task_queue)
    teller = RunTeller(ledger=ledger, executor=executor, client=client)
    return ReconciliationActivities(
        ledger=ledger,
        providers=providers,
        operations=operations,
        remedies=Remedies(ledger=ledger, operations=operations, teller=teller),
    )


def drain_seconds(settings: Settings, providers: Mapping[str, Provider]) -> float:
    """How long to wait for calls in flight: as set, but never less than a provider may take, or the
    results of those calls are lost."""
    longest = max((p.profile.send_timeout_seconds for p in providers.values()), default=0.0)
    return max(settings.worker_drain_seconds, longest)


def deployment_of(settings: Settings) -> WorkerDeploymentConfig | None:
    """Which build this worker is, for Temporal's routing; None when versioning is off."""
    name, build = settings.worker_deployment_name, settings.worker_build_id
    if name is None or build is None:
        return None
    pinned = settings.worker_versioning == "pinned"
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=name, build_id=build),
        use_worker_versioning=True,
        default_versioning_behavior=(
            VersioningBehavior.PINNED if pinned else VersioningBehavior.AUTO_UPGRADE
        ),
    )


@asynccontextmanager
async def running_worker(
    settings: Settings,
    client: Client,
    *,
    ledger: Ledger,
    executor: TemporalExecutor,
    announce: Callable[[int], None],
) -> AsyncGenerator[Worker]:
    """A worker and its relay beside the body; drained at its end."""
    # Temporal's lines would carry the workflow ID, and with it the client's key.
    activity.logger.activity_info_on_message = False
    async with AsyncExitStack() as resources:
        providers = await resources.enter_async_context(wiring.open_providers(settings))
        worker = make_worker(
            client, settings=settings, ledger=ledger, providers=providers, announce=announce
        )
        await resources.enter_async_context(worker)
        relay = Relay(ledger, executor, now=wiring.now)
        schedule = keeping_schedule(client, task_queue=settings.temporal_task_queue)
        keeper = ReconciliationKeeper(
            ledger=ledger,
            reconciler=wiring.reconciler_of(settings, client, providers),
            now=wiring.now,
        )
        messages = wiring.message_loops(settings, ledger, executor)
        await resources.enter_async_context(
            wiring.background(relay.run, schedule, keeper.run, *messages)
        )
        yield worker


async def run_worker(settings: Settings) -> None:
    """The whole worker process, until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = await _connect_patiently(settings, stop)
    if client is None:
        return
    executor = TemporalExecutor(client, task_queue=settings.temporal_task_queue)
    async with (
        wiring.open_ledger(settings, name="worker") as ledger,
        running_worker(
            settings,
            client,
            ledger=ledger,
            executor=executor,
            announce=ledger.announcer.announce,
        ) as worker,
        _health(worker, port=settings.worker_health_port),
    ):
        _log.info("worker.ready", task_queue=settings.temporal_task_queue)
        await stop.wait()
        _log.info("worker.drains", seconds=settings.worker_drain_seconds)


async def _connect_patiently(settings: Settings, stop: asyncio.Event) -> Client | None:
    """Connect, waiting for a server that is not up yet; None when asked to stop meanwhile."""
    while not stop.is_set():
        try:
            return await temporal.connect(settings, lazy=False)
        except RuntimeError as error:
            _log.warning("worker.waits", for_="temporal", reason=str(error)[:200])
            await asyncio.sleep(1.0)
    return None


@asynccontextmanager
async def _health(worker: Worker, *, port: int) -> AsyncGenerator[None]:
    """`/readyz` and `/metrics` beside the body."""

    async def readyz(_request: Request) -> Response:
        ready = worker.is_running
        return JSONResponse(
            {"status": "ready" if ready else "unready"}, status_code=200 if ready else 503
        )

    async def metrics(_request: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    app = Starlette(routes=[Route("/readyz", readyz), Route("/metrics", metrics)])
    server = uvicorn.Server(
        uvicorn.Config(
            app, host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off"
        )
    )
    serving = asyncio.create_task(server._serve())
    try:
        yield
    finally:
        server.should_exit = True
        await serving
