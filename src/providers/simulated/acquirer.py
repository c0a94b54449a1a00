"""The simulated legacy acquirer: no keys, so the same request twice is two sales.

| request | answers |
|---|---|
| `POST /sales` | 201; 402 `card_declined` (always for the card `tok_declined`) |
| `POST /reversals` | 201; 402 `refund_exceeds_charge`; 404 `charge_unknown` |
| `POST /voids` | 201, whether or not there was a sale; 200 with the first one if already voided |
| `GET /sales?reference=`, `GET /reversals?…`, `GET /records?…` | 200, or 501 `not_offered` |

A void names the sale by its client's reference, as the reversal after a timeout does in ISO 8583:
who has no answer knows no other name. One that finds no sale says `nothing`.

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

END_OF_TIME_US = 2**62
"""The acquirer sees its own records at once, also those that its reads do not show yet."""

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


class Void(Form):
    """The body of `POST /voids`."""

    sale_reference: Reference
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


def _void(pages: Pages, form: Void) -> Decision:
    sales = pages.by_reference(
        ProviderName.ACQUIRER, "charge", form.sale_reference, now_us=END_OF_TIME_US, limit=1
    )
    if not sales:
        return Draft(state="nothing")
    voided = pages.find_undo(ProviderName.ACQUIRER, sales[0].id)
    return voided or Draft(state="succeeded", target=sales[0].id, target_state="voided")


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
        Action(
            "void",
            "/voids",
            "void",
            Void,
            _void,
            refusal(402, "void_refused", "the card issuer refused this void"),
            target_name="sale",
        ),
    ),
)
