"""The client of the simulated legacy acquirer, which takes no keys."""

from operations.guarantees import Guarantee, ProviderProfile
from providers.http_calls import COMMON_ANSWERS, Meaning
from providers.simulated_client import Call, Field, Interface, SimulatedClient

PROFILE = ProviderProfile(
    provider="acquirer",
    guarantee=Guarantee.QUERYABLE,
    can_look_up=True,
    send_timeout_seconds=5.0,  # it answers within milliseconds; five seconds bridge a hiccup
    lookup_horizon_seconds=15.0,  # 5 s our timeout + 8 s its slowest processing + 2 s index lag
)
"""What the acquirer promises when its records can be read (consistent or lagging)."""

PROFILE_BLIND = ProviderProfile(
    provider="acquirer",
    guarantee=Guarantee.BLIND,
    can_look_up=False,
    send_timeout_seconds=5.0,  # as above
)
"""What it promises when its records are not offered: send once, ever."""

INTERFACE = Interface(
    records_path="/records",
    calls={
        "charge": Call(
            "/sales",
            {
                "reference": Field("reference"),
                "amount_minor": Field("amount", int),
                "currency": Field("currency"),
                "card": Field("card"),
                "description": Field("description", optional=True),
            },
        ),
        "refund": Call(
            "/reversals",
            {
                "reference": Field("reference"),
                "charge_id": Field("sale"),
                "amount_minor": Field("amount", int),
                "currency": Field("currency"),
            },
            target="sale",
        ),
        "void": Call(
            "/voids",
            {"reference": Field("reference"), "charge_reference": Field("sale_reference")},
            target="sale",
        ),
    },
    documented={
        **COMMON_ANSWERS,
        (402, "card_declined"): Meaning.DECLINED,
        (402, "refund_exceeds_charge"): Meaning.DECLINED,
        (402, "refund_refused"): Meaning.DECLINED,
        (402, "void_refused"): Meaning.DECLINED,
        # Never "nothing to refund": the sale may only not be there yet.
        (404, "charge_unknown"): Meaning.NOT_APPLIED,
    },
)


class SimulatedAcquirer(SimulatedClient):
    """Actions: `charge` {reference, amount_minor, currency, card, description?},
    `refund` {reference, charge_id, amount_minor, currency} and `void` {reference,
    charge_reference}, which takes back what stands under our reference, if anything does."""

    def __init__(
        self,
        base_url: str,
        *,
        profile: ProviderProfile = PROFILE,
        token: str | None = None,
    ) -> None:
        """Talk to the acquirer at `base_url`; pass `PROFILE_BLIND` when it offers no records."""
        super().__init__(base_url, interface=INTERFACE, profile=profile, token=token)
