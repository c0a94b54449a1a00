"""Webhooks read as messages. Pure. What nobody here understands is a message too: it is kept, known
again when it is repeated, and moves nothing."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from operations.messages import Message
from providers.stripe_answers import Effect, effect_of
from providers.stripe_objects import ChargeApi, record_of

STRIPE = "stripe"
"""The name in the webhook's path; the provider of the effects it speaks of is `payments`."""

PAYMENTS = "payments"

_Name = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,255}$")]
_Word = Annotated[str, Field(pattern=r"^[\x20-\x7e]{0,100}$")]
_Money = Annotated[int, Field(ge=-(2**62), le=2**62)]

_STRIPE_RANKS = {
    Effect.NONE: 1,  # a declined attempt comes before the one that succeeds
    Effect.UNCLEAR: 1,
    Effect.MOVING: 2,
    Effect.MOVED: 3,
}
_STRIPE_REFUNDED = 4
_STRIPE_OBJECTS = frozenset({"payment_intent", "charge", "refund"})


class BodyUnreadable(ValueError):
    """A signed body that is not a JSON object."""


class _Record(BaseModel):
    """What the simulated providers put into `data`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    id: _Name
    version: Annotated[int, Field(ge=1, le=2**53)]
    state: _Word = ""
    reference: _Name | None = None
    amount: _Money | None = None
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] | None = None


def read_standard(provider: str, body: bytes, *, message_id: str) -> Message:
    """A webhook of the simulated kind: `{"type", "timestamp", "data": {record, "version"}}`.

    `data.version` counts the states of the record from 1. Raises BodyUnreadable.
    """
    document = _object(body)
    try:
        record = _Record.model_validate(document.get("data"))
    except ValidationError:
        return _not_understood(provider, body, identity=message_id)
    return Message(
        provider=provider,
        entity=record.id,
        version=str(record.version),
        rank=record.version,
        state=record.state,
        event=_shown(message_id),
        payload=body.decode(),
        exists=True,
        reference=record.reference,
        amount_minor=record.amount,
        currency=record.currency,
    )


def read_stripe(body: bytes) -> Message:
    """A Stripe event about a PaymentIntent, a charge or a refund (docs.stripe.com/api/events).

    Stripe numbers events, not states: the event's number is the version, and the state itself says
    how far it has come. Raises BodyUnreadable.
    """
    event = _object(body)
    number = event.get("id")
    identity = number if isinstance(number, str) else ""
    data = event.get("data")
    found: Any = cast("dict[str, Any]", data).get("object") if isinstance(data, dict) else None
    if not isinstance(found, dict):
        return _not_understood(PAYMENTS, body, identity=identity)
    document = cast("dict[str, Any]", found)
    try:
        return _stripe_message(document, body=body, identity=identity)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return _not_understood(PAYMENTS, body, identity=identity)


def _stripe_message(document: dict[str, Any], *, body: bytes, identity: str) -> Message:
    """Raises ValueError, TypeError, KeyError, AttributeError or OverflowError for anything else."""
    if document["object"] not in _STRIPE_OBJECTS or not identity:
        raise ValueError("not an object that moves money")
    record = record_of(document, api=ChargeApi.PAYMENT_INTENTS)
    _Record.model_validate(
        {
            "id": record.id,
            "version": 1,
            "state": record.state,
            "reference": record.reference,
            "amount": record.amount_minor,
            "currency": record.currency,
        }
    )
    effect = effect_of(document)
    refunded = bool(document.get("refunded") or document.get("amount_refunded"))
    # A PaymentIntent's charge carries its metadata; what we made is the PaymentIntent.
    intent = document.get("payment_intent") if document["object"] == "charge" else None
    return Message(
        provider=PAYMENTS,
        entity=record.id,
        version=identity,
        rank=_STRIPE_REFUNDED if refunded else _STRIPE_RANKS[effect],
        state=record.state,
        event=identity,
        payload=body.decode(),
        exists=effect is Effect.MOVED,
        reference=record.reference,
        provider_reference=intent if isinstance(intent, str) else None,
        amount_minor=record.amount_minor,
        currency=record.currency,
    )


def _not_understood(provider: str, body: bytes, *, identity: str) -> Message:
    """Known again by its number, or by its bytes where it has none that we can keep."""
    digest = hashlib.sha256(identity.encode() or body).hexdigest()
    return Message(
        provider=provider,
        entity=f"event:{digest}",
        version="1",
        rank=0,
        event=_shown(identity),
        payload=body.decode(),
    )


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BodyUnreadable("the body is not JSON") from error
    if not isinstance(document, dict) or b"\x00" in body:
        raise BodyUnreadable("the body is not a JSON object")
    return cast("dict[str, Any]", document)


def _shown(identity: str) -> str:
    return "".join(character for character in identity if character.isprintable())[:255]
