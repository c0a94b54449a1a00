"""The embedded Postgres and Temporal, for real."""

import asyncio
import os
import signal
from pathlib import Path

import asyncpg
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from runtime.embedded.errors import DirectoryInUse, PortTaken
from runtime.embedded.ports import LOOPBACK, pick_port
from runtime.embedded.postgres import FAST_SETTINGS, EmbeddedPostgres
from runtime.embedded.temporal import (
    NAMESPACE,
    RETENTION,
    SEARCH_ATTRIBUTES,
    EmbeddedTemporal,
    register_search_attributes,
)


async def _in_database(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_postgres_keeps_what_was_committed_through_kills_and_a_second_start(
    data_dir: Path,
) -> None:
    async with EmbeddedPostgres(data_dir, settings=FAST_SETTINGS) as postgres:
        await _in_database(postgres.url, "CREATE TABLE kept AS SELECT 7 AS n")
        killed = postgres.pid
        os.kill(killed, signal.SIGKILL)
        await postgres.await_restart(after_pid=killed)
        assert await _in_database(postgres.url, "SELECT n FROM kept") == 7

        await postgres.hold()  # down for good: its lock file stays
        assert (data_dir / "postgres" / "postmaster.pid").exists()

    async with EmbeddedPostgres(data_dir, settings=FAST_SETTINGS) as postgres:
        assert await _in_database(postgres.url, "SELECT n FROM kept") == 7


async def test_postgres_starts_beside_a_lock_file_that_names_a_living_stranger(
    data_dir: Path,
) -> None:
    async with EmbeddedPostgres(data_dir, settings=FAST_SETTINGS):
        pass
    lock_file = data_dir / "postgres" / "postmaster.pid"
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    lock_file.write_text(f"{stranger.pid}\n{lock_file.parent}\n1\n1\n\n\n\n")

    async with EmbeddedPostgres(data_dir, settings=FAST_SETTINGS) as postgres:
        assert await _in_database(postgres.url, "SELECT 1") == 1

    assert stranger.returncode is None
    stranger.kill()
    await stranger.wait()


async def test_postgres_is_durable_private_and_on_loopback_only(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir) as postgres:
        shown = {
            name: await _in_database(postgres.url, f"SHOW {name}")
            for name in ("fsync", "synchronous_commit", "listen_addresses", "data_checksums")
        }
        is_superuser = await _in_database(
            postgres.url, "SELECT usesuper FROM pg_user WHERE usename = current_user"
        )
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(postgres.url, password="guess")
        with pytest.raises(DirectoryInUse):
            await EmbeddedPostgres(data_dir).__aenter__()

    assert shown == {
        "fsync": "on",
        "synchronous_commit": "on",
        "listen_addresses": LOOPBACK,
        "data_checksums": "on",
    }
    assert is_superuser is False
    assert (data_dir / "postgres.password").stat().st_mode & 0o777 == 0o600


async def test_taken_port_is_refused_by_name(data_dir: Path) -> None:
    port = pick_port()
    other = await asyncio.start_server(lambda _r, writer: writer.close(), LOOPBACK, port)
    async with other:
        with pytest.raises(PortTaken, match=rf"port {port} for temporal .*--temporal-port"):
            await EmbeddedTemporal(data_dir, port=port).__aenter__()


async def test_temporal_keeps_runs_and_search_attributes_through_kills_and_a_second_start(
    data_dir: Path,
) -> None:
    async with EmbeddedTemporal(data_dir) as temporal:
        client = await Client.connect(temporal.address)
        await client.start_workflow("Nobody", id="kept", task_queue="nobody")
        killed = temporal.pid
        os.kill(killed, signal.SIGKILL)
        await temporal.await_restart(after_pid=killed)

    async with EmbeddedTemporal(data_dir) as temporal:
        client = await Client.connect(temporal.address)
        assert (await client.get_workflow_handle("kept").describe()).workflow_type == "Nobody"
        assert await register_search_attributes(client, namespace=NAMESPACE) == ()
        found = client.list_workflows(f"{SEARCH_ATTRIBUTES[0]} = 'acme'")
        assert [run async for run in found] == []
        described = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=NAMESPACE)
        )
        kept_for = described.config.workflow_execution_retention_ttl.ToTimedelta()
        assert kept_for == RETENTION


async def test_missing_search_attributes_are_registered_once(data_dir: Path) -> None:
    bare = EmbeddedTemporal(data_dir, search_attributes=())
    async with bare as temporal:
        first = await register_search_attributes(temporal.address, namespace=NAMESPACE)
        second = await register_search_attributes(temporal.address, namespace=NAMESPACE)

    assert first == SEARCH_ATTRIBUTES
    assert second == ()
