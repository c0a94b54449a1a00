"""Wiring: which class stands behind which name. The only module that knows them all."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import structlog
from temporalio.client import Client

from api.authentication import KeyRing
from api.limits import FirstRequests
from api.service import ApiSettings, Service
from api.starting import Starts
from api.waiting import Waiters
from ledger.access import Access
from ledger.announcements import Listener
from ledger.database import Database
from ledger.ledger import Ledger
from operations.declaration import Operation, SagaOperation
from providers.contract import Provider
from runtime.deliverer import Deliverer
from runtime.offering import offering_of
from runtime.outside import provider_clients
from runtime.reconciliation import TemporalReconciler
from runtime.settings import Settings
from runtime.sweep import Sweep
from runtime.temporal import TemporalExecutor

LOOP_PAUSE_SECONDS = 1.0

_log = structlog.get_logger(__name__)


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


@asynccontextmanager
async def open_ledger(settings: Settings, *, name: str) -> AsyncGenerator[Ledger]:
    """The ledger, closed at the end. Postgres need not be up yet."""
    database = await Database.open(
        settings.database_url.get_secret_value(),
        connections_max=settings.database_connections,
        acquire_timeout_seconds=settings.database_wait_seconds,
        application_name=f"tallystick-{name}",
    )
    ledger = Ledger.on(database)
    try:
        yield ledger
    finally:
        await ledger.close()


@asynccontextmanager
async def open_providers(settings: Settings) -> AsyncGenerator[Mapping[str, Provider]]:
    """A client for every provider, closed at the end."""
    providers = provider_clients(settings)
    try:
        check_providers(offering_of(settings.extra_operations).operations.values(), providers)
        yield providers
    finally:
        for provider in providers.values():
            await provider.aclose()


@asynccontextmanager
async def background(*loops: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
    """Run endless `loops` beside the body, and cancel them at its end."""
    tasks = [asyncio.create_task(_persist(loop)) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _persist(loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A loop that fails is told of, and begun again: a bug in it must not stop it for good."""
    while True:
        try:
            await loop()
        except Exception:  # noqa: BLE001 - whatever it is, the loop goes on and the log says so
            _log.exception("loop.failed", loop=loop.__qualname__)
            await asyncio.sleep(LOOP_PAUSE_SECONDS)


@asynccontextmanager
async def _own_access(settings: Settings) -> AsyncGenerator[Access]:
    """The table of keys over a connection of its own: a flood of requests that fills the pool must
    not keep the keys from being renewed, or it would lock everybody out."""
    database = await Database.open(
        settings.database_url.get_secret_value(),
        connections_max=1,
        acquire_timeout_seconds=settings.database_wait_seconds,
        application_name="tallystick-keys",
    )
    try:
        yield Access(database)
    finally:
        await database.close()


@asynccontextmanager
async def open_service(
    settings: Settings,
    executor: TemporalExecutor,
    *,
    client: Client,
    ledger: Ledger,
    waiters: Waiters,
    starts: Starts,
    hear: Callable[[Collection[int]], None],
) -> AsyncGenerator[Service]:
    """Everything behind the front door."""
    async with AsyncExitStack() as resources:
        providers = await resources.enter_async_context(open_providers(settings))
        keys = KeyRing(await resources.enter_async_context(_own_access(settings)))
        listener = Listener(settings.database_url.get_secret_value(), hear)

        async def keep_starts() -> None:
            await starts.keep(ledger.relay, now=now)

        await resources.enter_async_context(
            background(keys.keep_fresh, waiters.serve, listener.run, keep_starts)
        )
        resources.push_async_callback(starts.close, ledger.relay, now=now)
        operations = offering_of(settings.extra_operations).operations
        yield Service(
            ledger=ledger,
            keys=keys,
            waiters=waiters,
            starts=starts,
            executor=executor,
            reconciler=reconciler_of(settings, client, providers),
            operations=operations,
            profiles={name: profiles_of(op, providers) for name, op in operations.items()},
            now=now,
            settings=api_settings(settings),
            first_requests=FirstRequests(
                per_second=settings.api_new_operations_per_second,
                burst=settings.api_new_operations_burst,
            ),
        )


def reconciler_of(
    settings: Settings, client: Client, providers: Mapping[str, Provider]
) -> TemporalReconciler:
    """Reconciliation of every provider whose records can be listed."""
    return TemporalReconciler(
        client,
        task_queue=settings.temporal_task_queue,
        providers=(name for name, found in providers.items() if found.profile.can_look_up),
        every_seconds=settings.reconciliation_every_seconds,
    )


def profiles_of(operation: Operation, providers: Mapping[str, Provider]) -> str:
    """What the operation's providers promise, as JSON to be pinned on its claims."""
    if not isinstance(operation, SagaOperation):
        return "{}"
    ours = {name: providers[name].profile for name in operation.providers}
    promised = {**ours, **operation.profiles_elsewhere}
    return json.dumps({name: profile.model_dump(mode="json") for name, profile in promised.items()})


def check_providers(operations: Iterable[Operation], providers: Mapping[str, Provider]) -> None:
    """Every provider that an operation calls has a client here, or a profile in its step.

    Raises ValueError, when a process starts rather than when an operation meets it.
    """
    for operation in operations:
        if isinstance(operation, SagaOperation):
            missing = [name for name in operation.providers if name not in providers]
            if missing:
                raise ValueError(f"{operation.name}: there is no client of {', '.join(missing)}")
            both = [name for name in operation.profiles_elsewhere if name in operation.providers]
            if both:
                raise ValueError(f"{operation.name}: {', '.join(both)} is here and elsewhere")


def message_loops(
    settings: Settings, ledger: Ledger, executor: TemporalExecutor
) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
    """What every worker does for messages in and events out."""
    sweep = Sweep(ledger, executor, now=now)
    deliverer = Deliverer(
        ledger,
        now=now,
        allow_http=settings.endpoints_allow_http,
        allow_private=settings.endpoints_allow_private,
    )
    return (sweep.run, sweep.tidy, deliverer.run)


def api_settings(settings: Settings) -> ApiSettings:
    """The part of the settings that the API sees."""
    return ApiSettings(
        body_bytes_max=settings.api_body_bytes,
        cors_origins=settings.api_cors_origins,
        temporal_ui_url=settings.temporal_ui_url,
        temporal_namespace=settings.temporal_namespace,
        webhook_secrets=settings.webhook_secrets_by_name,
        endpoints_allow_http=settings.endpoints_allow_http,
        endpoints_allow_private=settings.endpoints_allow_private,
    )
