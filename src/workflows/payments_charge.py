"""The run of `payments.charge`."""

from temporalio import workflow

from operations.contracts import Run, RunEnd
from operations.payments_charge import CHARGE, PAYMENTS_CHARGE, Charged, ChargeRequest
from workflows.operation_run import OperationRun


@workflow.defn(name=PAYMENTS_CHARGE.name)
class ChargeCard(OperationRun[ChargeRequest]):
    """One charge."""

    operation = PAYMENTS_CHARGE

    @workflow.init
    def __init__(self, run: Run) -> None:
        """See OperationRun."""
        super().__init__(run)

    @workflow.run
    async def run(self, _run: Run) -> RunEnd:
        """Run to the receipt."""
        return await self.settle()

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
