"""The run of `payments.refund`."""

from operations.payments_refund import PAYMENTS_REFUND, REFUND, Refunded, RefundRequest
from workflows.operation_run import OperationRun
from workflows.runs import runs


@runs(PAYMENTS_REFUND)
class RefundCharge(OperationRun[RefundRequest]):
    """One refund."""

    async def perform(self, request: RefundRequest) -> Refunded:
        """Give the amount back."""
        refund_id = await self.saga.perform(
            REFUND,
            charge_id=request.charge_id,
            amount_minor=request.amount.minor,
            currency=request.amount.currency,
        )
        return Refunded(refund_id=refund_id, charge_id=request.charge_id, amount=request.amount)
