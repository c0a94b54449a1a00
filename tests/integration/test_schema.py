"""The tables that the statements are written against are those that the migrations make."""

from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from ledger import account_tables, message_tables, reconciliation_tables
from ledger.tables import metadata

TABLES = (account_tables, message_tables, reconciliation_tables)
"""Modules that add to the metadata: with them it is complete."""


def _differences(connection: Connection) -> list[Any]:
    return compare_metadata(MigrationContext.configure(connection), metadata)


async def test_the_migrations_make_the_tables_of_the_metadata(database_url: str) -> None:
    engine = create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://", 1))
    try:
        async with engine.connect() as connection:
            assert await connection.run_sync(_differences) == []
    finally:
        await engine.dispose()
