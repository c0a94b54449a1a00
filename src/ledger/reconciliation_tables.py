"""The tables of reconciliation: providers' windows, runs, staged records, findings, actions."""

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from ledger.tables import effects, metadata
from operations.reconciliation import (
    FindingKind,
    FindingState,
    Remedy,
    RemedyState,
    RunState,
    Trigger,
)


def _instant(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    allowed = ", ".join(f"'{value.value}'" for value in values)
    return CheckConstraint(f"{column} IN ({allowed})", name=column)


reconciliation_providers = Table(
    "reconciliation_providers",
    metadata,
    Column("provider", Text, primary_key=True),
    # Everything before it has been compared. NULL before the first run.
    _instant("watermark", nullable=True),
    # The schedule, as a person set it; Temporal's copy is made again from here.
    Column("every_seconds", Integer),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("revision", Integer, nullable=False, server_default=text("1")),
    _instant("updated_at"),
    CheckConstraint("every_seconds BETWEEN 10 AND 604800", name="every_seconds"),
)

reconciliation_runs = Table(
    "reconciliation_runs",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("provider", Text, nullable=False),
    # Whoever asked, and under which key; a scheduled run's key is its workflow ID.
    Column("requested_by", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("dry_run", Boolean, nullable=False, server_default=text("false")),
    Column("moves_watermark", Boolean, nullable=False, server_default=text("false")),
    _instant("since"),
    _instant("until"),
    Column("state", Text, nullable=False),
    # Where the phases of the run stand: each page moves its cursor in its own transaction.
    Column("fetch_cursor", Text),
    Column("fetched", Boolean, nullable=False, server_default=text("false")),
    Column("match_cursor", Text, nullable=False, server_default=text("''")),
    Column("sweep_cursor", Text, nullable=False, server_default=text("''")),
    Column("counts", JSONB, nullable=False, server_default=text("'{}'")),
    Column("sums", JSONB, nullable=False, server_default=text("'{}'")),
    # What a dry run would have found and done, as far as people read.
    Column("preview", JSONB, nullable=False, server_default=text("'[]'")),
    Column("workflow_id", Text, nullable=False),
    Column("failure", Text),
    _instant("created_at"),
    _instant("started_at", nullable=True),
    # A run that has not ended by then is taken for lost.
    _instant("deadline_at"),
    _instant("ended_at", nullable=True),
    UniqueConstraint("provider", "requested_by", "key"),
    _one_of("state", RunState),
    _one_of("trigger", Trigger),
    CheckConstraint("since < until", name="window"),
    CheckConstraint("(state IN ('done', 'failed')) = (ended_at IS NOT NULL)", name="ended_at"),
    Index("reconciliation_runs_newest_idx", "provider", text("id DESC")),
    Index(
        "reconciliation_runs_open_idx",
        "deadline_at",
        postgresql_where=text("state IN ('accepted', 'running')"),
    ),
)

reconciliation_records = Table(
    "reconciliation_records",
    metadata,
    Column(
        "run_id",
        BigInteger,
        ForeignKey("reconciliation_runs.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("record_id", Text, primary_key=True),
    # Our reference, or the record itself where it has none: what belongs together.
    Column("belongs", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("reference", Text),
    Column("amount_minor", BigInteger),
    Column("currency", Text),
    Column("target", Text),
    Column("state", Text, nullable=False),
    _instant("created_at"),
    Index("reconciliation_records_belongs_idx", "run_id", "belongs", "created_at", "record_id"),
    Index(
        "reconciliation_records_target_idx",
        "run_id",
        "target",
        postgresql_where=text("target IS NOT NULL"),
    ),
)

reconciliation_findings = Table(
    "reconciliation_findings",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("provider", Text, nullable=False),
    Column("kind", Text, nullable=False),
    # The provider's identifier of a record, or our reference of an effect without one.
    Column("subject", Text, nullable=False),
    Column("record_id", Text),
    Column("effect_key", Text),
    Column("claim_id", BigInteger),
    Column("amount_minor", BigInteger),
    Column("currency", Text),
    _instant("occurred_at"),
    Column("state", Text, nullable=False),
    Column("remedy", Text, nullable=False),
    Column("remedy_state", Text, nullable=False),
    Column("evidence", JSONB, nullable=False),
    Column("note", Text),
    Column("resolved_by", Text),
    Column("first_run_id", BigInteger, nullable=False),
    Column("last_run_id", BigInteger, nullable=False),
    Column("runs_in_a_row", Integer, nullable=False, server_default=text("1")),
    Column("revision", Integer, nullable=False, server_default=text("1")),
    _instant("opened_at"),
    _instant("updated_at"),
    UniqueConstraint("provider", "kind", "subject"),
    _one_of("kind", FindingKind),
    _one_of("state", FindingState),
    _one_of("remedy", Remedy),
    _one_of("remedy_state", RemedyState),
    Index("reconciliation_findings_seen_idx", "provider", "last_run_id"),
    Index("reconciliation_findings_when_idx", "provider", "state", "occurred_at"),
)

reconciliation_history = Table(
    "reconciliation_history",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column(
        "finding_id",
        BigInteger,
        ForeignKey("reconciliation_findings.id"),
        nullable=False,
        index=True,
    ),
    Column("state", Text, nullable=False),
    Column("happened", Text, nullable=False),
    Column("note", Text),
    Column("by", Text, nullable=False),
    Column("run_id", BigInteger),
    _instant("at"),
)

reconciliation_actions = Table(
    "reconciliation_actions",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("provider", Text, nullable=False),
    Column("account", Text, nullable=False),
    # At most one undo of one record, whatever it was found as, and by however many runs.
    Column("record_id", Text, nullable=False),
    Column("finding_id", BigInteger, ForeignKey("reconciliation_findings.id"), nullable=False),
    Column("claim_id", BigInteger, ForeignKey("claims.id"), nullable=False),
    # The undo as an effect: everything that decides its next move.
    Column("effect", JSONB, nullable=False),
    Column("settled", Boolean, nullable=False, server_default=text("false")),
    _instant("created_at"),
    _instant("updated_at"),
    UniqueConstraint("provider", "account", "record_id"),
    Index(
        "reconciliation_actions_open_idx",
        "provider",
        "id",
        postgresql_where=text("NOT settled"),
    ),
)

# What reconciliation reads of `effects`: a provider's window, what it gave back, what is undecided.
Index("effects_window_idx", effects.c.provider, effects.c.created_at)
Index(
    "effects_undoes_idx",
    effects.c.provider,
    effects.c.undoes,
    postgresql_where=text("undoes IS NOT NULL"),
)
Index(
    "effects_undecided_idx",
    effects.c.provider,
    effects.c.amount_minor,
    postgresql_where=text("state IN ('sent', 'unknown', 'parked')"),
)
