"""Alembic's entry: runs the versions on the connection that `ledger.migrate` hands over."""

from alembic import context

from ledger.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
