"""Accounts and transfers. One row of `transfers` is both halves of a double entry.

A transfer that does not sum to zero cannot be written down: there is one amount, which leaves one
account and reaches another of the same currency. The view `entries` shows the two halves.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Table,
    Text,
    UniqueConstraint,
    column,
    table,
    text,
)

from ledger.tables import metadata
from operations.accounts import BALANCE_MINOR_MAX

FLOOR_CHECK = "accounts_floor_check"
LIMIT_CHECK = "accounts_limit_check"
TRANSFER_KEYS = (
    "transfers_tenant_payer_currency_fkey",
    "transfers_tenant_payee_currency_fkey",
)

accounts = Table(
    "accounts",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("currency", Text, nullable=False),
    # The balance never goes below it; NULL is no floor.
    Column("floor_minor", BigInteger),
    Column("balance_minor", BigInteger, nullable=False, server_default=text("0")),
    # Counts every change: the ETag.
    Column("revision", BigInteger, nullable=False, server_default=text("1")),
    Column("created_at", DateTime(timezone=True), nullable=False),
    # What a transfer refers to, so that its currency is that of both accounts, for ever.
    UniqueConstraint("tenant", "id", "currency"),
    CheckConstraint("currency ~ '^[A-Z]{3}$'", name="currency"),
    CheckConstraint("balance_minor >= floor_minor", name="floor"),
    CheckConstraint(
        f"balance_minor BETWEEN -{BALANCE_MINOR_MAX} AND {BALANCE_MINOR_MAX}", name="limit"
    ),
    # Balances change in place (HOT) as long as there is room on the page.
    postgresql_with={"fillfactor": "50"},
)

transfers = Table(
    "transfers",
    metadata,
    # One claim, one transfer. No foreign key: the books outlive the claims.
    Column("claim_id", BigInteger, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("payer", Text, nullable=False),
    Column("payee", Text, nullable=False),
    Column("currency", Text, nullable=False),
    Column("amount_minor", BigInteger, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    CheckConstraint("amount_minor > 0", name="amount"),
    CheckConstraint("payer <> payee", name="two_accounts"),
    ForeignKeyConstraint(
        ["tenant", "payer", "currency"], ["accounts.tenant", "accounts.id", "accounts.currency"]
    ),
    ForeignKeyConstraint(
        ["tenant", "payee", "currency"], ["accounts.tenant", "accounts.id", "accounts.currency"]
    ),
    # For an account's entries, and for asking whether it has any.
    Index("transfers_payer_idx", "tenant", "payer"),
    Index("transfers_payee_idx", "tenant", "payee"),
)

entries = table(
    "entries",
    column("claim_id", BigInteger),
    column("transfer_id", Text),
    column("tenant", Text),
    column("account", Text),
    column("currency", Text),
    column("amount_minor", BigInteger),
    column("created_at", DateTime(timezone=True)),
)
"""A view: what left an account is negative, what reached one is positive."""
