"""`orders.place`: reserve stock, charge, book a shipment, confirm by mail."""

from typing import Annotated

from pydantic import Field, StrictInt

from operations.declaration import Answer, Request, SagaOperation, Step, Undo
from operations.guarantees import OnUnknown
from operations.money import Money
from operations.texts import Card, EmailAddress, LineOfText


class PlaceOrderRequest(Request):
    """An order for one article."""

    sku: Annotated[LineOfText, Field(max_length=64, examples=["MUG-1"])]
    quantity: Annotated[StrictInt, Field(gt=0, le=1_000_000, examples=[2])]
    amount: Money
    card: Card
    email: EmailAddress
    address: Annotated[LineOfText, Field(max_length=500, examples=["1 Quay St"])]


class OrderPlaced(Answer):
    """The order, and what each provider calls its part of it."""

    order_id: str
    reservation_id: str
    charge_id: str
    shipment_id: str
    amount: Money


RESERVE = Step("reserve", "warehouse", "reserve", undo=Undo("release", target="reservation_id"))
CHARGE = Step(
    "charge",
    "payments",
    "charge",
    undo=Undo("refund", target="charge_id", carries=("amount_minor", "currency")),
)
SHIP = Step("ship", "carrier", "book", undo=Undo("cancel", target="shipment_id"), pivot=True)
CONFIRM = Step("confirm", "mail", "send", on_unknown=OnUnknown.ACCEPT_DUPLICATES, required=False)

ORDERS_PLACE = SagaOperation(
    name="orders.place",
    title="Place an order",
    request=PlaceOrderRequest,
    answer=OrderPlaced,
    example={
        "sku": "MUG-1",
        "quantity": 2,
        "amount": {"minor": 2400, "currency": "EUR"},
        "card": "tok_visa",
        "email": "a@example.org",
        "address": "1 Quay St",
    },
    steps=(RESERVE, CHARGE, SHIP, CONFIRM),
)
