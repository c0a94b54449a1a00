"""The simulated card processor: KEYED, readable, consistent.

| request | answers |
|---|---|
| `POST /v1/charges` | 201; 402 `card_declined` (always for the card `tok_declined`) |
| `POST /v1/refunds` | 201; 402 `refund_exceeds_charge`; 404 `charge_unknown` |
| `GET /v1/charges?reference=`, `GET /v1/refunds?reference=` | 200 `{"records": […]}` |
| `GET /v1/records?since=&until=&cursor=&limit=` | 200, oldest first, with `next_cursor` |

With `Idempotency-Key`: the same key and bytes get the stored answer, definite declines included,
for `key_lifetime_seconds`; other bytes get 409 `idempotency_mismatch`; a key whose first request is
still being worked on gets 409 `in_progress`, which says nothing about that first request.
"""

from providers.simulated.books import Pages
from providers.simulated.service import (
    Action,
    Amount,
    CurrencyCode,
    Decision,
    Draft,
    Form,
    Identifier,
    Reference,
    Service,
    Text,
    refund_of,
)
from providers.simulated.vocabulary import ProviderName
from providers.simulated.wire import refusal

CARD_DECLINED = refusal(402, "card_declined", "the card issuer refused this charge")


class Charge(Form):
    """The body of `POST /v1/charges`."""

    amount: Amount
    currency: CurrencyCode
    source: Identifier
    reference: Reference
    description: Text = ""


class Refund(Form):
    """The body of `POST /v1/refunds`."""

    charge: Identifier
    amount: Amount
    currency: CurrencyCode
    reference: Reference


def _charge(_: Pages, form: Charge) -> Decision:
    if form.source == "tok_declined":
        return CARD_DECLINED
    return Draft(state="succeeded", amount=form.amount, currency=form.currency)


def _refund(pages: Pages, form: Refund) -> Decision:
    return refund_of(
        pages,
        ProviderName.PAYMENTS,
        captured=form.charge,
        operation="charge",
        amount=form.amount,
        currency=form.currency,
    )


SERVICE = Service(
    name=ProviderName.PAYMENTS,
    keyed=True,
    records_path="/v1/records",
    actions=(
        Action("charge", "/v1/charges", "ch", Charge, _charge, CARD_DECLINED),
        Action(
            "refund",
            "/v1/refunds",
            "re",
            Refund,
            _refund,
            refusal(402, "refund_refused", "the card issuer refused this refund"),
            target_name="charge",
        ),
    ),
)
