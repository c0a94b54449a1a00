"""An operation of another team's: its first step is performed by a worker that is not ours."""

from operations.declaration import Answer, Request, SagaOperation, Step, Undo
from operations.guarantees import Guarantee, ProviderProfile
from operations.texts import Card, LineOfText
from workflows.operation_run import OperationRun
from workflows.runs import runs

TASK_QUEUE = "parcels-elsewhere"


class SendParcel(Request):
    """A parcel, paid by card."""

    parcel: LineOfText
    card: Card = "tok_visa"


class ParcelSent(Answer):
    """What the carrier calls it."""

    parcel_id: str


DISPATCH = Step(
    "dispatch",
    "parcels",
    "dispatch",
    undo=Undo("recall", target="parcel_id"),
    task_queue=TASK_QUEUE,
    activity="parcels.dispatch",
    profile=ProviderProfile(
        provider="parcels",
        guarantee=Guarantee.QUERYABLE,
        send_timeout_seconds=2.0,
        pickup_timeout_seconds=1.0,
        heartbeat_timeout_seconds=1.0,
        lookup_horizon_seconds=3.0,
        lookup_interval_seconds=0.2,
    ),
)
CHARGE = Step(
    "charge",
    "payments",
    "charge",
    undo=Undo("refund", target="charge_id", carries=("amount_minor", "currency")),
)

PARCELS_SEND = SagaOperation(
    name="parcels.send",
    title="Send a parcel",
    request=SendParcel,
    answer=ParcelSent,
    example={"parcel": "mugs", "card": "tok_visa"},
    steps=(DISPATCH, CHARGE),
)


@runs(PARCELS_SEND)
class RunParcel(OperationRun[SendParcel]):
    """Dispatch, then charge."""

    async def perform(self, request: SendParcel) -> ParcelSent:
        """Send one parcel."""
        parcel_id = await self.saga.perform(DISPATCH, parcel=request.parcel)
        await self.saga.perform(
            CHARGE, amount_minor=900, currency="EUR", card=request.card, description="parcel"
        )
        return ParcelSent(parcel_id=parcel_id)


WORKFLOWS = (RunParcel,)
