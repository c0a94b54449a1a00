"""The run of `payments.charge`."""

from operations.payments_charge import CHARGE, PAYMENTS_CHARGE, Charged, ChargeRequest
from workflows.operation_run import OperationRun
from workflows.runs import runs


@runs(PAYMENTS_CHARGE)
class ChargeCard(OperationRun[ChargeRequest]):
    """One charge."""

    async def perform(self, request: ChargeRequest) -> Charged:
        """Charge the card."""
        charge_id = await self.saga.perform(
            CHARGE,
            amount_minor=request.amount.minor,
            currency=request.amount.currency,
            card=request.card,
            description=request.description,
        )
        return Charged(charge_id=charge_id, amount=request.amount)
