"""Our requests as Stripe's forms, and Stripe's objects as our records. Pure.

Amounts: we count in ISO 4217 minor units; Stripe counts some currencies differently
(docs.stripe.com/currencies, "Special cases" and "Three-decimal currencies"). A factor of a hundred
is at stake, so it is translated here in both directions.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from operations.money import MINOR_MAX, Currency
from operations.texts import Card, LineOfText
from providers.contract import ProviderRecord

REFERENCE = "tallystick_reference"
"""The metadata field that holds our derived key."""

HUNDREDTHS_AT_STRIPE = frozenset({"ISK", "UGX"})
"""No decimals in ISO 4217, two at Stripe."""

WHOLE_AT_STRIPE = frozenset({"MGA"})
"""Two decimals in ISO 4217, none at Stripe."""

TENS_AT_STRIPE = frozenset({"BHD", "JOD", "KWD", "OMR", "TND"})
"""Three decimals, of which Stripe takes two."""


class ChargeApi(StrEnum):
    """Which of Stripe's interfaces makes a charge."""

    PAYMENT_INTENTS = "payment_intents"
    """The present one; our default."""
    CHARGES = "charges"
    """The former one, for servers that know no other."""


class _Asked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    reference: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,255}$")]
    amount_minor: Annotated[int, Field(gt=0, le=MINOR_MAX)]
    currency: Currency


class _Charge(_Asked):
    card: Card
    description: LineOfText | None = None


class _Refund(_Asked):
    charge_id: Annotated[str, Field(pattern=r"^(pi|ch|py)_[A-Za-z0-9_]{1,250}$")]


def charge_form(request: Mapping[str, Any], *, api: ChargeApi) -> bytes:
    """The form of a charge to a `pm_`, `card_`, `src_` or `tok_` token, confirmed at once.

    Off session: the cardholder is not there to authenticate, so a card that asks for it is declined
    (docs.stripe.com/api/payment_intents/create, `off_session`). Raises ValueError.
    """
    asked = _read(_Charge, request)
    fields = [
        ("amount", str(stripe_amount(asked.amount_minor, asked.currency))),
        ("currency", asked.currency.lower()),
    ]
    match api:
        case ChargeApi.PAYMENT_INTENTS:
            fields += [
                ("confirm", "true"),
                ("off_session", "true"),
                ("payment_method_types[]", "card"),
                *_payment_method(asked.card),
            ]
        case ChargeApi.CHARGES:
            fields.append(("source", asked.card))
    if asked.description is not None:
        fields.append(("description", asked.description))
    fields.append((f"metadata[{REFERENCE}]", asked.reference))
    return urlencode(fields).encode()


def refund_form(request: Mapping[str, Any]) -> bytes:
    """The form of a refund of a PaymentIntent or a charge, told apart by their prefixes.

    A refund is in the currency of what it refunds; ours only says how to count. Raises ValueError.
    """
    asked = _read(_Refund, request)
    target = "payment_intent" if asked.charge_id.startswith("pi_") else "charge"
    fields = [
        (target, asked.charge_id),
        ("amount", str(stripe_amount(asked.amount_minor, asked.currency))),
        (f"metadata[{REFERENCE}]", asked.reference),
    ]
    return urlencode(fields).encode()


def stripe_amount(minor: int, currency: str) -> int:
    """ISO 4217 minor units → what Stripe counts in. Raises ValueError where it cannot be said."""
    if currency in HUNDREDTHS_AT_STRIPE:
        return minor * 100
    if currency in WHOLE_AT_STRIPE:
        if minor % 100:
            raise ValueError(f"stripe takes whole {currency} only")
        return minor // 100
    if currency in TENS_AT_STRIPE and minor % 10:
        raise ValueError(f"stripe takes two decimals of {currency} only")
    return minor


def iso_amount(amount: int, currency: str) -> int | None:
    """What Stripe counts in → ISO 4217 minor units; None where ISO has no word for it."""
    if currency in HUNDREDTHS_AT_STRIPE:
        return None if amount % 100 else amount // 100
    return amount * 100 if currency in WHOLE_AT_STRIPE else amount


def record_of(document: Mapping[str, Any], *, api: ChargeApi) -> ProviderRecord:
    """A PaymentIntent, a charge or a refund as our record.

    Raises KeyError, TypeError, ValueError or AttributeError for an object that is none of them.
    """
    currency = document["currency"].upper()
    refund = document["object"] == "refund"
    received = document.get("amount_received") if document["status"] == "succeeded" else None
    target = document.get("payment_intent") if api is ChargeApi.PAYMENT_INTENTS else None
    return ProviderRecord(
        id=document["id"],
        action="refund" if refund else "charge",
        reference=reference_in(document),
        amount_minor=iso_amount(received or document["amount"], currency),
        currency=currency,
        target=(target or document.get("charge")) if refund else None,
        state=document["status"],
        created_at=datetime.fromtimestamp(document["created"], tz=UTC),
    )


def reference_in(document: Mapping[str, Any]) -> str | None:
    """Our derived key, if the object's metadata holds one."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return None
    return cast("dict[str, Any]", metadata).get(REFERENCE)


def _payment_method(card: str) -> list[tuple[str, str]]:
    if card.startswith("tok_"):
        return [("payment_method_data[type]", "card"), ("payment_method_data[card][token]", card)]
    return [("payment_method", card)]


_AskedT = TypeVar("_AskedT", bound=_Asked)


def _read(model: type[_AskedT], request: Mapping[str, Any]) -> _AskedT:
    try:
        return model.model_validate(dict(request))
    except ValidationError as error:
        members = sorted({".".join(map(str, found["loc"])) for found in error.errors()})
        raise ValueError(f"stripe cannot be asked for this: see {', '.join(members)}") from None
