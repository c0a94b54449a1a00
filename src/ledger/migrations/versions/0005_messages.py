"""Messages in and events out."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Messages in and events out."""
    op.create_table(
        "inbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("exists", sa.Boolean(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.Column("provider_reference", sa.Text(), nullable=True),
        sa.Column("amount_minor", sa.BigInteger(), nullable=True),
        sa.Column("currency", sa.Text(), nullable=True),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reading", sa.Text(), nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claim_id", sa.BigInteger(), nullable=True),
        sa.Column("step", sa.Text(), nullable=True),
        sa.Column("purpose", sa.Text(), nullable=True),
        sa.Column("check_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("checks", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "reading <> 'confirmed' OR claim_id IS NOT NULL", name=op.f("inbox_claim_id_check")
        ),
        sa.CheckConstraint(
            "reading <> 'waiting' OR check_at IS NOT NULL", name=op.f("inbox_check_at_check")
        ),
        sa.CheckConstraint(
            "reading IN ('waiting', 'unrelated', 'known', 'confirmed', 'differs', 'too_late', 'never_matched')",
            name=op.f("inbox_reading_check"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("inbox_pkey")),
        sa.UniqueConstraint(
            "provider", "entity", "version", name=op.f("inbox_provider_entity_version_key")
        ),
    )
    op.create_index(
        "inbox_check_at_idx",
        "inbox",
        ["check_at"],
        unique=False,
        postgresql_where=sa.text("check_at IS NOT NULL"),
    )
    op.create_index("inbox_received_at_idx", "inbox", ["received_at"], unique=False)
    op.create_index(
        "inbox_waiting_idx",
        "inbox",
        ["reference"],
        unique=False,
        postgresql_where=sa.text("reading = 'waiting'"),
    )
    op.create_table(
        "entities",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("provider", "entity", name=op.f("entities_pkey")),
    )
    op.create_table(
        "endpoints",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("previous_secret", sa.Text(), nullable=True),
        sa.Column("previous_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'", name=op.f("endpoints_id_check")
        ),
        sa.CheckConstraint(
            "(failures = 0) = (failing_since IS NULL)", name=op.f("endpoints_failing_since_check")
        ),
        sa.PrimaryKeyConstraint("tenant", "id", name=op.f("endpoints_pkey")),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant", "endpoint"],
            ["endpoints.tenant", "endpoints.id"],
            name=op.f("outbox_tenant_endpoint_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("outbox_pkey")),
    )
    op.create_index(
        "outbox_delivered_at_idx",
        "outbox",
        ["delivered_at"],
        unique=False,
        postgresql_where=sa.text("delivered_at IS NOT NULL"),
    )
    op.create_index(
        "outbox_order_idx",
        "outbox",
        ["tenant", "endpoint", "subject", "id"],
        unique=False,
        postgresql_where=sa.text("delivered_at IS NULL"),
    )
    op.create_index(
        "outbox_pending_idx",
        "outbox",
        ["tenant", "endpoint", "id"],
        unique=False,
        postgresql_where=sa.text("delivered_at IS NULL"),
    )
    # ### end Alembic commands ###
