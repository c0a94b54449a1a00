"""The tables. Constraints are the invariants: the database decides races, nobody checks first."""

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
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from operations.keys import Purpose
from operations.states import ClaimState, EffectState, Outcome

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)


def _instant(name: str, *, nullable: bool = False) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _one_of(
    column: str, values: type[ClaimState | EffectState | Outcome | Purpose]
) -> CheckConstraint:
    allowed = ", ".join(f"'{value.value}'" for value in values)
    return CheckConstraint(f"{column} IN ({allowed})", name=column)


tenants = Table(
    "tenants",
    metadata,
    Column("name", Text, primary_key=True),
    _instant("created_at"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, ForeignKey("tenants.name"), nullable=False),
    Column("role", Text, nullable=False),
    Column("secret_hash", LargeBinary, nullable=False),
    _instant("created_at"),
    _instant("revoked_at", nullable=True),
    CheckConstraint("role IN ('client', 'operator')", name="role"),
    CheckConstraint("length(secret_hash) = 32", name="secret_hash"),
)

claims = Table(
    "claims",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    # The canonical request, as text: frozen, and free of everything that has no meaning.
    Column("request", Text),
    # What each provider promised when the operation was accepted.
    Column("profiles", Text),
    Column("state", Text, nullable=False),
    Column("outcome", Text),
    Column("receipt_status", SmallInteger),
    # A JSON array of [name, value] pairs: order matters, and so does a repeated name.
    Column("receipt_headers", Text),
    Column("receipt_body", LargeBinary),
    # Counts every change of the claim and of its effects: the ETag, and an event's number.
    Column("revision", Integer, nullable=False, server_default=text("1")),
    _instant("created_at"),
    _instant("updated_at"),
    _instant("expires_at", nullable=True),
    # When the relay next makes sure that a run exists. NULL once done.
    _instant("check_at", nullable=True),
    UniqueConstraint("tenant", "operation", "key"),
    _one_of("state", ClaimState),
    _one_of("outcome", Outcome),
    CheckConstraint("length(key) BETWEEN 1 AND 255", name="key"),
    CheckConstraint(
        "(state = 'done') = (outcome IS NOT NULL AND receipt_status IS NOT NULL"
        " AND receipt_headers IS NOT NULL AND receipt_body IS NOT NULL)",
        name="receipt",
    ),
    CheckConstraint("(state IN ('done', 'expired')) = (check_at IS NULL)", name="check_at"),
    CheckConstraint("(state IN ('done', 'expired')) = (expires_at IS NOT NULL)", name="expires_at"),
    CheckConstraint("receipt_status BETWEEN 200 AND 499", name="receipt_status"),
    Index("claims_check_at_idx", "check_at", postgresql_where=text("check_at IS NOT NULL")),
    Index("claims_expires_at_idx", "expires_at", postgresql_where=text("state = 'done'")),
    # Serves every filter of the list: a page is merged from one short run per operation and state.
    # The state stands first, or a planner without statistics would look for keys in here.
    Index("claims_page_idx", "state", "tenant", "operation", "created_at", "id"),
)

effects = Table(
    "effects",
    metadata,
    Column("claim_id", BigInteger, ForeignKey("claims.id"), primary_key=True),
    Column("step", Text, primary_key=True),
    Column("purpose", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("region", Text, nullable=False),
    Column("guarantee", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("key", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("request", JSONB, nullable=False),
    Column("frozen_body", Text),
    Column("amount_minor", BigInteger),
    Column("currency", Text),
    # For an undo or a refund: what it takes back, and whether its amount is held there.
    Column("undoes", Text),
    Column("holds", Boolean, nullable=False, server_default=text("false")),
    # What has been, or may have been, given back of `amount_minor`: never more than was taken.
    Column("refunded_minor", BigInteger, nullable=False, server_default=text("0")),
    Column("provider_reference", Text),
    Column("sends", Integer, nullable=False, server_default=text("0")),
    _instant("sent_at", nullable=True),
    _instant("last_sent_at", nullable=True),
    Column("reason", Text),
    # Set once: no request for this effect may leave any more.
    _instant("tombstoned_at", nullable=True),
    _instant("created_at"),
    _instant("updated_at"),
    _one_of("state", EffectState),
    _one_of("purpose", Purpose),
    CheckConstraint("ordinal >= 0 AND sends >= 0", name="counts"),
    CheckConstraint(
        "refunded_minor >= 0 AND refunded_minor <= coalesce(amount_minor, 0)", name="refunds"
    ),
    Index("effects_provider_reference_idx", "provider", "provider_reference"),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("claim_id", BigInteger, ForeignKey("claims.id"), nullable=False, index=True),
    Column("step", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("provider_reference", Text),
    Column("evidence", Text, nullable=False),
    Column("decided_by", Text, nullable=False),
    _instant("decided_at"),
)

business_rows = Table(
    "business_rows",
    metadata,
    Column("claim_id", BigInteger, ForeignKey("claims.id"), primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("operation", Text, nullable=False),
    # What the operation answered: the order, the charge, the refund.
    Column("answer", JSONB, nullable=False),
    _instant("created_at"),
)
