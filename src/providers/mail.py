"""The client of the simulated mail service, which accepts and tells nothing afterwards."""

from operations.guarantees import Guarantee, ProviderProfile
from providers.http_calls import COMMON_ANSWERS, Meaning
from providers.simulated_client import Call, Field, Interface, SimulatedClient

PROFILE = ProviderProfile(
    provider="mail",
    guarantee=Guarantee.BLIND,
    can_look_up=False,
    send_timeout_seconds=5.0,  # it answers within milliseconds; five seconds bridge a hiccup
    blind_resends=2,  # a third copy informs nobody better
)
"""What the mail service promises: nothing."""

INTERFACE = Interface(
    calls={
        "send": Call(
            "/messages",
            {
                "reference": Field(
                    "message_id", write=lambda reference: f"<{reference}@tallystick.invalid>"
                ),
                "to": Field("to"),
                "subject": Field("subject"),
                "text": Field("text"),
            },
        ),
    },
    documented={**COMMON_ANSWERS, (422, "recipient_refused"): Meaning.DECLINED},
)


class SimulatedMail(SimulatedClient):
    """Action: `send` {reference, to, subject, text}.

    The reference becomes the left part of the Message-ID, under a domain that RFC 2606 keeps free,
    so that a person who finds two copies can tell that they are one message.
    `look_up` and `list_records` always raise Unavailable.
    """

    def __init__(
        self,
        base_url: str,
        *,
        profile: ProviderProfile = PROFILE,
        token: str | None = None,
    ) -> None:
        """Talk to the mail service at `base_url`."""
        super().__init__(base_url, interface=INTERFACE, profile=profile, token=token)
