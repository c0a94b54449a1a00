"""The operations this service offers. A new one is added here, and nowhere else."""

from collections.abc import Mapping
from types import MappingProxyType

from operations.declaration import Operation
from operations.orders_place import ORDERS_PLACE
from operations.payments_charge import PAYMENTS_CHARGE

OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {operation.name: operation for operation in (ORDERS_PLACE, PAYMENTS_CHARGE)}
)
