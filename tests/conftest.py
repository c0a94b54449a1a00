"""Real parts, started once: Postgres, Temporal, and the simulated providers, each a process.

A test gets a database cloned from a migrated template, a tenant of its own (so that its workflow
IDs are its own), empty books at the providers, and a service on a free port when it asks for one.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger.migrate import migrate
from runtime.embedded.postgres import FAST_SETTINGS, EmbeddedPostgres
from runtime.embedded.temporal import EmbeddedTemporal
from runtime.settings import Settings
from support.databases import cloned_database, execute, named
from support.directories import open_directory
from support.service import RunningService, running_service
from support.world import World

TEMPLATE = "tallystick_template"


@dataclass(frozen=True)
class Parts:
    """The real parts, running."""

    postgres: EmbeddedPostgres
    temporal: EmbeddedTemporal
    world: World


@pytest.fixture(scope="session")
async def parts() -> AsyncIterator[Parts]:
    """Postgres, Temporal and the simulated providers, started side by side for all tests."""
    with open_directory() as directory:
        for name in ("postgres", "temporal"):
            (directory / name).mkdir(mode=0o755)
        postgres = EmbeddedPostgres(directory / "postgres", settings=FAST_SETTINGS)
        temporal = EmbeddedTemporal(directory / "temporal")
        world = World(directory / "providers.db")
        started = (postgres, temporal, world)
        await asyncio.gather(*(part.__aenter__() for part in started))
        yield Parts(postgres, temporal, world)
        await asyncio.gather(*(part.__aexit__(None, None, None) for part in started))


@pytest.fixture(scope="session")
def postgres(parts: Parts) -> EmbeddedPostgres:
    """The PostgreSQL server of all tests."""
    return parts.postgres


@pytest.fixture(scope="session")
def temporal_address(parts: Parts) -> str:
    """The Temporal server of all tests."""
    return parts.temporal.address


@pytest.fixture(scope="session")
async def template(postgres: EmbeddedPostgres) -> str:
    """A migrated database to clone, by its name."""
    await execute(postgres.url, f"CREATE DATABASE {TEMPLATE}")
    await migrate(named(postgres.url, TEMPLATE))
    return TEMPLATE


@pytest.fixture
async def database_url(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[str]:
    """A migrated database of the test's own."""
    async with cloned_database(postgres.url, template=template) as url:
        yield url


@pytest.fixture
async def world(parts: Parts) -> AsyncIterator[World]:
    """The simulated providers, with empty books and no faults."""
    await parts.world.clear_faults()
    await parts.world.wipe()
    yield parts.world
    await parts.world.clear_faults()


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test has."""
    return f"t-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def settings(database_url: str, temporal_address: str, world: World) -> Settings:
    """Settings for real parts; the task queue is the test's own."""
    return Settings.model_validate(
        {
            "database_url": database_url,
            "temporal_address": temporal_address,
            "temporal_task_queue": f"q-{uuid.uuid4().hex[:10]}",
            "temporal_ui_url": "http://ui.example",
            "api_port": 0,
            "worker_health_port": 0,
            "worker_drain_seconds": 5,
            "reconciliation_every_seconds": 0,
            **{f"{name}_url": world.urls[name] for name in world.urls if name != "admin"},
        }
    )


@pytest.fixture
async def service(settings: Settings, tenant: str) -> AsyncGenerator[RunningService]:
    """An API and a worker on real parts, in this process but behind a real port."""
    async with running_service(settings, tenant=tenant) as running:
        yield running


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A directory that Postgres can reach, for tests that start parts of their own."""
    with open_directory() as directory:
        yield directory
