"""`payments.charge_legacy`: a charge at an acquirer without idempotency keys."""

from operations.declaration import SagaOperation, Step, Undo
from operations.guarantees import OnUnknown
from operations.payments_charge import EXAMPLE, Charged, ChargeRequest

SALE = Step(
    "charge",
    "acquirer",
    "charge",
    undo=Undo("refund", target="charge_id", carries=("amount_minor", "currency")),
    # Money: where the acquirer's records cannot tell (TALLYSTICK_ACQUIRER_BLIND), a person does.
    on_unknown=OnUnknown.PARK,
)

PAYMENTS_CHARGE_LEGACY = SagaOperation(
    name="payments.charge_legacy",
    title="Charge a card at the legacy acquirer",
    request=ChargeRequest,
    answer=Charged,
    example=EXAMPLE,
    steps=(SALE,),
)
