"""What Stripe's documented answers mean, how its books are read, and what is sent to it."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from operations.errors import Declined, EffectUnknown, KeyMismatch, ProviderError, Unavailable
from providers.contract import ProviderRecord
from providers.stripe import PROFILE, STRIPE_VERSION, StripePayments, stripe_payments
from providers.stripe_objects import ChargeApi, iso_amount, stripe_amount
from providers.stripe_wire import ANSWER_MAX_BYTES, NotSent, StripeWire

KEY = "c0ffee" * 6
CHARGE = {"reference": KEY, "amount_minor": 2400, "currency": "EUR", "card": "pm_1"}
REFUND = {"reference": KEY, "amount_minor": 2400, "currency": "EUR", "charge_id": "pi_1"}
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
INTENT = {
    "object": "payment_intent",
    "id": "pi_1",
    "status": "succeeded",
    "amount": 2400,
    "amount_received": 2400,
    "currency": "eur",
    "created": int(NOON.timestamp()),
    "metadata": {"tallystick_reference": KEY},
}

Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer, **options: Any) -> StripePayments:
    return StripePayments(
        api_key="sk_test_x", transport=httpx.MockTransport(answer), now=lambda: NOON, **options
    )


def says(status: int, document: Any, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: httpx.Response(status, json=document, headers=named)


def error(kind: str, **members: str) -> Mapping[str, Any]:
    return {"error": {"type": kind, "message": "why", **members}}


async def sent(answer: Answer, action: str = "charge") -> ProviderRecord | ProviderError:
    stripe = client(answer)
    body = stripe.freeze(action, REFUND if action == "refund" else CHARGE)
    try:
        return await stripe.perform(action, key=KEY, body=body)
    except ProviderError as raised:
        return raised
    finally:
        await stripe.aclose()


CARD = error("card_error", code="card_declined", decline_code="insufficient_funds")
MISSING = error("invalid_request_error", code="resource_missing")
INVALID = error("invalid_request_error", code="amount_too_small")
API = error("api_error")


@pytest.mark.parametrize(
    ("answer", "action", "expected"),
    [
        pytest.param(says(402, CARD), "charge", Declined, id="card error"),
        pytest.param(says(400, INVALID), "charge", Declined, id="invalid request"),
        pytest.param(says(404, MISSING), "charge", Declined, id="no such card"),
        pytest.param(says(404, MISSING), "refund", Unavailable, id="no such charge, or not yet"),
        pytest.param(
            says(400, INVALID, Stripe_Should_Retry="true"),
            "charge",
            EffectUnknown,
            id="a refusal that is not its last word",
        ),
        pytest.param(
            says(400, error("idempotency_error")), "charge", KeyMismatch, id="other parameters"
        ),
        pytest.param(
            says(409, error("idempotency_error", code="idempotency_key_in_use")),
            "charge",
            EffectUnknown,
            id="in progress",
        ),
        pytest.param(says(401, error("invalid_request_error")), "charge", Unavailable, id="key"),
        pytest.param(says(403, error("invalid_request_error")), "charge", Unavailable, id="rights"),
        pytest.param(
            says(429, error("invalid_request_error", code="lock_timeout")),
            "charge",
            Unavailable,
            id="lock",
        ),
        pytest.param(says(500, API), "charge", EffectUnknown, id="api error"),
        pytest.param(says(400, API), "charge", EffectUnknown, id="api error with a 400"),
        pytest.param(says(424, INVALID), "charge", EffectUnknown, id="dependency"),
        pytest.param(says(503, None), "charge", EffectUnknown, id="no error object"),
        pytest.param(says(400, {}), "charge", EffectUnknown, id="a refusal without a type"),
        pytest.param(says(302, {}), "charge", EffectUnknown, id="a redirection"),
        pytest.param(says(200, []), "charge", EffectUnknown, id="no object"),
        pytest.param(says(200, {**INTENT, "id": None}), "charge", EffectUnknown, id="no id"),
        pytest.param(
            says(200, {**INTENT, "status": "requires_capture"}), "charge", EffectUnknown, id="hold"
        ),
        pytest.param(
            says(200, {**INTENT, "status": "canceled"}), "charge", Declined, id="cancelled"
        ),
        pytest.param(
            says(500, API, Idempotent_Replayed="true"), "charge", KeyMismatch, id="saved failure"
        ),
        pytest.param(
            says(500, API, Stripe_Should_Retry="false"), "charge", KeyMismatch, id="hopeless"
        ),
    ],
)
async def test_a_documented_answer_says_what_we_know_of_the_effect(
    answer: Answer, action: str, expected: type[ProviderError]
) -> None:
    assert type(await sent(answer, action)) is expected


async def test_the_most_exact_code_is_kept_and_a_wait_is_honoured() -> None:
    declined = await sent(says(402, CARD))
    assert isinstance(declined, Declined)
    assert declined.code == "insufficient_funds"
    limited = await sent(says(429, error("invalid_request_error"), Retry_After="7"))
    assert isinstance(limited, Unavailable)
    assert limited.retry_after_seconds == 7


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (httpx.ConnectError("refused"), Unavailable),
        (httpx.ConnectTimeout("no connection"), Unavailable),
        (httpx.PoolTimeout("no connection free"), Unavailable),
        (httpx.ReadTimeout("no answer"), EffectUnknown),
        (httpx.WriteError("reset"), EffectUnknown),
        (httpx.RemoteProtocolError("closed"), EffectUnknown),
    ],
)
async def test_only_a_missing_connection_proves_that_nothing_left(
    broken: Exception, expected: type[ProviderError]
) -> None:
    def breaks(_: httpx.Request) -> httpx.Response:
        raise broken

    assert type(await sent(breaks)) is expected


async def test_an_endless_answer_is_unknown() -> None:
    answer = await sent(lambda _: httpx.Response(200, content=b" " * (ANSWER_MAX_BYTES + 1)))
    assert type(answer) is EffectUnknown


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("succeeded", ProviderRecord),
        ("processing", EffectUnknown),
        ("requires_payment_method", Declined),
    ],
)
async def test_what_is_still_processing_is_read_again(
    status: str, expected: type[ProviderRecord | ProviderError]
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        now = "processing" if request.method == "POST" else status
        assert request.url.path == "/v1/payment_intents" + ("/pi_1" * (request.method == "GET"))
        return httpx.Response(200, json={**INTENT, "status": now})

    assert type(await sent(answer)) is expected


async def test_what_is_not_decided_is_neither_found_nor_absent() -> None:
    pending = {"data": [{**INTENT, "status": "processing"}], "has_more": False}
    stripe = client(says(200, pending))
    with pytest.raises(Unavailable):
        await stripe.look_up("charge", key=KEY)
    assert await stripe.look_up("charge", key="another") == ()
    await stripe.aclose()


async def test_the_key_the_version_and_the_account_go_with_the_form() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=INTENT)

    stripe = client(answer, profile=PROFILE.model_copy(update={"account": "acct_7"}))
    body = stripe.freeze("charge", {**CHARGE, "description": "two mugs & tea"})
    record = await stripe.perform("charge", key=KEY, body=body)
    await stripe.aclose()

    assert record.id == "pi_1"
    [request] = seen
    assert request.content == body
    assert request.headers["Idempotency-Key"] == KEY
    assert request.headers["Stripe-Version"] == STRIPE_VERSION
    assert request.headers["Stripe-Account"] == "acct_7"
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert dict(parse_qsl(body.decode(), strict_parsing=True)) == {
        "amount": "2400",
        "currency": "eur",
        "confirm": "true",
        "off_session": "true",
        "payment_method_types[]": "card",
        "payment_method": "pm_1",
        "description": "two mugs & tea",
        "metadata[tallystick_reference]": KEY,
    }


def test_the_order_of_members_does_not_change_the_bytes() -> None:
    stripe = client(says(200, {}))
    backwards = dict(reversed(CHARGE.items()))
    assert stripe.freeze("charge", CHARGE) == stripe.freeze("charge", backwards)


@pytest.mark.parametrize(
    ("action", "changes"),
    [
        ("capture", {}),
        ("charge", {"card": None}),
        ("charge", {"amount_minor": "2400"}),
        ("charge", {"amount_minor": True}),
        ("charge", {"amount_minor": 0}),
        ("charge", {"currency": "eur"}),
        ("charge", {"tip": 1}),
        ("charge", {"currency": "BHD", "amount_minor": 2401}),
        ("charge", {"currency": "MGA", "amount_minor": 2401}),
        ("refund", {"charge_id": "shp_1"}),
        ("refund", {"charge_id": "pi_1/cancel"}),
    ],
)
def test_what_cannot_be_expressed_is_refused(action: str, changes: Mapping[str, Any]) -> None:
    stripe = client(says(200, {}))
    with pytest.raises(ValueError, match="stripe"):
        stripe.freeze(action, {**(REFUND if action == "refund" else CHARGE), **changes})


@pytest.mark.parametrize(
    ("currency", "minor", "at_stripe"),
    [("EUR", 2400, 2400), ("JPY", 2400, 2400), ("ISK", 2400, 240_000), ("MGA", 2400, 24)],
)
def test_an_amount_means_the_same_money_on_both_sides(
    currency: str, minor: int, at_stripe: int
) -> None:
    assert stripe_amount(minor, currency) == at_stripe
    assert iso_amount(at_stripe, currency) == minor


def test_a_token_and_the_charges_api_are_spelled_their_way() -> None:
    fields = dict(parse_qsl(client(says(200, {})).freeze("charge", {**CHARGE, "card": "tok_1"})))
    assert fields[b"payment_method_data[card][token]"] == b"tok_1"
    former = client(says(200, {}), api=ChargeApi.CHARGES).freeze("charge", CHARGE)
    assert dict(parse_qsl(former))[b"source"] == b"pm_1"


def test_live_and_test_keys_are_pinned_apart() -> None:
    live, test = (stripe_payments(api_key=key).profile for key in ("rk_live_1", "rk_test_1"))
    assert (live.region, test.region) == ("live", "test")
    with pytest.raises(ValueError, match="key"):
        stripe_payments(api_key="sk_live_1\r\nStripe-Account: acct_8")


class FakeLists:
    """Stripe's lists as documented: newest first, filtered, a hundred at most, `starting_after`."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self.objects = objects
        self.requests = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        query = request.url.params
        kind = "refund" if request.url.path == "/v1/refunds" else "payment_intent"
        found = [
            one
            for one in sorted(self.objects, key=lambda one: (-one["created"], one["id"]))
            if one["object"] == kind
            and one["created"] >= int(query.get("created[gte]", "0"))
            and one["created"] < int(query.get("created[lt]", str(2**40)))
        ]
        if after := query.get("starting_after"):
            found = found[[one["id"] for one in found].index(after) + 1 :]
        page = found[: int(query["limit"])]
        return httpx.Response(200, json={"data": page, "has_more": len(page) < len(found)})


def lists(*, seconds: int, each: int) -> FakeLists:
    noon = int(NOON.timestamp())
    return FakeLists(
        [
            {**INTENT, "object": kind, "id": f"{kind}_{second}_{n:04d}", "created": noon + second}
            for second in range(seconds)
            for n in range(each)
            for kind in ("payment_intent", "refund")
        ]
    )


@pytest.mark.parametrize(
    ("seconds", "each", "limit"),
    [
        pytest.param(400, 1, 1000, id="more than a page"),
        pytest.param(3, 150, 70, id="more than a page in one second"),
        pytest.param(5, 1, 3, id="less than a page"),
    ],
)
async def test_a_full_window_is_read_in_slices_oldest_first_and_each_once(
    seconds: int, each: int, limit: int
) -> None:
    server = lists(seconds=seconds, each=each)
    stripe = client(server)
    identifiers: list[str] = []
    cursor = None
    while True:
        page = await stripe.list_records(
            since=NOON + timedelta(seconds=0.5),
            until=NOON + timedelta(seconds=seconds + 5000),
            cursor=cursor,
            limit=limit,
        )
        assert len(page.records) <= limit
        identifiers += [record.id for record in page.records]
        cursor = page.next_cursor
        if cursor is None:
            break
    await stripe.aclose()
    noon = int(NOON.timestamp())
    wanted = sorted((o["created"], o["id"]) for o in server.objects if o["created"] > noon)
    assert identifiers == [identifier for _, identifier in wanted]


async def test_a_server_that_cannot_filter_is_filtered_here() -> None:
    def everything(request: httpx.Request) -> httpx.Response:
        assert not [name for name in request.url.params if name.startswith("created")]
        return server(request)

    server = lists(seconds=5, each=1)
    stripe = client(everything, filters_by_creation=False)
    window = {"since": NOON + timedelta(seconds=1), "until": NOON + timedelta(seconds=3)}
    page = await stripe.list_records(**window, cursor=None, limit=10)
    await stripe.aclose()
    assert {(record.created_at - NOON).total_seconds() for record in page.records} == {1.0, 2.0}
    assert (len(page.records), page.next_cursor) == (4, None)


async def test_a_part_of_the_books_proves_no_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.stripe_books.PAGES_MAX", 2)
    stripe = client(lists(seconds=1, each=201))
    with pytest.raises(Unavailable):
        await stripe.look_up("charge", key="nobody's")
    await stripe.aclose()


async def test_unreadable_books_are_not_empty_books() -> None:
    for answer in (says(500, API), says(200, {}), says(200, {"data": [], "has_more": True})):
        stripe = client(answer)
        with pytest.raises(Unavailable):
            await stripe.look_up("charge", key=KEY)
        await stripe.aclose()
    broken = {"data": [{**INTENT, "created": "noon"}], "has_more": False}
    stripe = client(says(200, broken))
    with pytest.raises(Unavailable):
        await stripe.look_up("charge", key=KEY)
    await stripe.aclose()


async def test_a_redirect_that_cannot_be_read_is_an_answer_that_was_lost() -> None:
    def redirect(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"location": "mailto:x"})

    wire = StripeWire(
        "http://stripe.example",
        headers={},
        timeout_seconds=5,
        transport=httpx.MockTransport(redirect),
    )
    assert not isinstance(await wire.post("/v1/charges", body=b"", headers={}), NotSent)
    await wire.aclose()
