"""Transfers: two balances and one row that is both halves of the double entry."""

from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    Integer,
    Select,
    Text,
    bindparam,
    case,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.elements import ColumnElement

from ledger.account_tables import FLOOR_CHECK, LIMIT_CHECK, TRANSFER_KEYS, accounts, transfers
from ledger.local_effects import LocalEffect, Values, constant, local_statement, succeeded
from operations.accounts import BALANCE_MINOR_MAX
from operations.accounts_transfer import Refusal, TransferRequest
from operations.declaration import Request
from operations.identities import business_id
from operations.receipts import problem_receipt
from operations.states import Outcome

_tenant = bindparam("tenant", type_=Text)
_payer = bindparam("payer", type_=Text)
_payee = bindparam("payee", type_=Text)
_currency = bindparam("currency", type_=Text)
_amount = bindparam("amount_minor", type_=BigInteger)


def _judged() -> Select[tuple[str | None]]:
    """Why the transfer cannot be made, as the statement's snapshot has it, or NULL."""
    payer, payee = accounts.alias("payer"), accounts.alias("payee")
    one = select(literal_column("1", Integer).label("one")).subquery("one")
    both = one.outerjoin(payer, (payer.c.tenant == _tenant) & (payer.c.id == _payer)).outerjoin(
        payee, (payee.c.tenant == _tenant) & (payee.c.id == _payee)
    )
    left = payer.c.balance_minor - _amount
    reached = payee.c.balance_minor + _amount
    refusal = case(
        (payer.c.id.is_(null()), constant(Refusal.PAYER_UNKNOWN.value)),
        (payee.c.id.is_(null()), constant(Refusal.PAYEE_UNKNOWN.value)),
        (
            or_(payer.c.currency != _currency, payee.c.currency != _currency),
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
    return select(refusal.label("refusal")).select_from(both)


def _apply(inserted: CTE) -> tuple[CTE, ...]:
    """Lock both accounts in the order of their names, move the balances, write the transfer."""
    locked = (
        select(accounts.c.id)
        .where(accounts.c.tenant == _tenant, _is_one_of_both(), succeeded(inserted))
        .order_by(accounts.c.id)
        .with_for_update(key_share=True)
        .cte("locked")
    )
    moved = (
        update(accounts)
        # Said twice, so that no plan reads all accounts of the tenant.
        .where(accounts.c.tenant == _tenant, _is_one_of_both(), accounts.c.id == locked.c.id)
        .values(
            balance_minor=accounts.c.balance_minor
            + case((locked.c.id == _payer, -_amount), else_=_amount),
            revision=accounts.c.revision + literal_column("1"),
        )
        .cte("moved")
    )
    row = {
        "claim_id": inserted.c.id,
        "id": bindparam("transfer_id", type_=Text),
        "tenant": _tenant,
        "payer": _payer,
        "payee": _payee,
        "currency": _currency,
        "amount_minor": _amount,
        "created_at": inserted.c.created_at,
    }
    written = (
        insert(transfers)
        .from_select(
            list(row),
            select(*row.values()).where(inserted.c.outcome == constant(Outcome.SUCCEEDED.value)),
        )
        .cte("written")
    )
    return moved, written


def _is_one_of_both() -> ColumnElement[bool]:
    return or_(accounts.c.id == _payer, accounts.c.id == _payee)


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


_STATEMENT, _TELLING = local_statement(
    _judged(),
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
    guards=frozenset({FLOOR_CHECK, LIMIT_CHECK, *TRANSFER_KEYS}),
)
"""A transfer: the claim, then the balances, then the entry; constraints have the last word."""
