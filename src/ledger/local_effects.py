"""The statement of local operations: their own rows, around the claim that every operation makes.

One statement performs many of them: each is judged, claimed and applied by itself.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    CTE,
    LargeBinary,
    Select,
    SmallInteger,
    Text,
    case,
    exists,
    false,
    literal_column,
    null,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeEngine

from ledger import outbox
from ledger.claims import CLAIM_COLUMNS, SCOPE, first_claims, same_key
from ledger.statements import Statement, lock_wait_is_bounded, rows_given
from ledger.tables import claims
from operations.contracts import StoredReceipt
from operations.declaration import Request
from operations.messages import EventType
from operations.states import ClaimState, Outcome

Values = dict[str, Any]

_CLAIM_ROW = ("tenant", "operation", "key", "fingerprint", "request", "created_at", "expires_at")
_RECEIPT = ("receipt_status", "receipt_headers", "receipt_body")


@dataclass(frozen=True, slots=True)
class LocalEffect:
    """What one local operation does to our own rows."""

    statement: Statement
    """Claims, applies and keeps the receipts. Every row of it all or nothing, and all rows."""
    telling: Statement
    """The same for tenants with endpoints: writes what they are told, too."""
    prepare: Callable[[Request, str], tuple[Values, Values]]
    """From a request and the operation's workflow ID: the statement's values, and the answer."""
    touches: Callable[[Values], Iterable[Hashable]]
    """The rows it changes: no two operations that share one are in one statement."""
    guards: frozenset[str]
    """Constraints that refuse the statement when others changed the rows after its snapshot."""


def local_statement(
    columns: Mapping[str, TypeEngine[Any]],
    *,
    judged: Callable[[CTE], Select[*tuple[Any, ...]]],
    refusals: Mapping[str, StoredReceipt],
    effects: Callable[[CTE], Sequence[CTE]],
) -> tuple[Statement, Statement]:
    """The statement of a local operation, and that which also tells the tenants' endpoints.

    `columns` are the operation's own values. `judged` selects, from the rows that are asked for,
    all their columns, and `refusal`: why the operation cannot be done, as the statement's snapshot
    has it, or NULL. `effects` makes what is to be applied, from the rows that are to be: those
    asked for, with their `claim_id`. The statement returns the claims, and whether each is fresh;
    but no row where the claim that was first is too new to be seen.
    """
    claim_columns = {name: claims.c[name].type for name in (*_CLAIM_ROW, *_RECEIPT)}
    asked = rows_given({**claim_columns, **columns})
    known = first_claims(asked).cte("known")
    inserted = _insert(judged(asked).cte("judged"), known, refusals=refusals)
    done = (
        select(*asked.c, inserted.c.id.label("claim_id"))
        .select_from(asked.join(inserted, same_key(asked, inserted)))
        .where(inserted.c.outcome == constant(Outcome.SUCCEEDED.value))
        .cte("done")
    )
    answer = union_all(
        select(true().label("fresh"), *(inserted.c[column.name] for column in CLAIM_COLUMNS)),
        select(false().label("fresh"), *(known.c[column.name] for column in CLAIM_COLUMNS)),
    )
    applied = answer.add_cte(*effects(done))
    return Statement(applied), Statement(applied.add_cte(outbox.told(inserted, EventType.DONE)))


def _insert(verdict: CTE, known: CTE, *, refusals: Mapping[str, StoredReceipt]) -> CTE:
    """The claims with their receipts. Every later part needs their rows, so keys are waited for
    first, and with no other lock held; that a lock is waited for is bounded from here on."""
    row: dict[str, Any] = {
        **{name: verdict.c[name] for name in _CLAIM_ROW},
        "updated_at": verdict.c.created_at,
        "state": constant(ClaimState.DONE.value),
        **_receipt(verdict, refusals),
    }
    source = (
        select(*row.values())
        .where(
            ~exists(select(known.c.id).where(same_key(known, verdict))),
            lock_wait_is_bounded(),
        )
        .order_by(*(verdict.c[name] for name in SCOPE))
    )
    return (
        insert(claims)
        .from_select(list(row), source)
        .on_conflict_do_nothing(index_elements=SCOPE)
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
            (refusal.is_(null()), verdict.c.receipt_status),
            else_=literal_column(str(status), SmallInteger),
        ),
        "receipt_headers": case(
            (refusal.is_(null()), verdict.c.receipt_headers),
            else_=constant(headers_text(headers)),
        ),
        "receipt_body": case(
            *((refusal == name, body) for name, body in bodies.items()),
            else_=verdict.c.receipt_body,
        ),
    }


def constant(text: str) -> ColumnElement[str]:
    """Text that is the same in every call stands in the statement: each argument costs time."""
    quoted = text.replace("'", "''")
    return literal_column(f"'{quoted}'::text", Text)


def headers_text(headers: Sequence[tuple[str, str]]) -> str:
    """A receipt's headers as they are stored."""
    return json.dumps(headers, ensure_ascii=False, separators=(",", ":"))
