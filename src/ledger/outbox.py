"""The outbox: events for tenants' endpoints, written in the transactions that cause them.

A row is one event for one endpoint, so a tenant without endpoints writes none. Rows of one subject
(an operation, a finding) reach an endpoint in their order: a later one is not taken before the
earlier ones are delivered.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from asyncpg import Record
from asyncpg.exceptions import ForeignKeyViolationError
from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    Text,
    any_,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal,
    not_,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from ledger.database import Connection, Database
from ledger.message_tables import endpoints, outbox
from ledger.statements import Statement
from ledger.tables import claims
from operations.messages import EventType

LEASE_SECONDS = 30.0
"""How long an attempt may take before another worker makes it anew: more than its timeout."""

PAUSES_SECONDS = (1.0, 5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""After each failure in a row; the last one repeats."""

DISABLE_AFTER_DAYS = 5
"""An endpoint that has failed for so long is switched off; its tenant sees that and why."""

KEEP_DAYS = 7
"""How long delivered events are kept, for whoever asks what was sent."""

DROP_DAYS = 30
"""How long undelivered events of an endpoint that is switched off are kept."""

_COLUMNS = ["tenant", "endpoint", "subject", "sequence", "type", "payload", "created_at", "next_at"]


def is_about_endpoints(error: ForeignKeyViolationError) -> bool:
    """Whether a statement failed because an endpoint that it tells has just been deleted."""
    return error.table_name == outbox.name


def told(changed: CTE, kind: EventType) -> CTE:
    """What to add, with `add_cte`, to a statement that changes claims: it tells every endpoint of
    their tenants. `changed` returns the claims' columns; `now` is a parameter of the statement."""
    row = changed.c
    payload = func.json_build_object(
        *("operation", row.operation, "key", row.key, "state", row.state),
        *("outcome", row.outcome, "status", row.receipt_status, "revision", row.revision),
    )
    now = bindparam("now", type_=outbox.c.created_at.type)
    events = (
        select(
            row.tenant,
            endpoints.c.id,
            func.concat("operation:", row.id),
            row.revision,
            literal(kind.value),
            cast(payload, Text),
            now,
            now,
        )
        .select_from(changed)
        .join(endpoints, endpoints.c.tenant == row.tenant)
        .where(endpoints.c.enabled)
    )
    return insert(outbox).from_select(_COLUMNS, events).returning(outbox.c.id).cte("told")


_claim = select(*claims.c).where(claims.c.id == bindparam("claim_id")).cte("claim")
_TELL = {
    kind: Statement(select(_claim.c.id).add_cte(told(_claim, kind)))
    for kind in (EventType.ACCEPTED, EventType.PARKED, EventType.DONE)
}
_ADD = Statement(
    insert(outbox).from_select(
        _COLUMNS,
        select(
            endpoints.c.tenant,
            endpoints.c.id,
            bindparam("subject", type_=Text),
            bindparam("sequence", type_=outbox.c.sequence.type),
            bindparam("kind", type_=Text),
            bindparam("payload", type_=Text),
            bindparam("now", type_=outbox.c.created_at.type),
            bindparam("now", type_=outbox.c.created_at.type),
        ).where(endpoints.c.tenant == bindparam("tenant"), endpoints.c.enabled),
    )
)

_PING = Statement(
    insert(outbox).values(
        tenant=bindparam("tenant"),
        endpoint=bindparam("endpoint"),
        subject="endpoint",
        sequence=bindparam("sequence"),
        type=EventType.PING.value,
        payload="{}",
        created_at=bindparam("now"),
        next_at=bindparam("now"),
    )
)

_now = bindparam("now", type_=outbox.c.next_at.type)
_earlier = outbox.alias("earlier")
_waits_its_turn = (
    select(literal(1))
    .where(
        _earlier.c.tenant == outbox.c.tenant,
        _earlier.c.endpoint == outbox.c.endpoint,
        _earlier.c.subject == outbox.c.subject,
        _earlier.c.delivered_at.is_(None),
        _earlier.c.id < outbox.c.id,
    )
    .exists()
)
_ready = (
    select(endpoints.c.tenant, endpoints.c.id, endpoints.c.failures)
    .where(
        endpoints.c.enabled,
        or_(endpoints.c.retry_at.is_(None), endpoints.c.retry_at <= _now),
        not_(
            func.concat(endpoints.c.tenant, "/", endpoints.c.id)
            == any_(bindparam("busy", type_=ARRAY(Text)))
        ),
    )
    .order_by(func.random())
    .limit(bindparam("endpoints_max", type_=BigInteger))
    .cte("ready")
)
_next = (
    select(outbox.c.id)
    .where(
        outbox.c.tenant == _ready.c.tenant,
        outbox.c.endpoint == _ready.c.id,
        outbox.c.delivered_at.is_(None),
        outbox.c.next_at <= _now,
        not_(_waits_its_turn),
    )
    .order_by(outbox.c.id)
    # An endpoint that fails gets one event at a time, to see whether it is back.
    .limit(case((_ready.c.failures > 0, 1), else_=bindparam("each_max", type_=BigInteger)))
    .with_for_update(skip_locked=True)
    .lateral("next")
)
_taken = select(_next.c.id).select_from(_ready.join(_next, true())).cte("taken")
_leased = (
    update(outbox)
    .where(outbox.c.id == _taken.c.id)
    .values(
        attempts=outbox.c.attempts + 1,
        next_at=_now + literal(timedelta(seconds=LEASE_SECONDS)),
    )
    .returning(*outbox.c)
    .cte("leased")
)
_TAKE = Statement(
    select(
        *_leased.c,
        endpoints.c.url,
        endpoints.c.secret,
        case((endpoints.c.previous_until > _now, endpoints.c.previous_secret), else_=null()).label(
            "previous_secret"
        ),
    )
    .join(
        endpoints,
        (endpoints.c.tenant == _leased.c.tenant) & (endpoints.c.id == _leased.c.endpoint),
    )
    .order_by(_leased.c.id)
)
_DELIVERED = Statement(
    update(outbox)
    .where(outbox.c.id == bindparam("id"), outbox.c.delivered_at.is_(None))
    .values(delivered_at=_now, last_error=null())
)
_of_endpoint = (endpoints.c.tenant == bindparam("tenant")) & (
    endpoints.c.id == bindparam("endpoint")
)
_WORKS = Statement(
    update(endpoints)
    .where(_of_endpoint, endpoints.c.failures > 0)
    .values(failures=0, failing_since=null(), last_error=null(), retry_at=null())
)
_FAILED = Statement(
    update(outbox)
    .where(outbox.c.id == bindparam("id"), outbox.c.delivered_at.is_(None))
    .values(next_at=bindparam("next_at"), last_error=bindparam("error"))
)
_pause = case(
    *(
        (endpoints.c.failures == failures, literal(timedelta(seconds=seconds)))
        for failures, seconds in enumerate(PAUSES_SECONDS)
    ),
    else_=literal(timedelta(seconds=PAUSES_SECONDS[-1])),
)
_FAILS = Statement(
    update(endpoints)
    .where(_of_endpoint)
    .values(
        failures=endpoints.c.failures + 1,
        failing_since=func.coalesce(endpoints.c.failing_since, _now),
        last_error=bindparam("error"),
        retry_at=_now + _pause,
        enabled=endpoints.c.enabled
        & (
            func.coalesce(endpoints.c.failing_since, _now)
            > _now - literal(timedelta(days=DISABLE_AFTER_DAYS))
        ),
    )
    .returning(endpoints.c.enabled)
)
_old = (
    select(outbox.c.id)
    .where(
        or_(
            outbox.c.delivered_at < bindparam("delivered_before"),
            outbox.c.delivered_at.is_(None) & (outbox.c.created_at < bindparam("created_before")),
        )
    )
    .limit(bindparam("limit", type_=BigInteger))
    .scalar_subquery()
)
_FORGET = Statement(delete(outbox).where(outbox.c.id.in_(_old)).returning(outbox.c.id))


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event, to be sent to one endpoint now."""

    id: int
    tenant: str
    endpoint: str
    subject: str
    type: str
    payload: str = field(repr=False)
    created_at: datetime
    attempts: int
    url: str
    secrets: tuple[str, ...] = field(repr=False)
    """The present one, and the previous one while it still counts."""

    @property
    def message_id(self) -> str:
        """The same at every attempt: what a receiver recognises repeats by."""
        return f"evt_{self.id:016x}"

    @property
    def address(self) -> str:
        """Of the endpoint, among all tenants'."""
        return f"{self.tenant}/{self.endpoint}"


async def tell(connection: Connection, claim_id: int, kind: EventType, *, now: datetime) -> None:
    """Tell of an operation as it stands, inside the caller's transaction, which has changed it."""
    await connection.execute(*_TELL[kind](claim_id=claim_id, now=now))


async def add(
    connection: Connection,
    *,
    tenant: str,
    subject: str,
    sequence: int,
    kind: EventType,
    data: Mapping[str, Any],
    now: datetime,
) -> None:
    """Tell every endpoint of `tenant`, inside the caller's transaction.

    `subject` (such as `finding:12`) is what is kept in order; `sequence` grows within it.
    """
    payload = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    await connection.execute(
        *_ADD(
            tenant=tenant,
            subject=subject,
            sequence=sequence,
            kind=kind.value,
            payload=payload,
            now=now,
        )
    )


async def ping(
    connection: Connection, *, tenant: str, endpoint: str, sequence: int, now: datetime
) -> None:
    """Have an event sent that says nothing, inside the caller's transaction."""
    await connection.execute(*_PING(tenant=tenant, endpoint=endpoint, sequence=sequence, now=now))


@dataclass(frozen=True, slots=True)
class Outbox:
    """What deliverers ask and say. Every method raises StorageUnavailable."""

    database: Database

    async def take(
        self, *, busy: Sequence[str], each_max: int, endpoints_max: int, now: datetime
    ) -> tuple[Delivery, ...]:
        """Take events that are due, and lease them: at most `each_max` for each of `endpoints_max`
        endpoints, none for the `busy` ones. In one transaction; two deliverers take different ones.
        """
        async with self.database.connection() as connection:
            rows = await connection.fetch(
                *_TAKE(busy=list(busy), each_max=each_max, endpoints_max=endpoints_max, now=now)
            )
        return tuple(_delivery(row) for row in rows)

    async def delivered(self, delivery: Delivery, *, now: datetime) -> None:
        """The endpoint has it, in one transaction."""
        async with self.database.transaction() as connection:
            await connection.execute(*_DELIVERED(id=delivery.id, now=now))
            await connection.execute(*_WORKS(tenant=delivery.tenant, endpoint=delivery.endpoint))

    async def failed(self, delivery: Delivery, *, error: str, now: datetime) -> bool:
        """An attempt failed, in one transaction; returns whether the endpoint is still switched on.

        The endpoint pauses, and so does the event: one that is never taken holds up its own subject
        and nothing else.
        """
        pause = PAUSES_SECONDS[min(delivery.attempts, len(PAUSES_SECONDS)) - 1]
        async with self.database.transaction() as connection:
            await connection.execute(
                *_FAILED(id=delivery.id, next_at=now + timedelta(seconds=pause), error=error)
            )
            enabled = await connection.fetchval(
                *_FAILS(
                    tenant=delivery.tenant,
                    endpoint=delivery.endpoint,
                    error=error,
                    now=now,
                )
            )
        return enabled is not False

    async def forget(self, *, now: datetime, limit: int) -> int:
        """Delete what was delivered a while ago, or could not be for too long; returns how many."""
        async with self.database.connection() as connection:
            rows = await connection.fetch(
                *_FORGET(
                    delivered_before=now - timedelta(days=KEEP_DAYS),
                    created_before=now - timedelta(days=DROP_DAYS),
                    limit=limit,
                )
            )
        return len(rows)


def _delivery(row: Record) -> Delivery:
    secrets = (row["secret"], row["previous_secret"])
    return Delivery(
        id=row["id"],
        tenant=row["tenant"],
        endpoint=row["endpoint"],
        subject=row["subject"],
        type=row["type"],
        payload=row["payload"],
        created_at=row["created_at"],
        attempts=row["attempts"],
        url=row["url"],
        secrets=tuple(secret for secret in secrets if secret is not None),
    )
