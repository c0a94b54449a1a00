"""The simulated warehouse: no keys, readable by reference.

| request | answers |
|---|---|
| `POST /reservations` | 201; 409 `out_of_stock` (always for a SKU that begins with `NONE-`) |
| `POST /releases` | 201; 200 with the first one if already released; 404 `reservation_unknown` |
| `GET /reservations?reference=`, `GET /releases?reference=`, `GET /records?…` | 200 |

The same reservation twice is two reservations. Stock is unlimited otherwise.
"""

from typing import Annotated

from pydantic import Field, StrictInt

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

OUT_OF_STOCK = refusal(409, "out_of_stock", "there is not enough of it in stock")


class Reservation(Form):
    """The body of `POST /reservations`."""

    sku: Identifier
    quantity: Annotated[StrictInt, Field(ge=1, le=1_000_000)]
    reference: Reference


class Release(Form):
    """The body of `POST /releases`."""

    reservation: Identifier
    reference: Reference


def _reserve(_: Pages, form: Reservation) -> Decision:
    if form.sku.startswith("NONE-"):
        return OUT_OF_STOCK
    return Draft(state="reserved")


def _release(pages: Pages, form: Release) -> Decision:
    reservation = pages.find(ProviderName.WAREHOUSE, form.reservation)
    if reservation is None or reservation.operation != "reserve":
        return refusal(404, "reservation_unknown", "there is no such reservation")
    released = pages.find_undo(ProviderName.WAREHOUSE, reservation.id)
    return released or Draft(state="succeeded", target=reservation.id, target_state="released")


SERVICE = Service(
    name=ProviderName.WAREHOUSE,
    records_path="/records",
    actions=(
        Action("reserve", "/reservations", "rsv", Reservation, _reserve, OUT_OF_STOCK),
        Action(
            "release",
            "/releases",
            "rel",
            Release,
            _release,
            refusal(409, "release_refused", "the goods have left the warehouse"),
            target_name="reservation",
        ),
    ),
)
