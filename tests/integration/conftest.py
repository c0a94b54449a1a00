"""Services that many tests share, each with a tenant of its own: starting one takes a second."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Protocol

import pytest

from ledger.access import Role
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.settings import Settings
from runtime.wiring import now
from support.databases import cloned_database
from support.service import RunningService, client_of, running_service
from support.world import World


class Parts(Protocol):
    """As much as is needed of the real parts that all tests share."""

    world: World


BROWSER_ORIGIN = "https://shop.example"


@pytest.fixture(scope="session")
async def shared_quiet(
    postgres: EmbeddedPostgres, template: str, temporal_address: str
) -> AsyncIterator[RunningService]:
    """An API without a worker."""
    async with (
        cloned_database(postgres.url, template=template) as url,
        running_service(
            _settings(url, temporal_address), tenant="first", with_worker=False
        ) as running,
    ):
        yield running


@pytest.fixture(scope="session")
async def shared_lively(
    postgres: EmbeddedPostgres, template: str, temporal_address: str, parts: Parts
) -> AsyncIterator[RunningService]:
    """An API with a worker."""
    urls = {f"{name}_url": url for name, url in parts.world.urls.items() if name != "admin"}
    async with (
        cloned_database(postgres.url, template=template) as url,
        running_service(_settings(url, temporal_address, **urls), tenant="first") as running,
    ):
        yield running


@pytest.fixture
async def quiet(shared_quiet: RunningService, tenant: str) -> AsyncGenerator[RunningService]:
    """A service where nothing moves unless the test moves it."""
    async with _for_tenant(shared_quiet, tenant) as service:
        yield service


@pytest.fixture
async def lively(
    shared_lively: RunningService, tenant: str, world: World
) -> AsyncGenerator[RunningService]:
    """A service that performs operations, on providers with empty books."""
    async with _for_tenant(shared_lively, tenant) as service:
        yield service


@asynccontextmanager
async def _for_tenant(shared: RunningService, tenant: str) -> AsyncGenerator[RunningService]:
    issued = await shared.ledger.access.issue(tenant=tenant, role=Role.CLIENT, now=now())
    operator = await shared.ledger.access.issue(tenant=tenant, role=Role.OPERATOR, now=now())
    async with AsyncExitStack() as resources:
        yield replace(
            shared,
            tenant=tenant,
            token=issued.token,
            operator_token=operator.token,
            http=await resources.enter_async_context(client_of(shared.url, issued.token)),
            operator=await resources.enter_async_context(client_of(shared.url, operator.token)),
        )


def _settings(database_url: str, temporal_address: str, **more: str) -> Settings:
    return Settings.model_validate(
        {
            "database_url": database_url,
            "temporal_address": temporal_address,
            "temporal_task_queue": f"q-{uuid.uuid4().hex[:10]}",
            "temporal_ui_url": "http://ui.example",
            "api_port": 0,
            "api_cors_origins": (BROWSER_ORIGIN,),
            "worker_health_port": 0,
            "worker_drain_seconds": 5,
            **more,
        }
    )
