"""The simulated carrier: KEYED as the card processor is, readable, consistent.

| request | answers |
|---|---|
| `POST /bookings` | 201; 422 `undeliverable` (an address with the word `UNDELIVERABLE`) |
| `POST /cancellations` | 201; 200 with the first one if already cancelled; 404 `booking_unknown` |
| `GET /bookings?reference=`, `GET /cancellations?reference=`, `GET /records?…` | 200 |
"""

from typing import Annotated

from pydantic import Field

from providers.simulated.books import Pages
from providers.simulated.service import (
    Action,
    Decision,
    Draft,
    Form,
    Identifier,
    Reference,
    Service,
)
from providers.simulated.vocabulary import ProviderName
from providers.simulated.wire import refusal

UNDELIVERABLE = refusal(422, "undeliverable", "we do not deliver to this address")


class Booking(Form):
    """The body of `POST /bookings`."""

    order: Identifier
    address: Annotated[str, Field(min_length=1, max_length=2_000)]
    reference: Reference


class Cancellation(Form):
    """The body of `POST /cancellations`."""

    booking: Identifier
    reference: Reference


def _book(_: Pages, form: Booking) -> Decision:
    return UNDELIVERABLE if "UNDELIVERABLE" in form.address else Draft(state="booked")


def _cancel(pages: Pages, form: Cancellation) -> Decision:
    booking = pages.find(ProviderName.CARRIER, form.booking)
    if booking is None or booking.operation != "book":
        return refusal(404, "booking_unknown", "there is no such booking")
    cancelled = pages.find_undo(ProviderName.CARRIER, booking.id)
    return cancelled or Draft(state="succeeded", target=booking.id, target_state="cancelled")


SERVICE = Service(
    name=ProviderName.CARRIER,
    keyed=True,
    records_path="/records",
    actions=(
        Action("book", "/bookings", "bk", Booking, _book, UNDELIVERABLE),
        Action(
            "cancel",
            "/cancellations",
            "cxl",
            Cancellation,
            _cancel,
            refusal(409, "cancel_refused", "the parcel is on its way"),
            target_name="booking",
        ),
    ),
)
