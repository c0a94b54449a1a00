"""The statement of a local operation: its own rows, around the claim that every operation makes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    CTE,
    LargeBinary,
    Select,
    SmallInteger,
    Text,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    literal_column,
    null,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.elements import ColumnElement

from ledger import outbox
from ledger.claims import CLAIM_COLUMNS
from ledger.statements import Statement
from ledger.tables import claims
from operations.contracts import StoredReceipt
from operations.declaration import Request
from operations.messages import EventType
from operations.states import ClaimState, Outcome

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LocalEffect:
    """What one local operation does to our own rows."""

    statement: Statement
    """Claims, applies and keeps the receipt: all or nothing."""
    telling: Statement
    """The same for a tenant with endpoints: writes what they are told, too."""
    prepare: Callable[[Request, str], tuple[Values, Values]]
    """From a request and the operation's workflow ID: the statement's values, and the answer."""
    guards: frozenset[str]
    """Constraints that refuse the statement when others changed the rows after its snapshot."""


def local_statement(
    judged: Select[tuple[str | None]],
    *,
    refusals: Mapping[str, StoredReceipt],
    effects: Callable[[CTE], Sequence[CTE]],
) -> tuple[Statement, Statement]:
    """The one statement of a local operation, and that which also tells the tenant's endpoints.

    `judged` selects one row with the column `refusal`: why the operation cannot be done, as the
    statement's snapshot has it, or NULL. `effects` makes what is to be applied, from the claim's
    row; each of them must check that the row is there and succeeded. The statement returns the
    claim, and whether it is fresh; or no row, when the claim that was first is too new to be seen.
    """
    verdict = judged.cte("judged")
    known = select(*CLAIM_COLUMNS).where(_is_the_key()).cte("known")
    inserted = _insert(verdict, known, refusals=refusals)
    answer = union_all(
        select(true().label("fresh"), *(inserted.c[column.name] for column in CLAIM_COLUMNS)),
        select(false().label("fresh"), *(known.c[column.name] for column in CLAIM_COLUMNS)),
    )
    applied = answer.add_cte(*effects(inserted))
    return Statement(applied), Statement(applied.add_cte(outbox.told(inserted, EventType.DONE)))


def succeeded(inserted: CTE) -> Any:
    """Whether the claim was made by this statement, and with success."""
    return exists(select(1).where(inserted.c.outcome == constant(Outcome.SUCCEEDED.value)))


def _insert(verdict: CTE, known: CTE, *, refusals: Mapping[str, StoredReceipt]) -> CTE:
    """The claim with its receipt. Every later part needs its row, so its key is waited for first,
    and with no lock held; that a lock is waited for is bounded from here on."""
    receipt = _receipt(verdict, refusals)
    row = {
        "tenant": bindparam("tenant", type_=Text),
        "operation": bindparam("operation", type_=Text),
        "key": bindparam("key", type_=Text),
        "fingerprint": bindparam("fingerprint", type_=LargeBinary),
        "request": bindparam("request", type_=Text),
        "state": constant(ClaimState.DONE.value),
        **receipt,
        "created_at": bindparam("now", type_=claims.c.created_at.type),
        "updated_at": bindparam("now", type_=claims.c.created_at.type),
        "expires_at": bindparam("expires_at", type_=claims.c.created_at.type),
    }
    bound = select(
        func.set_config(constant("lock_timeout"), bindparam("lock_wait", type_=Text), true())
    )
    source = select(*row.values()).where(
        ~exists(select(known.c.id)), bound.scalar_subquery().is_not(None)
    )
    return (
        insert(claims)
        .from_select(list(row), source)
        .on_conflict_do_nothing(index_elements=["tenant", "operation", "key"])
        .returning(*CLAIM_COLUMNS)
        .cte("inserted")
    )


def _receipt(verdict: CTE, refusals: Mapping[str, StoredReceipt]) -> dict[str, Any]:
    """The columns of the receipt that goes with the verdict."""
    refusal = verdict.c.refusal
    bodies = {
        constant(name): literal_column(f"'\\x{receipt.body.hex()}'::bytea", LargeBinary)
        for name, receipt in refusals.items()
    }
    [(status, headers)] = {(receipt.status, receipt.headers) for receipt in refusals.values()}
    return {
        "outcome": case(
            (refusal.is_(null()), constant(Outcome.SUCCEEDED.value)),
            else_=constant(Outcome.DECLINED.value),
        ),
        "receipt_status": case(
            (refusal.is_(null()), bindparam("receipt_status", type_=SmallInteger)),
            else_=literal_column(str(status), SmallInteger),
        ),
        "receipt_headers": case(
            (refusal.is_(null()), bindparam("receipt_headers", type_=Text)),
            else_=constant(headers_text(headers)),
        ),
        "receipt_body": case(
            *((refusal == name, body) for name, body in bodies.items()),
            else_=bindparam("receipt_body", type_=LargeBinary),
        ),
    }


def constant(text: str) -> ColumnElement[str]:
    """Text that is the same in every call stands in the statement: each argument costs time."""
    quoted = text.replace("'", "''")
    return literal_column(f"'{quoted}'::text", Text)


def headers_text(headers: Sequence[tuple[str, str]]) -> str:
    """A receipt's headers as they are stored."""
    return json.dumps(headers, ensure_ascii=False, separators=(",", ":"))


def _is_the_key() -> Any:
    return and_(
        claims.c.tenant == bindparam("tenant", type_=Text),
        claims.c.operation == bindparam("operation", type_=Text),
        claims.c.key == bindparam("key", type_=Text),
    )
