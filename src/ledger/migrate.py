"""Bring the schema up to date. Safe to run in several processes at once."""

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from ledger.versions import MIGRATIONS, newest

MIGRATION_LOCK = 0x7A11
"""The advisory lock that lets one process migrate at a time."""


async def migrate(url: str) -> str:
    """Bring the database at `url` to the newest schema, a transaction a version; returns it."""
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://", 1))
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_upgrade)
            await connection.commit()
    finally:
        await engine.dispose()
    return newest()


def _upgrade(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK})
    connection.commit()
    try:
        if MigrationContext.configure(connection).get_current_revision() != newest():
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
    finally:
        connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": MIGRATION_LOCK})
        connection.commit()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    return config
