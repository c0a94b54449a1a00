"""Whose webhook is it? Signatures over the raw bytes, and how old they may be. Nothing is parsed.

Standard Webhooks (standardwebhooks.com) for everybody but Stripe, whose scheme is its own
(docs.stripe.com/webhooks/signature, "Verify webhook signatures manually").
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from standardwebhooks import Webhook, WebhookVerificationError
from standardwebhooks.webhooks import EmptyWebhookSecretError

TOLERANCE_SECONDS = 300
"""Five minutes, as both schemes recommend: an older message may be somebody's replay."""

SIGNATURES_MAX = 20
"""One for each secret under rotation; more of them are somebody trying."""

Headers = Mapping[str, str]
"""Names in lower case."""


class SignatureInvalid(Exception):
    """The message is not signed with a secret of ours, or not now."""


def is_secret(secret: str, *, standard: bool) -> bool:
    """Whether it can be used: for Standard Webhooks it is base64, with or without `whsec_`."""
    if not standard:
        return bool(secret)
    try:
        Webhook(secret)
    except (EmptyWebhookSecretError, ValueError):
        return False
    return True


def verify_standard(body: bytes, *, headers: Headers, secrets: Iterable[str]) -> None:
    """`webhook-id`, `webhook-timestamp` and `webhook-signature`. Raises SignatureInvalid."""
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    given = {name: headers[name] for name in names if name in headers}
    if given.get("webhook-signature", "").count(" ") >= SIGNATURES_MAX:
        raise SignatureInvalid("There are too many signatures")
    reason = "There is no secret to verify it with"
    for secret in secrets:
        try:
            Webhook(secret).verify(body, given, json_parse=False)
        except (WebhookVerificationError, ValueError) as error:
            reason = str(error) if isinstance(error, WebhookVerificationError) else "Malformed"
        else:
            return
    raise SignatureInvalid(reason)


def verify_stripe(
    body: bytes, *, headers: Headers, secrets: Iterable[str], now_seconds: float
) -> None:
    """`Stripe-Signature: t=…,v1=…`, with several `v1` while secrets rotate. Raises
    SignatureInvalid."""
    parts = [part.strip().partition("=") for part in headers.get("stripe-signature", "").split(",")]
    times = [value for name, _, value in parts if name == "t"]
    signatures = [value for name, _, value in parts if name == "v1"]
    if len(times) != 1 or not times[0].isascii() or not times[0].isdecimal() or not signatures:
        raise SignatureInvalid("The Stripe-Signature header is missing or malformed")
    if len(signatures) > SIGNATURES_MAX or len(times[0]) > 15:
        raise SignatureInvalid("The Stripe-Signature header is too long")
    if abs(now_seconds - int(times[0])) > TOLERANCE_SECONDS:
        raise SignatureInvalid("The timestamp is too far from ours")
    signed = times[0].encode() + b"." + body
    for secret in secrets:
        expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest().encode()
        if any(hmac.compare_digest(expected, given.encode()) for given in signatures):
            return
    raise SignatureInvalid("No signature matches")


def sign_standard(body: bytes, *, message_id: str, seconds: int, secrets: Iterable[str]) -> Headers:
    """The headers that `verify_standard` accepts, signed with every secret.

    Raises ValueError for a secret that is not base64, with or without `whsec_`.
    """
    moment = datetime.fromtimestamp(seconds, UTC)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(
            Webhook(secret).sign(message_id, moment, body.decode()) for secret in secrets
        ),
    }
