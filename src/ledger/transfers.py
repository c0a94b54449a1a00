"""Transfers: two balances and one row that is both halves of the double entry."""

from typing import Any

from sqlalchemy import (
    CTE,
    FromClause,
    Integer,
    Select,
    case,
    literal_column,
    null,
    or_,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from ledger.account_tables import FLOOR_CHECK, LIMIT_CHECK, TRANSFER_KEYS, accounts, transfers
from ledger.local_effects import LocalEffect, Values, constant, local_statement
from operations.accounts import BALANCE_MINOR_MAX
from operations.accounts_transfer import Refusal, TransferRequest
from operations.declaration import Request
from operations.identities import business_id
from operations.receipts import problem_receipt
from operations.states import Outcome

_ONE = literal_column("1", Integer)
_COLUMNS = {
    "transfer_id": transfers.c.id.type,
    **{name: transfers.c[name].type for name in ("payer", "payee", "currency", "amount_minor")},
}


def _judged(asked: CTE) -> Select[*tuple[Any, ...]]:
    """Why each transfer cannot be made, as the statement's snapshot has it, or NULL."""
    payer, payee = _account(asked, "payer"), _account(asked, "payee")
    left = payer.c.balance_minor - asked.c.amount_minor
    reached = payee.c.balance_minor + asked.c.amount_minor
    currency = asked.c.currency
    refusal = case(
        (payer.c.id.is_(null()), constant(Refusal.PAYER_UNKNOWN.value)),
        (payee.c.id.is_(null()), constant(Refusal.PAYEE_UNKNOWN.value)),
        (
            or_(payer.c.currency != currency, payee.c.currency != currency),
            constant(Refusal.CURRENCY_MISMATCH.value),
        ),
        (left < payer.c.floor_minor, constant(Refusal.INSUFFICIENT_FUNDS.value)),
        (
            or_(
                left < literal_column(f"{-BALANCE_MINOR_MAX}"),
                reached > literal_column(f"{BALANCE_MINOR_MAX}"),
            ),
            constant(Refusal.BALANCE_LIMIT.value),
        ),
        else_=null(),
    )
    both = asked.outerjoin(payer, true()).outerjoin(payee, true())
    return select(*asked.c, refusal.label("refusal")).select_from(both)


def _account(asked: CTE, side: str) -> FromClause:
    """The account on one side of each transfer, by its key: no plan reads all of a tenant's."""
    return (
        select(accounts.c.id, accounts.c.currency, accounts.c.balance_minor, accounts.c.floor_minor)
        .where(accounts.c.tenant == asked.c.tenant, accounts.c.id == asked.c[side])
        .limit(_ONE)
        .lateral(side)
    )


def _apply(done: CTE) -> tuple[CTE, ...]:
    """Lock all accounts in the order of their names, move the balances, write the transfers."""
    locked = _locked(done)
    moved = (
        update(accounts)
        .where(accounts.c.tenant == locked.c.tenant, accounts.c.id == locked.c.id)
        .values(
            balance_minor=accounts.c.balance_minor + locked.c.delta,
            revision=accounts.c.revision + _ONE,
        )
        .cte("moved")
    )
    row = {
        **{name: done.c[name] for name in ("claim_id", "tenant", "payer", "payee", "currency")},
        "id": done.c.transfer_id,
        "amount_minor": done.c.amount_minor,
        "created_at": done.c.created_at,
    }
    written = insert(transfers).from_select(list(row), select(*row.values())).cte("written")
    return moved, written


def _locked(done: CTE) -> CTE:
    """Both sides of each transfer, and by how much the balance changes. No two transfers in one
    statement share an account, and every statement locks in the same order."""
    leaving = select(done.c.tenant, done.c.payer.label("id"), (-done.c.amount_minor).label("delta"))
    reaching = select(done.c.tenant, done.c.payee.label("id"), done.c.amount_minor.label("delta"))
    both = union_all(leaving, reaching).subquery("both")
    sides = select(*both.c).order_by(both.c.tenant, both.c.id).subquery("sides")
    held = (
        select(accounts.c.id)
        .where(accounts.c.tenant == sides.c.tenant, accounts.c.id == sides.c.id)
        .limit(_ONE)
        .with_for_update(key_share=True)
        .lateral("held")
    )
    return (
        select(*sides.c)
        .select_from(sides.join(held, true()))
        .cte("locked")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )


def _prepare(request: Request, workflow_id: str) -> tuple[Values, Values]:
    assert isinstance(request, TransferRequest)
    amount = request.amount
    transfer_id = business_id("trf", workflow_id=workflow_id)
    values: dict[str, Any] = {
        "transfer_id": transfer_id,
        "payer": request.payer,
        "payee": request.payee,
        "currency": amount.currency,
        "amount_minor": amount.minor,
    }
    answer: dict[str, Any] = {
        "transfer_id": transfer_id,
        "from": request.payer,
        "to": request.payee,
        "amount": {"minor": amount.minor, "currency": amount.currency},
    }
    return values, answer


def _touches(values: Values) -> tuple[tuple[str, str, str], ...]:
    tenant = values["tenant"]
    return ("account", tenant, values["payer"]), ("account", tenant, values["payee"])


_STATEMENT, _TELLING = local_statement(
    _COLUMNS,
    judged=_judged,
    refusals={
        refusal.value: problem_receipt(Outcome.DECLINED, detail=refusal.detail, code=refusal.value)
        for refusal in Refusal
    },
    effects=_apply,
)
EFFECT = LocalEffect(
    statement=_STATEMENT,
    telling=_TELLING,
    prepare=_prepare,
    touches=_touches,
    guards=frozenset({FLOOR_CHECK, LIMIT_CHECK, *TRANSFER_KEYS}),
)
"""A transfer: the claim, then the balances, then the entry; constraints have the last word."""
