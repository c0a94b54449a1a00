"""Messages in (`inbox`, `entities`) and events out (`endpoints`, `outbox`)."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from ledger.tables import metadata
from operations.messages import Reading

_READINGS = ", ".join(f"'{reading.value}'" for reading in Reading)
CONTRADICTS = text(f"reading IN ('{Reading.DIFFERS}', '{Reading.TOO_LATE}')")
"""Of a message in the inbox. Spelled out in statements too, or they could not use its index."""

inbox = Table(
    "inbox",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("provider", Text, nullable=False),
    Column("entity", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("rank", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("exists", Boolean, nullable=False),
    Column("reference", Text),
    Column("provider_reference", Text),
    Column("amount_minor", BigInteger),
    Column("currency", Text),
    Column("received_at", DateTime(timezone=True), nullable=False),
    # What it has come to mean for our effects, and since when.
    Column("reading", Text, nullable=False),
    Column("applied_at", DateTime(timezone=True)),
    # The effect it is about, once that is known.
    Column("claim_id", BigInteger),
    Column("step", Text),
    Column("purpose", Text),
    # When the sweep looks at it again: to match it, or to tell the run. NULL when all is done.
    Column("check_at", DateTime(timezone=True)),
    Column("checks", Integer, nullable=False, server_default=text("0")),
    UniqueConstraint("provider", "entity", "version"),
    CheckConstraint(f"reading IN ({_READINGS})", name="reading"),
    CheckConstraint("reading <> 'confirmed' OR claim_id IS NOT NULL", name="claim_id"),
    CheckConstraint("reading <> 'waiting' OR check_at IS NOT NULL", name="check_at"),
    Index("inbox_check_at_idx", "check_at", postgresql_where=text("check_at IS NOT NULL")),
    Index("inbox_waiting_idx", "reference", postgresql_where=text("reading = 'waiting'")),
    Index("inbox_contradicts_idx", "id", postgresql_where=CONTRADICTS),
    Index("inbox_received_at_idx", "received_at"),
)

entities = Table(
    "entities",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("entity", Text, primary_key=True),
    # The furthest state that anybody has told us of: it only grows.
    Column("rank", BigInteger, nullable=False),
    Column("version", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)

endpoints = Table(
    "endpoints",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    # Signs beside the new one until `previous_until`, so that a receiver can change over.
    Column("previous_secret", Text),
    Column("previous_until", DateTime(timezone=True)),
    Column("enabled", Boolean, nullable=False, server_default=text("true")),
    Column("revision", Integer, nullable=False, server_default=text("1")),
    # Failures in a row, since when, and the latest one's reason; a success clears all three.
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("failing_since", DateTime(timezone=True)),
    Column("last_error", Text),
    # Nothing is sent before: the pause after a failure.
    Column("retry_at", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    CheckConstraint("(failures = 0) = (failing_since IS NULL)", name="failing_since"),
    CheckConstraint("id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'", name="id"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    # What is kept in order: an operation, or a finding.
    Column("subject", Text, nullable=False),
    # Grows within a subject: an operation's revision when it happened.
    Column("sequence", Integer, nullable=False),
    Column("type", Text, nullable=False),
    # The JSON of the event's `data`: frozen, so that every attempt sends the same bytes.
    Column("payload", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    # While it is being sent: when the attempt counts as lost. After a failure: when to try again.
    Column("next_at", DateTime(timezone=True), nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("last_error", Text),
    Column("delivered_at", DateTime(timezone=True)),
    ForeignKeyConstraint(
        ["tenant", "endpoint"], ["endpoints.tenant", "endpoints.id"], ondelete="CASCADE"
    ),
    Index(
        "outbox_pending_idx",
        "tenant",
        "endpoint",
        "id",
        postgresql_where=text("delivered_at IS NULL"),
    ),
    Index(
        "outbox_order_idx",
        "tenant",
        "endpoint",
        "subject",
        "id",
        postgresql_where=text("delivered_at IS NULL"),
    ),
    Index(
        "outbox_delivered_at_idx",
        "delivered_at",
        postgresql_where=text("delivered_at IS NOT NULL"),
    ),
)
