"""The simulated legacy acquirer: no keys, so the same request twice is two sales.

| request | answers |
|---|---|
| `POST /sales` | 201; 402 `card_declined` (always for the card `tok_declined`) |
| `POST /reversals` | 201; 402 `refund_exceeds_charge`; 404 `charge_unknown` |
| `GET /sales?reference=`, `GET /reversals?…`, `GET /records?…` | 200, or 501 `not_offered` |

Its temperament says what the reads are worth: consistent, lagging by two seconds, or not offered.
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

CARD_DECLINED = refusal(402, "card_declined", "the card issuer refused this sale")


class Sale(Form):
    """The body of `POST /sales`."""

    amount: Amount
    currency: CurrencyCode
    card: Identifier
    reference: Reference
    description: Text = ""


class Reversal(Form):
    """The body of `POST /reversals`."""

    sale: Identifier
    amount: Amount
    currency: CurrencyCode
    reference: Reference


def _sell(_: Pages, form: Sale) -> Decision:
    if form.card == "tok_declined":
        return CARD_DECLINED
    return Draft(state="succeeded", amount=form.amount, currency=form.currency)


def _reverse(pages: Pages, form: Reversal) -> Decision:
    return refund_of(
        pages,
        ProviderName.ACQUIRER,
        captured=form.sale,
        operation="charge",
        amount=form.amount,
        currency=form.currency,
    )


SERVICE = Service(
    name=ProviderName.ACQUIRER,
    records_path="/records",
    actions=(
        Action("charge", "/sales", "sale", Sale, _sell, CARD_DECLINED),
        Action(
            "refund",
            "/reversals",
            "rev",
            Reversal,
            _reverse,
            refusal(402, "refund_refused", "the card issuer refused this reversal"),
            target_name="sale",
        ),
    ),
)
