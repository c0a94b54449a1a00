"""Accounts: what they are called, and how far their balances may go."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from operations.money import Currency

BALANCE_MINOR_MAX = 10**18
"""A ninth of what a signed 64-bit column holds: a balance is refused long before it overflows."""

ACCOUNT_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$"
ACCOUNT_ID_CHARACTERS_MAX = 128

AccountId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=ACCOUNT_ID_CHARACTERS_MAX,
        pattern=ACCOUNT_ID_PATTERN,
        examples=["cash"],
    ),
]
"""A name the tenant gives, which needs no encoding in a path."""


class AccountTerms(BaseModel):
    """What a client decides about an account: the body of its PUT."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    currency: Currency
    floor_minor: Annotated[
        StrictInt | None,
        Field(ge=-BALANCE_MINOR_MAX, le=BALANCE_MINOR_MAX, examples=[0]),
    ] = 0
    """The balance never goes below it; `null` is no floor. In the currency's minor unit."""


class AccountResource(BaseModel):
    """An account as it stands."""

    id: str
    currency: str
    floor_minor: int | None
    balance_minor: int
    """What came in less what went out, in the currency's minor unit."""
