"""Reconciliation: runs and findings."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Reconciliation: runs and findings."""
    op.create_table(
        "reconciliation_providers",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("watermark", sa.DateTime(timezone=True), nullable=True),
        sa.Column("every_seconds", sa.Integer(), nullable=True),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "every_seconds BETWEEN 10 AND 604800",
            name=op.f("reconciliation_providers_every_seconds_check"),
        ),
        sa.PrimaryKeyConstraint("provider", name=op.f("reconciliation_providers_pkey")),
    )
    op.create_table(
        "reconciliation_runs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("moves_watermark", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("fetch_cursor", sa.Text(), nullable=True),
        sa.Column("fetched", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("match_cursor", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("sweep_cursor", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column(
            "counts",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column(
            "sums",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column(
            "preview",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'"),
            nullable=False,
        ),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(state IN ('done', 'failed')) = (ended_at IS NOT NULL)",
            name=op.f("reconciliation_runs_ended_at_check"),
        ),
        sa.CheckConstraint(
            "state IN ('accepted', 'running', 'done', 'failed')",
            name=op.f("reconciliation_runs_state_check"),
        ),
        sa.CheckConstraint(
            "trigger IN ('schedule', 'person')", name=op.f("reconciliation_runs_trigger_check")
        ),
        sa.CheckConstraint("since < until", name=op.f("reconciliation_runs_window_check")),
        sa.PrimaryKeyConstraint("id", name=op.f("reconciliation_runs_pkey")),
        sa.UniqueConstraint(
            "provider",
            "requested_by",
            "key",
            name=op.f("reconciliation_runs_provider_requested_by_key_key"),
        ),
    )
    op.create_index(
        "reconciliation_runs_newest_idx",
        "reconciliation_runs",
        ["provider", sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index(
        "reconciliation_runs_open_idx",
        "reconciliation_runs",
        ["deadline_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('accepted', 'running')"),
    )
    op.create_table(
        "reconciliation_records",
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("record_id", sa.Text(), nullable=False),
        sa.Column("belongs", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.Column("amount_minor", sa.BigInteger(), nullable=True),
        sa.Column("currency", sa.Text(), nullable=True),
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"],
            ["reconciliation_runs.id"],
            name=op.f("reconciliation_records_run_id_fkey"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "record_id", name=op.f("reconciliation_records_pkey")),
    )
    op.create_index(
        "reconciliation_records_belongs_idx",
        "reconciliation_records",
        ["run_id", "belongs", "created_at", "record_id"],
        unique=False,
    )
    op.create_index(
        "reconciliation_records_target_idx",
        "reconciliation_records",
        ["run_id", "target"],
        unique=False,
        postgresql_where=sa.text("target IS NOT NULL"),
    )
    op.create_table(
        "reconciliation_findings",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("record_id", sa.Text(), nullable=True),
        sa.Column("effect_key", sa.Text(), nullable=True),
        sa.Column("claim_id", sa.BigInteger(), nullable=True),
        sa.Column("amount_minor", sa.BigInteger(), nullable=True),
        sa.Column("currency", sa.Text(), nullable=True),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=False),
        sa.Column("remedy_state", sa.Text(), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("resolved_by", sa.Text(), nullable=True),
        sa.Column("first_run_id", sa.BigInteger(), nullable=False),
        sa.Column("last_run_id", sa.BigInteger(), nullable=False),
        sa.Column("runs_in_a_row", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "kind IN ('matched', 'amount_mismatch', 'provider_only', 'local_only', 'duplicate', 'late', 'refund_excess')",
            name=op.f("reconciliation_findings_kind_check"),
        ),
        sa.CheckConstraint(
            "remedy IN ('none', 'resolve', 'undo')",
            name=op.f("reconciliation_findings_remedy_check"),
        ),
        sa.CheckConstraint(
            "remedy_state IN ('none', 'planned', 'done', 'refused')",
            name=op.f("reconciliation_findings_remedy_state_check"),
        ),
        sa.CheckConstraint(
            "state IN ('open', 'acknowledged', 'resolved')",
            name=op.f("reconciliation_findings_state_check"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("reconciliation_findings_pkey")),
        sa.UniqueConstraint(
            "provider",
            "kind",
            "subject",
            name=op.f("reconciliation_findings_provider_kind_subject_key"),
        ),
    )
    op.create_index(
        "reconciliation_findings_seen_idx",
        "reconciliation_findings",
        ["provider", "last_run_id"],
        unique=False,
    )
    op.create_index(
        "reconciliation_findings_when_idx",
        "reconciliation_findings",
        ["provider", "state", "occurred_at"],
        unique=False,
    )
    op.create_table(
        "reconciliation_history",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("finding_id", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("happened", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["finding_id"],
            ["reconciliation_findings.id"],
            name=op.f("reconciliation_history_finding_id_fkey"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("reconciliation_history_pkey")),
    )
    op.create_index(
        op.f("reconciliation_history_finding_id_idx"),
        "reconciliation_history",
        ["finding_id"],
        unique=False,
    )
    op.create_table(
        "reconciliation_actions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("record_id", sa.Text(), nullable=False),
        sa.Column("finding_id", sa.BigInteger(), nullable=False),
        sa.Column("claim_id", sa.BigInteger(), nullable=False),
        sa.Column("effect", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("settled", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["claim_id"], ["claims.id"], name=op.f("reconciliation_actions_claim_id_fkey")
        ),
        sa.ForeignKeyConstraint(
            ["finding_id"],
            ["reconciliation_findings.id"],
            name=op.f("reconciliation_actions_finding_id_fkey"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("reconciliation_actions_pkey")),
        sa.UniqueConstraint(
            "provider",
            "account",
            "record_id",
            name=op.f("reconciliation_actions_provider_account_record_id_key"),
        ),
    )
    op.create_index(
        "reconciliation_actions_open_idx",
        "reconciliation_actions",
        ["provider", "id"],
        unique=False,
        postgresql_where=sa.text("NOT settled"),
    )
    op.create_index("effects_window_idx", "effects", ["provider", "created_at"], unique=False)
    op.create_index(
        "effects_undoes_idx",
        "effects",
        ["provider", "undoes"],
        unique=False,
        postgresql_where=sa.text("undoes IS NOT NULL"),
    )
    op.create_index(
        "effects_undecided_idx",
        "effects",
        ["provider", "amount_minor"],
        unique=False,
        postgresql_where=sa.text("state IN ('sent', 'unknown', 'parked')"),
    )
    # ### end Alembic commands ###
