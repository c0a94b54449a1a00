"""The run of `payments.charge_legacy`."""

from operations.payments_charge import Charged, ChargeRequest
from operations.payments_charge_legacy import PAYMENTS_CHARGE_LEGACY, SALE
from workflows.operation_run import OperationRun
from workflows.runs import runs


@runs(PAYMENTS_CHARGE_LEGACY)
class ChargeCardAtAcquirer(OperationRun[ChargeRequest]):
    """One sale."""

    async def perform(self, request: ChargeRequest) -> Charged:
        """Charge the card."""
        charge_id = await self.saga.perform(
            SALE,
            amount_minor=request.amount.minor,
            currency=request.amount.currency,
            card=request.card,
            description=request.description,
        )
        return Charged(charge_id=charge_id, amount=request.amount)
