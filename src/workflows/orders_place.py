"""The run of `orders.place`."""

from temporalio import workflow

from operations.identities import business_id
from operations.orders_place import (
    CHARGE,
    CONFIRM,
    ORDERS_PLACE,
    RESERVE,
    SHIP,
    OrderPlaced,
    PlaceOrderRequest,
)
from workflows.operation_run import OperationRun
from workflows.runs import runs


@runs(ORDERS_PLACE)
class PlaceOrder(OperationRun[PlaceOrderRequest]):
    """Reserve, charge, ship, confirm."""

    async def perform(self, request: PlaceOrderRequest) -> OrderPlaced:
        """Place one order."""
        order_id = business_id("ord", workflow_id=workflow.info().workflow_id)
        reservation_id = await self.saga.perform(
            RESERVE, sku=request.sku, quantity=request.quantity
        )
        charge_id = await self.saga.perform(
            CHARGE,
            amount_minor=request.amount.minor,
            currency=request.amount.currency,
            card=request.card,
            description=f"order {order_id}",
        )
        shipment_id = await self.saga.perform(SHIP, order_id=order_id, address=request.address)
        await self.saga.perform(
            CONFIRM,
            to=request.email,
            subject=f"Your order {order_id}",
            text=f"{request.quantity} of {request.sku} is on its way to {request.address}.",
        )
        return OrderPlaced(
            order_id=order_id,
            reservation_id=reservation_id,
            charge_id=charge_id,
            shipment_id=shipment_id,
            amount=request.amount,
        )
