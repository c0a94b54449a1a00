"""Money: integer minor units and an ISO 4217 code. Never a float."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt

Currency = Annotated[str, Field(pattern=r"^[A-Z]{3}$", examples=["EUR"])]
"""An ISO 4217 alphabetic code."""

MINOR_MAX = 10**15
"""A bound that fits a signed 64-bit column a thousand times over, so sums cannot overflow it."""


class Money(BaseModel):
    """An amount greater than zero."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minor: Annotated[StrictInt, Field(gt=0, le=MINOR_MAX, examples=[2400])]
    """In the currency's minor unit: 2400 is 24.00 EUR."""
    currency: Currency
