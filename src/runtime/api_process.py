"""The API process: the front door, alone or (the fast path) with a worker in the same process."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.service import Service
from api.starting import Starts
from api.waiting import Waiters
from runtime import temporal, wiring
from runtime.http_protocol import BoundedHttp
from runtime.offering import offering_of
from runtime.settings import Settings
from runtime.temporal import TemporalExecutor

KEEP_ALIVE_SECONDS = 75
"""Longer than a load balancer's usual 60 s, so that it is never us who closes under a request."""

DRAIN_SECONDS = 10
BACKLOG_CONNECTIONS = 2048


class Server(uvicorn.Server):
    """Uvicorn, which lets waiting requests go before it drains."""

    def __init__(self, config: uvicorn.Config, waiters: list[Waiters]) -> None:
        """Drain `waiters` when the first signal comes."""
        super().__init__(config)
        self._waiters = waiters

    def handle_exit(self, sig: int, frame: object) -> None:
        """Answer 202 to everybody who waits, then stop as usual."""
        loop = asyncio.get_running_loop()
        for waiters in self._waiters:
            loop.call_soon_threadsafe(waiters.drain)
        super().handle_exit(sig, frame)  # pyright: ignore[reportArgumentType]


def make_app(settings: Settings, *, with_worker: bool, waiting: list[Waiters]) -> FastAPI:
    """The application on real parts; `waiting` receives whoever has to be let go at the end."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Service]:
        async with AsyncExitStack() as resources:
            client = await temporal.connect(settings, lazy=not with_worker)
            ledger = await resources.enter_async_context(wiring.open_ledger(settings, name="api"))
            waiters, starts = Waiters(ledger.claims), Starts()
            waiting.append(waiters)

            def hear(claim_ids: Collection[int]) -> None:
                starts.turns.changed(claim_ids)
                waiters.hear(claim_ids)

            executor = TemporalExecutor(
                client, task_queue=settings.temporal_task_queue, eager=with_worker
            )
            if with_worker:
                from runtime.worker import running_worker  # noqa: PLC0415 - memory an API can spare

                await resources.enter_async_context(
                    running_worker(
                        settings,
                        client,
                        ledger=ledger,
                        executor=executor,
                        announce=lambda claim_id: hear((claim_id,)),
                    )
                )
            yield await resources.enter_async_context(
                wiring.open_service(
                    settings,
                    executor,
                    client=client,
                    ledger=ledger,
                    waiters=waiters,
                    starts=starts,
                    hear=hear,
                )
            )

    return create_app(
        opened,
        operations=tuple(offering_of(settings.extra_operations).operations.values()),
        settings=wiring.api_settings(settings),
    )


def server_config(
    app: FastAPI, *, host: str, port: int, drain_seconds: int = DRAIN_SECONDS
) -> uvicorn.Config:
    """How the application is served: HTTP with bounds, and a drain that ends."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http=BoundedHttp,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
        backlog=BACKLOG_CONNECTIONS,
    )


def run_api(settings: Settings, *, with_worker: bool) -> None:
    """The whole API process, until SIGTERM or SIGINT."""
    waiting: list[Waiters] = []
    app = make_app(settings, with_worker=with_worker, waiting=waiting)
    config = server_config(app, host=settings.api_host, port=settings.api_port)
    Server(config, waiting).run()
