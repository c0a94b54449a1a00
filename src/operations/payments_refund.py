"""`payments.refund`: give back a charge of the tenant's own, whole or in part."""

from typing import Annotated

from pydantic import Field

from operations.declaration import Answer, Request, SagaOperation, Step
from operations.money import Money

ChargeId = Annotated[
    str, Field(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$", examples=["ch_1"])
]
"""What the payment provider calls a charge: `charge_id` in the answer of the operation that made
it."""


class RefundRequest(Request):
    """What is given back, and of which charge."""

    charge_id: ChargeId
    amount: Money


class Refunded(Answer):
    """The refund, as the provider calls it."""

    refund_id: str
    charge_id: str
    amount: Money


# The ledger takes the amount from the charge's row before the refund is sent, so refunds never
# exceed what was captured. A refund that was made cannot be taken back: from there, only forward.
REFUND = Step("refund", "payments", "refund", takes_back="charge_id", pivot=True)

PAYMENTS_REFUND = SagaOperation(
    name="payments.refund",
    title="Refund a charge, whole or in part",
    request=RefundRequest,
    answer=Refunded,
    example={"charge_id": "ch_1", "amount": {"minor": 2400, "currency": "EUR"}},
    steps=(REFUND,),
)
