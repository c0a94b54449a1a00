"""The operations this service offers. A new one is added here, and nowhere else."""

from collections.abc import Mapping
from types import MappingProxyType

from operations.accounts_transfer import ACCOUNTS_TRANSFER
from operations.declaration import Operation, by_name
from operations.orders_place import ORDERS_PLACE
from operations.payments_charge import PAYMENTS_CHARGE
from operations.payments_charge_legacy import PAYMENTS_CHARGE_LEGACY
from operations.payments_refund import PAYMENTS_REFUND

OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    by_name(
        ORDERS_PLACE, PAYMENTS_CHARGE, PAYMENTS_CHARGE_LEGACY, PAYMENTS_REFUND, ACCOUNTS_TRANSFER
    )
)
