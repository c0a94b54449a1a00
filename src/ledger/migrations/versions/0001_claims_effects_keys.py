"""claims, effects, keys."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """claims, effects, keys."""
    op.create_table(
        "claims",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("request", sa.Text(), nullable=True),
        sa.Column("profiles", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("receipt_status", sa.SmallInteger(), nullable=True),
        sa.Column("receipt_headers", sa.Text(), nullable=True),
        sa.Column("receipt_body", sa.LargeBinary(), nullable=True),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("check_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(state = 'done') = (outcome IS NOT NULL AND receipt_status IS NOT NULL AND receipt_headers IS NOT NULL AND receipt_body IS NOT NULL)",
            name=op.f("claims_receipt_check"),
        ),
        sa.CheckConstraint(
            "(state IN ('done', 'expired')) = (check_at IS NULL)",
            name=op.f("claims_check_at_check"),
        ),
        sa.CheckConstraint(
            "(state IN ('done', 'expired')) = (expires_at IS NOT NULL)",
            name=op.f("claims_expires_at_check"),
        ),
        sa.CheckConstraint(
            "outcome IN ('succeeded', 'declined', 'compensated', 'cancelled', 'abandoned')",
            name=op.f("claims_outcome_check"),
        ),
        sa.CheckConstraint(
            "state IN ('accepted', 'parked', 'compensating', 'done', 'expired')",
            name=op.f("claims_state_check"),
        ),
        sa.CheckConstraint("length(key) BETWEEN 1 AND 255", name=op.f("claims_key_check")),
        sa.CheckConstraint(
            "receipt_status BETWEEN 200 AND 499", name=op.f("claims_receipt_status_check")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("claims_pkey")),
        sa.UniqueConstraint(
            "tenant", "operation", "key", name=op.f("claims_tenant_operation_key_key")
        ),
    )
    op.create_index(
        "claims_check_at_idx",
        "claims",
        ["check_at"],
        unique=False,
        postgresql_where=sa.text("check_at IS NOT NULL"),
    )
    op.create_index(
        "claims_expires_at_idx",
        "claims",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("state = 'done'"),
    )
    op.create_index(
        "claims_page_idx",
        "claims",
        ["state", "tenant", "operation", "created_at", "id"],
        unique=False,
    )
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("tenants_pkey")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("role IN ('client', 'operator')", name=op.f("api_keys_role_check")),
        sa.CheckConstraint("length(secret_hash) = 32", name=op.f("api_keys_secret_hash_check")),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("api_keys_tenant_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("api_keys_pkey")),
    )
    op.create_table(
        "business_rows",
        sa.Column("claim_id", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("answer", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["claim_id"], ["claims.id"], name=op.f("business_rows_claim_id_fkey")
        ),
        sa.PrimaryKeyConstraint("claim_id", name=op.f("business_rows_pkey")),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("claim_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("provider_reference", sa.Text(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["claim_id"], ["claims.id"], name=op.f("decisions_claim_id_fkey")),
        sa.PrimaryKeyConstraint("id", name=op.f("decisions_pkey")),
    )
    op.create_index(op.f("decisions_claim_id_idx"), "decisions", ["claim_id"], unique=False)
    op.create_table(
        "effects",
        sa.Column("claim_id", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("region", sa.Text(), nullable=False),
        sa.Column("guarantee", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("request", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("frozen_body", sa.Text(), nullable=True),
        sa.Column("amount_minor", sa.BigInteger(), nullable=True),
        sa.Column("currency", sa.Text(), nullable=True),
        sa.Column("undoes", sa.Text(), nullable=True),
        sa.Column("holds", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("refunded_minor", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("provider_reference", sa.Text(), nullable=True),
        sa.Column("sends", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("tombstoned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "purpose IN ('action', 'undo', 'duplicate')", name=op.f("effects_purpose_check")
        ),
        sa.CheckConstraint(
            "state IN ('planned', 'sent', 'confirmed', 'rejected', 'unknown', 'absent', 'parked', 'compensated')",
            name=op.f("effects_state_check"),
        ),
        sa.CheckConstraint("ordinal >= 0 AND sends >= 0", name=op.f("effects_counts_check")),
        sa.CheckConstraint(
            "refunded_minor >= 0 AND refunded_minor <= coalesce(amount_minor, 0)",
            name=op.f("effects_refunds_check"),
        ),
        sa.ForeignKeyConstraint(["claim_id"], ["claims.id"], name=op.f("effects_claim_id_fkey")),
        sa.PrimaryKeyConstraint(
            "claim_id", "step", "purpose", "ordinal", name=op.f("effects_pkey")
        ),
        sa.UniqueConstraint("key", name=op.f("effects_key_key")),
    )
    op.create_index(
        "effects_provider_reference_idx",
        "effects",
        ["provider", "provider_reference"],
        unique=False,
    )
