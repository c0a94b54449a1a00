"""Alembic's entry: runs the versions on the connection that `ledger.migrate` hands over."""

from alembic import context

from ledger import account_tables, message_tables, reconciliation_tables
from ledger.tables import metadata

TABLES = (account_tables, message_tables, reconciliation_tables)
"""Modules that add to the metadata: with them it is complete."""

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
