"""Accounts and their entries."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ENTRIES = """
CREATE VIEW entries AS
SELECT t.claim_id, t.id AS transfer_id, t.tenant, half.account, t.currency, half.amount_minor, t.created_at
FROM transfers AS t
CROSS JOIN LATERAL (VALUES (t.payer, -t.amount_minor), (t.payee, t.amount_minor)) AS half (account, amount_minor)
"""


def upgrade() -> None:
    """Accounts and their entries."""
    op.create_table(
        "accounts",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("floor_minor", sa.BigInteger(), nullable=True),
        sa.Column("balance_minor", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("revision", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("currency ~ '^[A-Z]{3}$'", name=op.f("accounts_currency_check")),
        sa.CheckConstraint("balance_minor >= floor_minor", name=op.f("accounts_floor_check")),
        sa.CheckConstraint(
            "balance_minor BETWEEN -1000000000000000000 AND 1000000000000000000",
            name=op.f("accounts_limit_check"),
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("accounts_pkey")),
        sa.UniqueConstraint(
            "tenant", "id", "currency", name=op.f("accounts_tenant_id_currency_key")
        ),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_table(
        "transfers",
        sa.Column("claim_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("payer", sa.Text(), nullable=False),
        sa.Column("payee", sa.Text(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("amount_minor", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("amount_minor > 0", name=op.f("transfers_amount_check")),
        sa.CheckConstraint("payer <> payee", name=op.f("transfers_two_accounts_check")),
        sa.ForeignKeyConstraint(
            ["tenant", "payer", "currency"],
            ["accounts.tenant", "accounts.id", "accounts.currency"],
            name=op.f("transfers_tenant_payer_currency_fkey"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant", "payee", "currency"],
            ["accounts.tenant", "accounts.id", "accounts.currency"],
            name=op.f("transfers_tenant_payee_currency_fkey"),
        ),
        sa.PrimaryKeyConstraint("claim_id", name=op.f("transfers_pkey")),
    )
    op.create_index("transfers_payer_idx", "transfers", ["tenant", "payer"], unique=False)
    op.create_index("transfers_payee_idx", "transfers", ["tenant", "payee"], unique=False)
    op.execute(ENTRIES)
