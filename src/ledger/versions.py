"""Versions of the schema: the database's own, and the newest that this program knows.

Without Alembic, which only `migrate` needs: it would cost every API process 15 MiB, and each look
at `/readyz` a reading of all migrations.
"""

from functools import cache
from pathlib import Path

from ledger.database import Database

MIGRATIONS = Path(__file__).parent / "migrations"

_VERSION = "SELECT version_num FROM alembic_version"


@cache
def newest() -> str:
    """The newest version this program knows: migrations are numbered by their files' names."""
    names = [path.name for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py")]
    return max(names).partition("_")[0]


async def current(database: Database) -> str | None:
    """The database's version; None before the first migration. Raises StorageUnavailable."""
    async with database.connection() as connection:
        known = await connection.fetchval("SELECT to_regclass('alembic_version')")
        return None if known is None else await connection.fetchval(_VERSION)
