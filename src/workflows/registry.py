"""The workflows that a worker serves. A new operation's is added here, and nowhere else."""

from workflows.orders_place import PlaceOrder
from workflows.payments_charge import ChargeCard

OPERATION_WORKFLOWS: tuple[type, ...] = (PlaceOrder, ChargeCard)
