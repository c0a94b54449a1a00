"""The client of the simulated carrier, which deduplicates by our key."""

from operations.guarantees import Guarantee, ProviderProfile
from providers.http_calls import COMMON_ANSWERS, Meaning
from providers.simulated_client import Call, Field, Interface, SimulatedClient

PROFILE = ProviderProfile(
    provider="carrier",
    guarantee=Guarantee.KEYED,
    can_look_up=True,
    send_timeout_seconds=5.0,  # it answers within milliseconds; five seconds bridge a hiccup
    key_lifetime_seconds=86_400.0,  # documented: a day
    key_margin_seconds=3_600.0,  # an hour for queues and for clocks that differ
    lookup_horizon_seconds=15.0,  # 5 s our timeout + 8 s its slowest processing + 2 s index lag
)
"""What the carrier promises."""

INTERFACE = Interface(
    records_path="/records",
    calls={
        "book": Call(
            "/bookings",
            {
                "reference": Field("reference"),
                "order_id": Field("order"),
                "address": Field("address"),
            },
        ),
        "cancel": Call(
            "/cancellations",
            {"reference": Field("reference"), "shipment_id": Field("booking")},
            target="booking",
        ),
    },
    documented={
        **COMMON_ANSWERS,
        (422, "undeliverable"): Meaning.DECLINED,
        (409, "cancel_refused"): Meaning.DECLINED,
        # Never "nothing to cancel": the booking may only not be there yet.
        (404, "booking_unknown"): Meaning.NOT_APPLIED,
        (409, "idempotency_mismatch"): Meaning.MISMATCH,
        # 409 `in_progress` is left out: it leaves the first request's outcome unknown.
    },
)


class SimulatedCarrier(SimulatedClient):
    """Actions: `book` {reference, order_id, address} and `cancel` {reference, shipment_id}.

    Cancelling what is cancelled already succeeds: the effect is undone. The record is the first
    cancellation's, so its reference is not ours, and a look-up under our key finds nothing.
    """

    def __init__(
        self,
        base_url: str,
        *,
        profile: ProviderProfile = PROFILE,
        token: str | None = None,
    ) -> None:
        """Talk to the carrier at `base_url`."""
        super().__init__(base_url, interface=INTERFACE, profile=profile, token=token)
