"""StripePayments against two servers that others wrote: one keeps idempotency keys, one none."""

import itertools
import socket
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio

from operations.errors import Declined, EffectUnknown, KeyMismatch, Unavailable
from operations.guarantees import Guarantee
from providers.contract import Provider, ProviderRecord
from providers.stripe import PROFILE_WITHOUT_KEYS, StripePayments, stripe_payments
from providers.stripe_objects import ChargeApi
from support.peers import running_localstripe, running_stateful_mock

API_KEY = "sk_test_tallystick"
MONEY = {"amount_minor": 2400, "currency": "EUR"}
KEYS = (f"key{number:037d}" for number in itertools.count())


class LosingTransport(httpx.AsyncHTTPTransport):
    """Delivers every request, and loses the answers to POSTs."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[httpx.Headers] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if request.method == "GET":
            return response
        await response.aread()
        self.headers.append(request.headers)
        raise httpx.ReadError("lost")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def keeping_url() -> AsyncGenerator[str]:
    async with running_stateful_mock() as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def forgetting_url() -> AsyncGenerator[str]:
    async with running_localstripe() as url:
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def keyed(keeping_url: str) -> AsyncGenerator[StripePayments]:
    client = stripe_payments(api_key=API_KEY, base_url=keeping_url, api=ChargeApi.CHARGES)
    yield client
    await client.aclose()


@pytest_asyncio.fixture(loop_scope="session")
async def queryable(forgetting_url: str) -> AsyncGenerator[StripePayments]:
    async with httpx.AsyncClient(base_url=forgetting_url) as server:
        await server.delete("/_config/data")
    client = stripe_payments(
        api_key=API_KEY,
        base_url=forgetting_url,
        idempotency_keys=False,
        filters_by_creation=False,
    )
    yield client
    await client.aclose()


async def on_server(url: str, path: str, **form: str) -> Any:
    """Past our client: a POST if there is a form, else a GET."""
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {API_KEY}"}) as c:
        reply = await (c.post(path, data=form) if form else c.get(path))
        assert reply.status_code == 200, reply.text
        return reply.json()


async def card(url: str, number: str = "4242424242424242") -> str:
    made = {"number": number, "exp_month": "12", "exp_year": "2099", "cvc": "123"}
    form = {"type": "card", **{f"card[{name}]": value for name, value in made.items()}}
    return (await on_server(url, "/v1/payment_methods", **form))["id"]


async def charge(
    client: Provider, key: str, *, token: str = "tok_visa", **changes: Any
) -> ProviderRecord:
    request = {"reference": key, "card": token, **MONEY, **changes}
    return await client.perform("charge", key=key, body=client.freeze("charge", request))


async def refund(client: Provider, key: str, charge_id: str, **changes: Any) -> ProviderRecord:
    request = {"reference": key, "charge_id": charge_id, **MONEY, **changes}
    return await client.perform("refund", key=key, body=client.freeze("refund", request))


async def every_record(client: Provider, *, limit: int) -> list[ProviderRecord]:
    now = datetime.now(UTC)
    window = {"since": now - timedelta(hours=1), "until": now + timedelta(minutes=1)}
    records: list[ProviderRecord] = []
    cursor = None
    while True:
        page = await client.list_records(**window, cursor=cursor, limit=limit)
        assert len(page.records) <= limit
        records += page.records
        cursor = page.next_cursor
        if cursor is None:
            return records


async def test_a_resend_under_the_same_key_is_the_first_charge(
    keyed: StripePayments, keeping_url: str
) -> None:
    key = next(KEYS)
    first = await charge(keyed, key, description="order 7")
    again = await charge(keyed, key, description="order 7")

    assert first == again
    assert (first.reference, first.amount_minor, first.currency) == (key, 2400, "EUR")
    row = await on_server(keeping_url, f"/v1/charges/{first.id}")
    assert row["metadata"] == {"tallystick_reference": key}
    assert row["description"] == "order 7"
    assert await keyed.look_up("charge", key=key) == (first,)


async def test_the_same_key_with_other_content_is_a_mismatch_and_charges_nothing(
    keyed: StripePayments,
) -> None:
    key = next(KEYS)
    first = await charge(keyed, key)
    with pytest.raises(KeyMismatch):
        await charge(keyed, key, amount_minor=2500)
    assert await keyed.look_up("charge", key=key) == (first,)


async def test_a_declined_card_is_declined_again_and_has_no_effect(keyed: StripePayments) -> None:
    key = next(KEYS)
    for _ in range(2):
        with pytest.raises(Declined) as no:
            await charge(keyed, key, token="tok_chargeDeclinedInsufficientFunds")
        assert no.value.code == "insufficient_funds"
    assert await keyed.look_up("charge", key=key) == ()


async def test_a_server_error_is_unknown_and_its_saved_copy_asks_for_a_look_up(
    keyed: StripePayments,
) -> None:
    key = next(KEYS)
    with pytest.raises(EffectUnknown) as first:
        await charge(keyed, key, token="tok_500")
    assert not isinstance(first.value, KeyMismatch)
    with pytest.raises(KeyMismatch):  # the same key never gets another answer: hazard 4
        await charge(keyed, key, token="tok_500")


async def test_a_rate_limit_means_that_nothing_happened(keyed: StripePayments) -> None:
    key = next(KEYS)
    with pytest.raises(Unavailable):
        await charge(keyed, key, token="tok_429")
    assert await keyed.look_up("charge", key=key) == ()


async def test_refunds_are_keyed_found_and_never_more_than_the_charge(
    keyed: StripePayments,
) -> None:
    key, undo = next(KEYS), next(KEYS)
    charged = await charge(keyed, key)
    refunded = await refund(keyed, undo, charged.id)
    assert await refund(keyed, undo, charged.id) == refunded
    assert (refunded.target, refunded.amount_minor) == (charged.id, 2400)
    assert await keyed.look_up("refund", key=undo) == (refunded,)
    with pytest.raises(Declined) as no:
        await refund(keyed, next(KEYS), charged.id)
    assert no.value.code == "charge_already_refunded"


async def test_a_refund_of_what_is_not_there_yet_is_not_a_no(keyed: StripePayments) -> None:
    with pytest.raises(Unavailable):
        await refund(keyed, next(KEYS), "ch_nobodyhasthis")


async def test_a_refused_api_key_says_nothing_about_the_charge(keeping_url: str) -> None:
    client = stripe_payments(api_key="sk_wrong_key", base_url=keeping_url, api=ChargeApi.CHARGES)
    with pytest.raises(Unavailable):
        await charge(client, next(KEYS))
    await client.aclose()


async def test_records_of_a_window_come_oldest_first_and_each_once(keyed: StripePayments) -> None:
    made: list[str] = []
    for _ in range(4):
        charged = await charge(keyed, next(KEYS))
        made += [charged.id, (await refund(keyed, next(KEYS), charged.id)).id]

    records = await every_record(keyed, limit=3)
    identifiers = [record.id for record in records]
    assert set(made) <= set(identifiers)
    assert len(set(identifiers)) == len(identifiers)
    assert [r.created_at for r in records] == sorted(r.created_at for r in records)
    assert {record.action for record in records} == {"charge", "refund"}
    assert "failed" not in {record.state for record in records}


async def test_a_connected_account_has_keys_and_books_of_its_own(
    keyed: StripePayments, keeping_url: str
) -> None:
    account = (await on_server(keeping_url, "/v1/accounts", type="custom", country="US"))["id"]
    theirs = stripe_payments(
        api_key=API_KEY, base_url=keeping_url, account=account, api=ChargeApi.CHARGES
    )
    assert (theirs.profile.account, theirs.profile.region) == (account, "test")
    key = next(KEYS)
    ours, other = await charge(keyed, key), await charge(theirs, key)
    assert ours.id != other.id
    assert await keyed.look_up("charge", key=key) == (ours,)
    assert await theirs.look_up("charge", key=key) == (other,)
    await theirs.aclose()


async def test_without_keys_a_resend_charges_twice_and_the_books_show_both(
    queryable: StripePayments, forgetting_url: str
) -> None:
    assert queryable.profile.guarantee is Guarantee.QUERYABLE
    key, token = next(KEYS), await card(forgetting_url)
    first, second = [await charge(queryable, key, token=token) for _ in range(2)]
    assert first.id.startswith("pi_")
    found = await queryable.look_up("charge", key=key)
    assert {record.id for record in found} == {first.id, second.id}


async def test_a_lost_answer_is_found_in_the_books_by_its_reference(
    queryable: StripePayments, forgetting_url: str
) -> None:
    key, token = next(KEYS), await card(forgetting_url)
    transport = LosingTransport()
    losing = StripePayments(
        api_key=API_KEY,
        base_url=forgetting_url,
        profile=PROFILE_WITHOUT_KEYS,
        filters_by_creation=False,
        transport=transport,
    )
    assert await losing.look_up("charge", key=key) == ()
    with pytest.raises(EffectUnknown):
        await charge(losing, key, token=token)
    [found] = await queryable.look_up("charge", key=key)
    assert (found.reference, found.amount_minor, found.state) == (key, 2400, "succeeded")
    [headers] = transport.headers
    assert "Idempotency-Key" not in headers
    await losing.aclose()


async def test_a_payment_intent_is_refunded_by_its_own_identifier(
    queryable: StripePayments, forgetting_url: str
) -> None:
    charged = await charge(queryable, next(KEYS), token=await card(forgetting_url))
    undo = next(KEYS)
    refunded = await refund(queryable, undo, charged.id)
    assert refunded.target == charged.id
    assert await queryable.look_up("refund", key=undo) == (refunded,)
    assert [r.id for r in await every_record(queryable, limit=1)] == [charged.id, refunded.id]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param("4000000000000341", "card_declined", id="the card is declined"),
        pytest.param("4000002500003155", "authentication_required", id="it asks its holder"),
    ],
)
async def test_a_payment_intent_that_moved_nothing_is_declined(
    queryable: StripePayments, forgetting_url: str, number: str, code: str
) -> None:
    key = next(KEYS)
    with pytest.raises(Declined) as no:
        await charge(queryable, key, token=await card(forgetting_url, number))
    assert no.value.code == code
    assert await queryable.look_up("charge", key=key) == ()
    assert await every_record(queryable, limit=10) == []


async def test_an_effect_beyond_the_first_page_of_the_list_is_found(
    queryable: StripePayments, forgetting_url: str
) -> None:
    token = await card(forgetting_url)
    keys = [next(KEYS) for _ in range(101)]
    records = [await charge(queryable, key, token=token) for key in keys]
    assert await queryable.look_up("charge", key=keys[-1]) == (records[-1],)
    assert len(await every_record(queryable, limit=50)) == 101


async def test_a_refused_connection_means_that_nothing_was_sent() -> None:
    with socket.socket() as taken:  # bound, and never listening: refused
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        client = StripePayments(api_key=API_KEY, base_url=url)
        with pytest.raises(Unavailable):
            await charge(client, next(KEYS))
        with pytest.raises(Unavailable):
            await client.look_up("charge", key=next(KEYS))
        await client.aclose()
