"""The client of the simulated card processor, which deduplicates by our key."""

from operations.guarantees import Guarantee, ProviderProfile
from providers.http_calls import COMMON_ANSWERS, Meaning
from providers.simulated_client import Call, Field, Interface, SimulatedClient

PROFILE = ProviderProfile(
    provider="payments",
    guarantee=Guarantee.KEYED,
    can_look_up=True,
    send_timeout_seconds=5.0,  # it answers within milliseconds; five seconds bridge a hiccup
    key_lifetime_seconds=86_400.0,  # documented: a day
    key_margin_seconds=3_600.0,  # an hour for queues and for clocks that differ
    lookup_horizon_seconds=15.0,  # 5 s our timeout + 8 s its slowest processing + 2 s index lag
)
"""What the card processor promises."""

INTERFACE = Interface(
    records_path="/v1/records",
    calls={
        "charge": Call(
            "/v1/charges",
            {
                "reference": Field("reference"),
                "amount_minor": Field("amount", int),
                "currency": Field("currency"),
                "card": Field("source"),
                "description": Field("description", optional=True),
            },
        ),
        "refund": Call(
            "/v1/refunds",
            {
                "reference": Field("reference"),
                "charge_id": Field("charge"),
                "amount_minor": Field("amount", int),
                "currency": Field("currency"),
            },
            target="charge",
        ),
    },
    documented={
        **COMMON_ANSWERS,
        (402, "card_declined"): Meaning.DECLINED,
        (402, "refund_exceeds_charge"): Meaning.DECLINED,
        (402, "refund_refused"): Meaning.DECLINED,
        # Never "nothing to refund": the charge may only not be there yet.
        (404, "charge_unknown"): Meaning.NOT_APPLIED,
        (409, "idempotency_mismatch"): Meaning.MISMATCH,
        # 409 `in_progress` is left out: it leaves the first request's outcome unknown.
    },
)


class SimulatedPayments(SimulatedClient):
    """Actions: `charge` {reference, amount_minor, currency, card, description?} and
    `refund` {reference, charge_id, amount_minor, currency}."""

    def __init__(
        self,
        base_url: str,
        *,
        profile: ProviderProfile = PROFILE,
        token: str | None = None,
    ) -> None:
        """Talk to the card processor at `base_url`."""
        super().__init__(base_url, interface=INTERFACE, profile=profile, token=token)
