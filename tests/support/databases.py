"""Databases of a test's own, cloned from a migrated template."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg


@asynccontextmanager
async def cloned_database(server_url: str, *, template: str) -> AsyncGenerator[str]:
    """The URL of a fresh clone of `template`; dropped at the end."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    await execute(server_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield named(server_url, name)
    finally:
        await execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def named(url: str, database: str) -> str:
    """`url` with another database."""
    return f"{url.rpartition('/')[0]}/{database}"


async def execute(url: str, statement: str) -> None:
    """Run one statement outside a transaction; a template in use is waited for."""
    connection = await asyncpg.connect(named(url, "postgres"))
    try:
        for attempt in range(50):
            try:
                await connection.execute(statement)
            except asyncpg.ObjectInUseError:
                await asyncio.sleep(0.02 * (attempt + 1))
            else:
                return
        raise TimeoutError(statement)
    finally:
        await connection.close()
