"""`payments.charge`, and its sibling at an acquirer without idempotency keys."""

from typing import Annotated

from pydantic import Field

from operations.declaration import Answer, Request, SagaOperation, Step, Undo
from operations.money import Money
from operations.texts import Card, LineOfText


class ChargeRequest(Request):
    """One charge to a card."""

    amount: Money
    card: Card
    description: Annotated[LineOfText, Field(max_length=200, examples=["two mugs"])] = "charge"


class Charged(Answer):
    """The charge, as the provider calls it."""

    charge_id: str
    amount: Money


EXAMPLE = {
    "amount": {"minor": 2400, "currency": "EUR"},
    "card": "tok_visa",
    "description": "two mugs",
}

CHARGE = Step(
    "charge",
    "payments",
    "charge",
    undo=Undo("refund", target="charge_id", carries=("amount_minor", "currency")),
)

PAYMENTS_CHARGE = SagaOperation(
    name="payments.charge",
    title="Charge a card",
    request=ChargeRequest,
    answer=Charged,
    example=EXAMPLE,
    steps=(CHARGE,),
)
