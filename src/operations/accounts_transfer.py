"""`accounts.transfer`: money from one account of the tenant to another, as one double entry."""

from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from operations.accounts import AccountId
from operations.declaration import Answer, LocalOperation, Request
from operations.money import Money


class TransferRequest(Request):
    """Move `amount` between two accounts that hold its currency."""

    payer: AccountId = Field(alias="from", examples=["cash"])
    payee: AccountId = Field(alias="to", examples=["sales"])
    amount: Money

    @model_validator(mode="after")
    def _names_two_accounts(self) -> Self:
        if self.payer == self.payee:
            raise ValueError("from and to are the same account")
        return self


class Transferred(Answer):
    """The transfer, as our books call it."""

    transfer_id: str
    payer: AccountId = Field(alias="from")
    payee: AccountId = Field(alias="to")
    amount: Money


class Refusal(StrEnum):
    """Why the books do not allow a transfer: the `code` of a declined receipt."""

    PAYER_UNKNOWN = "payer_unknown"
    PAYEE_UNKNOWN = "payee_unknown"
    CURRENCY_MISMATCH = "currency_mismatch"
    INSUFFICIENT_FUNDS = "insufficient_funds"
    BALANCE_LIMIT = "balance_limit"

    @property
    def detail(self) -> str:
        """A sentence for people. It names members, never values: the receipt is kept for long."""
        return _DETAILS[self]


_DETAILS = {
    Refusal.PAYER_UNKNOWN: "There is no account `from`.",
    Refusal.PAYEE_UNKNOWN: "There is no account `to`.",
    Refusal.CURRENCY_MISMATCH: "An account does not hold the currency of the amount.",
    Refusal.INSUFFICIENT_FUNDS: "The balance of `from` would fall below its floor.",
    Refusal.BALANCE_LIMIT: "A balance would leave the range that the books can hold.",
}

EXAMPLE: dict[str, Any] = {
    "from": "cash",
    "to": "sales",
    "amount": {"minor": 2400, "currency": "EUR"},
}

ACCOUNTS_TRANSFER = LocalOperation(
    name="accounts.transfer",
    title="Transfer between accounts",
    request=TransferRequest,
    answer=Transferred,
    example=EXAMPLE,
)
