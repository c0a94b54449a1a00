"""Sagas for tests: one step at the provider under test, then a parcel that may be undeliverable.

Between the two, a run can be held at a gate, so that a fault meets its undo and nothing before it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from temporalio import workflow

from operations.declaration import Answer, Request, SagaOperation, Step, Undo
from operations.guarantees import OnUnknown
from workflows.operation_run import OperationRun
from workflows.runs import runs

DELIVERABLE = "1 Quay St"
UNDELIVERABLE = "UNDELIVERABLE"

MONEY: Mapping[str, Any] = {"amount_minor": 2400, "currency": "EUR", "card": "tok_visa"}
REFUND = Undo("refund", target="charge_id", carries=("amount_minor", "currency"))


class SteppingRequest(Request):
    """Where the parcel goes, and whether the run waits between its two steps, or after them."""

    address: str = DELIVERABLE
    gated: bool = False
    held: bool = False
    about: str = ""
    """The provider's identifier of what the first step is about, where there is something."""


class Stepped(Answer):
    """The provider's reference of the first step."""

    first: str


SHIP = Step("ship", "carrier", "book", pivot=True)
"""Without an undo: what has left the house is gone."""
RETURNABLE = Step("ship", "carrier", "book", undo=Undo("cancel", target="shipment_id"))
STORED = Step("ship", "warehouse", "reserve", undo=Undo("release", target="reservation_id"))


def _operation(first: Step, *, name: str = "", last: Step = SHIP) -> SagaOperation:
    return SagaOperation(
        name=f"stepping.{name or first.provider}",
        title=f"One step at {first.provider}, then a parcel",
        request=SteppingRequest,
        answer=Stepped,
        example={},
        steps=(first, last),
    )


PAY = Step("first", "payments", "charge", undo=REFUND)
SELL = Step("first", "acquirer", "charge", undo=REFUND)
RESERVE = Step("first", "warehouse", "reserve", undo=Undo("release", target="reservation_id"))
CLEAR = Step("first", "warehouse", "release")
"""Clearing what is cleared already changes nothing: natural."""
PREAUTHORISE = Step(
    "first",
    "acquirer",
    "charge",
    undo=Undo("void", target="charge_reference", by_reference=True),
    on_unknown=OnUnknown.COMPENSATE,
)
WRITE = Step("first", "mail", "send", on_unknown=OnUnknown.ACCEPT_DUPLICATES, required=False)

OVER_PAYMENTS = _operation(PAY)
OVER_RETURNS = _operation(PAY, name="returns", last=RETURNABLE)
OVER_STORES = _operation(PAY, name="stores", last=STORED)
OVER_ACQUIRER = _operation(SELL)
OVER_WAREHOUSE = _operation(RESERVE)
OVER_CLEARING = _operation(CLEAR, name="clearing")
OVER_VOIDS = _operation(PREAUTHORISE, name="voids")
OVER_MAIL = _operation(WRITE)


class Stepping(OperationRun[SteppingRequest]):
    """The first step, a gate, the parcel, a gate."""

    first: ClassVar[Step]
    last: ClassVar[Step] = SHIP
    sends: ClassVar[Mapping[str, Any]]
    sends_last: ClassVar[Mapping[str, Any] | None] = None
    arrived = False
    opened = False

    async def perform(self, request: SteppingRequest) -> Stepped:
        """Perform both steps."""
        try:
            about = {"reservation_id": request.about} if request.about else {}
            reference = await self.saga.perform(self.first, **self.sends, **about)
        finally:
            self.arrived = not request.held  # or never will: whoever asks is told either way
        if request.gated:
            await workflow.wait_condition(lambda: self.opened)
        parcel = self.sends_last or {"order_id": "ord_1", "address": request.address}
        await self.saga.perform(self.last, **parcel)
        self.arrived = True
        if request.held:
            await workflow.wait_condition(lambda: self.opened)
        return Stepped(first=reference)

    @workflow.update(name="arrive")
    async def arrive(self) -> None:
        """Return when the run has come to where it waits."""
        await workflow.wait_condition(lambda: self.arrived)

    @workflow.update(name="open")
    def open(self) -> None:
        """Let the run go on."""
        self.opened = True


@runs(OVER_PAYMENTS)
class SteppingOverPayments(Stepping):
    """At the card processor: keyed."""

    first = PAY
    sends = MONEY


@runs(OVER_RETURNS)
class SteppingOverReturns(Stepping):
    """As at the card processor, and no step is the pivot."""

    first = PAY
    last = RETURNABLE
    sends = MONEY


@runs(OVER_STORES)
class SteppingOverStores(Stepping):
    """As at the card processor, and the second step is never sent without a row."""

    first = PAY
    last = STORED
    sends = MONEY
    sends_last: ClassVar = {"sku": "MUG-1", "quantity": 2}


@runs(OVER_ACQUIRER)
class SteppingOverAcquirer(Stepping):
    """At the legacy acquirer: readable, or blind."""

    first = SELL
    sends = MONEY


@runs(OVER_WAREHOUSE)
class SteppingOverWarehouse(Stepping):
    """At the warehouse: readable."""

    first = RESERVE
    sends: ClassVar = {"sku": "MUG-1", "quantity": 2}


@runs(OVER_CLEARING)
class SteppingOverClearing(Stepping):
    """At the warehouse: a stock of which something is cleared."""

    first = CLEAR
    sends: ClassVar[Mapping[str, Any]] = {}


@runs(OVER_VOIDS)
class SteppingOverVoids(Stepping):
    """At the legacy acquirer, which takes back what stands under our reference."""

    first = PREAUTHORISE
    sends = MONEY


@runs(OVER_MAIL)
class SteppingOverMail(Stepping):
    """By mail: blind, and duplicates are accepted."""

    first = WRITE
    sends: ClassVar = {"to": "a@example.org", "subject": "Your order", "text": "On its way."}


STEPPING = (
    SteppingOverPayments,
    SteppingOverReturns,
    SteppingOverStores,
    SteppingOverAcquirer,
    SteppingOverWarehouse,
    SteppingOverClearing,
    SteppingOverVoids,
    SteppingOverMail,
)
