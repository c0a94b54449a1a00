"""One example of everything the simulated providers do, for rules that hold for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from operations.guarantees import ProviderProfile
from providers.acquirer import SimulatedAcquirer
from providers.carrier import SimulatedCarrier
from providers.mail import SimulatedMail
from providers.payments import SimulatedPayments
from providers.simulated_client import SimulatedClient
from providers.warehouse import SimulatedWarehouse


@dataclass(frozen=True)
class Partner:
    """A provider, one action of it, and what undoes that action."""

    name: str
    client: type[SimulatedClient]
    action: str
    request: Mapping[str, Any]
    refused: Mapping[str, Any] | None
    """Members that its documentation says are always refused."""
    refusal_code: str
    state: str
    undo: str | None = None
    undo_target: str = ""
    undo_request: Mapping[str, Any] | None = None
    undone_state: str = ""

    def open(self, base_url: str, *, profile: ProviderProfile | None = None) -> SimulatedClient:
        """A client for this partner."""
        opened: Any = self.client
        return opened(base_url, profile=profile) if profile else opened(base_url)

    def body(self, client: SimulatedClient, key: str, **changes: Any) -> bytes:
        """Frozen bytes of the example under `key`."""
        return client.freeze(self.action, {**self.request, "reference": key, **changes})

    def undo_body(self, client: SimulatedClient, key: str, target: str) -> bytes:
        """Frozen bytes of the undo of `target` under `key`."""
        assert self.undo is not None
        return client.freeze(
            self.undo, {**(self.undo_request or {}), "reference": key, self.undo_target: target}
        )


MONEY = {"amount_minor": 2400, "currency": "EUR"}

PAYMENTS = Partner(
    name="payments",
    client=SimulatedPayments,
    action="charge",
    request={**MONEY, "card": "tok_visa", "description": "order 7"},
    refused={"card": "tok_declined"},
    refusal_code="card_declined",
    state="succeeded",
    undo="refund",
    undo_target="charge_id",
    undo_request=MONEY,
    undone_state="refunded",
)
ACQUIRER = Partner(
    name="acquirer",
    client=SimulatedAcquirer,
    action="charge",
    request={**MONEY, "card": "tok_visa", "description": "order 7"},
    refused={"card": "tok_declined"},
    refusal_code="card_declined",
    state="succeeded",
    undo="refund",
    undo_target="charge_id",
    undo_request=MONEY,
    undone_state="refunded",
)
WAREHOUSE = Partner(
    name="warehouse",
    client=SimulatedWarehouse,
    action="reserve",
    request={"sku": "TEA-1", "quantity": 2},
    refused={"sku": "NONE-1"},
    refusal_code="out_of_stock",
    state="reserved",
    undo="release",
    undo_target="reservation_id",
    undone_state="released",
)
CARRIER = Partner(
    name="carrier",
    client=SimulatedCarrier,
    action="book",
    request={"order_id": "7", "address": "1 Harbour Street, Bergen"},
    refused={"address": "UNDELIVERABLE"},
    refusal_code="undeliverable",
    state="booked",
    undo="cancel",
    undo_target="shipment_id",
    undone_state="cancelled",
)
MAIL = Partner(
    name="mail",
    client=SimulatedMail,
    action="send",
    request={"to": "ada@example.org", "subject": "Your order", "text": "It is on its way."},
    refused=None,
    refusal_code="recipient_refused",
    state="accepted",
)

PARTNERS = (PAYMENTS, ACQUIRER, WAREHOUSE, CARRIER, MAIL)
KEYED = (PAYMENTS, CARRIER)
UNKEYED = (ACQUIRER, WAREHOUSE, MAIL)
READABLE = (PAYMENTS, ACQUIRER, WAREHOUSE, CARRIER)
