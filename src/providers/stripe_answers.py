"""What Stripe's answers tell about the effect. Pure.

Errors, by docs.stripe.com/api/errors, /error-low-level, /error-codes and /rate-limits:

| Stripe says | its documentation | we say |
|---|---|---|
| 402, or `card_error` | the parameters were fine, the payment failed | `Declined` (decline code) |
| 400, 404 `invalid_request_error` | refused as it stands | `Declined` (code) |
| 404 `resource_missing` for a refund | the charge is not there: or not yet (hazard 6) | `Unavailable` |
| `idempotency_error` | the key was used with other parameters | `KeyMismatch` |
| 409 | the first request with the key is still being executed | `EffectUnknown` |
| 401, 403 | the API key is not accepted | `Unavailable` |
| 429 | rate limiters run before anything else; `lock_timeout` gave up before it began | `Unavailable` |
| 5xx, 424, `api_error` | indeterminate | `EffectUnknown` |
| the same, and `Idempotent-Replayed: true` or `Stripe-Should-Retry: false` | saved: the same answer for as long as the key lives (hazard 4) | `KeyMismatch`: look up |
| a refusal with `Stripe-Should-Retry: true` | not its last word | `EffectUnknown` |
| anything else | nothing | `EffectUnknown` |
"""  # noqa: E501 a table row cannot be broken

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, cast

from operations.errors import Declined, EffectUnknown, KeyMismatch, ProviderError, Unavailable
from providers.http_calls import retry_after_seconds
from providers.stripe_wire import Reply

REFUSING_STATUSES = frozenset({400, 402, 404})
"""Documented as refusals of the request as it stands."""

STILL_MOVING_SECONDS = 5.0
"""When to ask again about what Stripe says is being processed."""


@dataclass(frozen=True)
class StripeError:
    """The `error` member of an answer, bounded. Empty texts where it says nothing."""

    type: str
    code: str
    decline_code: str
    message: str

    @property
    def reason_code(self) -> str:
        """The most exact word for it."""
        return self.decline_code or self.code or self.type


def error_of(reply: Reply) -> StripeError:
    """Read the error object of an answer (docs.stripe.com/api/errors)."""
    found = (reply.document or {}).get("error")
    error = cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def text(name: str, limit: int) -> str:
        value = error.get(name)
        return value[:limit] if isinstance(value, str) else ""

    return StripeError(
        type=text("type", 100),
        code=text("code", 100),
        decline_code=text("decline_code", 100),
        message=text("message", 300),
    )


def failure(reply: Reply, *, action: str, now: datetime) -> ProviderError:
    """The error to raise for an answer to a POST that is not a 2xx: the table above.

    `now` reads dates in Retry-After.
    """
    error = error_of(reply)
    wait = retry_after_seconds(reply.headers.get("Retry-After"), now=now)
    if reply.status == 409:
        return EffectUnknown(
            "stripe is still executing a request with this key", retry_after_seconds=wait
        )
    if error.type == "idempotency_error":
        return KeyMismatch("stripe knows this key with other parameters")
    if reply.status == 429:
        return Unavailable("stripe limits our requests", retry_after_seconds=wait)
    if reply.status in {401, 403}:
        return Unavailable(f"stripe does not accept our API key ({reply.status})")
    if reply.status not in REFUSING_STATUSES or not error.type or error.type == "api_error":
        return _undecided(reply, error, wait_seconds=wait)
    if reply.headers.get("Stripe-Should-Retry") == "true":
        return EffectUnknown(
            f"stripe refused, but asks to be asked again: {error.reason_code}",
            retry_after_seconds=wait,
        )
    if action == "refund" and error.code == "resource_missing":
        return Unavailable("stripe does not show what is to be refunded", retry_after_seconds=wait)
    return Declined(f"stripe refused: {error.message or 'no reason'}", code=error.reason_code)


def _undecided(reply: Reply, error: StripeError, *, wait_seconds: float | None) -> EffectUnknown:
    said = f"stripe answered {reply.status} {error.reason_code}".rstrip()
    headers = reply.headers
    saved = headers.get("Idempotent-Replayed") == "true"
    if saved or headers.get("Stripe-Should-Retry") == "false":
        return KeyMismatch(f"{said}, and will answer the same again")
    return EffectUnknown(said, retry_after_seconds=wait_seconds)


class Effect(StrEnum):
    """What the status of one of Stripe's objects means for the money."""

    MOVED = "moved"
    MOVING = "moving"
    """It is not over: the object has to be read again."""
    NONE = "none"
    """Nothing moved, and nothing will unless somebody acts."""
    UNCLEAR = "unclear"


_EFFECTS: dict[tuple[str, str], Effect] = {
    # docs.stripe.com/payments/paymentintents/lifecycle
    ("payment_intent", "succeeded"): Effect.MOVED,
    ("payment_intent", "processing"): Effect.MOVING,
    ("payment_intent", "requires_payment_method"): Effect.NONE,
    # The cardholder would have to authenticate; off session there is nobody to ask, and nobody
    # gets the client secret from us.
    ("payment_intent", "requires_action"): Effect.NONE,
    ("payment_intent", "requires_confirmation"): Effect.NONE,
    ("payment_intent", "canceled"): Effect.NONE,
    # docs.stripe.com/api/charges/object
    ("charge", "succeeded"): Effect.MOVED,
    ("charge", "pending"): Effect.MOVING,
    ("charge", "failed"): Effect.NONE,
    # docs.stripe.com/api/refunds/object; a pending refund has been taken from our balance.
    ("refund", "succeeded"): Effect.MOVED,
    ("refund", "pending"): Effect.MOVED,
    ("refund", "failed"): Effect.NONE,
    ("refund", "canceled"): Effect.NONE,
}


def effect_of(document: dict[str, Any]) -> Effect:
    """What an object says about its effect. A status nobody documents is unclear."""
    kind, status = document.get("object"), document.get("status")
    return _EFFECTS.get((str(kind), str(status)), Effect.UNCLEAR)


def refusal_in(document: dict[str, Any]) -> Declined:
    """The refusal that an object without an effect stands for."""
    status = str(document.get("status"))[:100]
    code = "authentication_required" if status == "requires_action" else status
    return Declined(f"stripe moved nothing: {status}", code=code)
