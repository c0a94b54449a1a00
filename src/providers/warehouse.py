"""The client of the simulated warehouse, which takes no keys but can be asked."""

from operations.guarantees import Guarantee, ProviderProfile
from providers.http_calls import COMMON_ANSWERS, Meaning
from providers.simulated_client import Call, Field, Interface, SimulatedClient

PROFILE = ProviderProfile(
    provider="warehouse",
    guarantee=Guarantee.QUERYABLE,
    can_look_up=True,
    send_timeout_seconds=5.0,  # it answers within milliseconds; five seconds bridge a hiccup
    lookup_horizon_seconds=15.0,  # 5 s our timeout + 8 s its slowest processing + 2 s index lag
)
"""What the warehouse promises."""

INTERFACE = Interface(
    records_path="/records",
    calls={
        "reserve": Call(
            "/reservations",
            {
                "reference": Field("reference"),
                "sku": Field("sku"),
                "quantity": Field("quantity", int),
            },
        ),
        "release": Call(
            "/releases",
            {"reference": Field("reference"), "reservation_id": Field("reservation")},
            target="reservation",
        ),
    },
    documented={
        **COMMON_ANSWERS,
        (409, "out_of_stock"): Meaning.DECLINED,
        (409, "release_refused"): Meaning.DECLINED,
        # Never "nothing to release": the reservation may only not be there yet.
        (404, "reservation_unknown"): Meaning.NOT_APPLIED,
    },
)


class SimulatedWarehouse(SimulatedClient):
    """Actions: `reserve` {reference, sku, quantity} and `release` {reference, reservation_id}.

    Releasing what is released already succeeds: the effect is undone. The record is the first
    release's, so its reference is not ours, and a look-up under our key finds nothing.
    """

    def __init__(
        self,
        base_url: str,
        *,
        profile: ProviderProfile = PROFILE,
        token: str | None = None,
    ) -> None:
        """Talk to the warehouse at `base_url`."""
        super().__init__(base_url, interface=INTERFACE, profile=profile, token=token)
