"""Ours: an operation of three keyed charges, added to the service as a team would add its own."""

from operations.declaration import Answer, Request, SagaOperation, Step, Undo
from operations.money import Money
from operations.texts import Card
from workflows.operation_run import OperationRun
from workflows.runs import runs


class ThreeChargesRequest(Request):
    """What each of the charges takes."""

    amount: Money
    card: Card


class ThreeCharges(Answer):
    """What the provider calls the charges."""

    charge_ids: tuple[str, ...]
    amount: Money


STEPS = tuple(
    Step(
        name,
        "payments",
        "charge",
        undo=Undo("refund", target="charge_id", carries=("amount_minor", "currency")),
    )
    for name in ("first", "second", "third")
)

OPERATION = SagaOperation(
    name="bench.three_charges",
    title="Charge three times",
    request=ThreeChargesRequest,
    answer=ThreeCharges,
    example={"amount": {"minor": 2400, "currency": "EUR"}, "card": "tok_visa"},
    steps=STEPS,
)


@runs(OPERATION)
class ChargeThreeTimes(OperationRun[ThreeChargesRequest]):
    """Three charges, one after the other."""

    async def perform(self, request: ThreeChargesRequest) -> ThreeCharges:
        """Charge."""
        charge_ids = [
            await self.saga.perform(
                step,
                amount_minor=request.amount.minor,
                currency=request.amount.currency,
                card=request.card,
                description="bench",
            )
            for step in STEPS
        ]
        return ThreeCharges(charge_ids=tuple(charge_ids), amount=request.amount)


WORKFLOWS = (ChargeThreeTimes,)
