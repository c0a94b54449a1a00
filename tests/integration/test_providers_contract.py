"""Every client against the real process: what each answer, and each lost one, tells us."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from operations.errors import Declined, EffectUnknown, KeyMismatch, ProviderError, Unavailable
from operations.guarantees import Guarantee
from providers.acquirer import PROFILE_BLIND
from providers.catalogue import simulated_providers
from providers.contract import Provider
from providers.simulated_client import SimulatedClient
from support.partners import (
    ACQUIRER,
    CARRIER,
    KEYED,
    MAIL,
    PARTNERS,
    PAYMENTS,
    READABLE,
    UNKEYED,
    WAREHOUSE,
    Partner,
)
from support.world import World, running_world

KEY = "c0ffee" * 6


def every(partners: tuple[Partner, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("partner", partners, ids=lambda partner: partner.name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    directory: Path = tmp_path_factory.mktemp("world")
    async with running_world(directory / "ledger.sqlite") as world:
        yield world


@pytest_asyncio.fixture(loop_scope="session")
async def world(shared_world: World) -> World:
    await shared_world.clear_faults()
    await shared_world.wipe()
    await shared_world.temperament("consistent")
    return shared_world


@pytest_asyncio.fixture(loop_scope="session")
async def client(world: World, partner: Partner) -> AsyncGenerator[SimulatedClient]:
    opened = partner.open(world.urls[partner.name])
    yield opened
    await opened.aclose()


@every(PARTNERS)
async def test_a_confirmed_effect_is_the_one_in_the_ledger(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    provider: Provider = client
    record = await provider.perform(partner.action, key=KEY, body=partner.body(client, KEY))

    [row] = await world.ledger(partner.name)
    assert (record.id, record.action, record.reference) == (row["id"], row["operation"], KEY)
    assert record.state == row["state"] == partner.state
    assert record.created_at == datetime.fromisoformat(row["created_at"])
    assert (record.amount_minor, record.currency) == (row["amount"], row["currency"])
    assert row["amount"] == partner.request.get("amount_minor")
    assert row["reference"] == KEY
    assert row["key"] == (KEY if partner in KEYED else None)


@every(READABLE)
async def test_a_documented_refusal_is_declined_and_leaves_nothing(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    body = partner.body(client, KEY, **(partner.refused or {}))
    with pytest.raises(Declined) as refused:
        await client.perform(partner.action, key=KEY, body=body)

    assert refused.value.code == partner.refusal_code
    assert await world.ledger(partner.name) == []


@every(PARTNERS)
async def test_a_body_the_provider_cannot_read_is_declined(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    with pytest.raises(Declined) as refused:
        await client.perform(partner.action, key=KEY, body=b'{"reference":')

    assert refused.value.code == "invalid_request"
    assert await world.ledger(partner.name) == []


@every(KEYED)
async def test_a_keyed_provider_answers_the_same_key_with_the_first_effect(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    body = partner.body(client, KEY)
    first = await client.perform(partner.action, key=KEY, body=body)
    assert await client.perform(partner.action, key=KEY, body=body) == first
    assert len(await world.ledger(partner.name)) == 1


@every(UNKEYED)
async def test_any_other_provider_makes_two_effects_of_two_requests(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    body = partner.body(client, KEY)
    first = await client.perform(partner.action, key=KEY, body=body)
    assert (await client.perform(partner.action, key=KEY, body=body)).id != first.id
    assert [row["reference"] for row in await world.ledger(partner.name)] == [KEY, KEY]


@every(KEYED)
async def test_other_bytes_under_a_key_are_a_mismatch_and_have_no_effect(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    await client.perform(partner.action, key=KEY, body=partner.body(client, KEY))
    with pytest.raises(KeyMismatch):
        await client.perform(partner.action, key=KEY, body=partner.body(client, "another"))
    assert len(await world.ledger(partner.name)) == 1


@every(KEYED)
async def test_a_refusal_is_remembered_under_its_key(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    await world.faults(partner.name, "decline")
    body = partner.body(client, KEY)
    for _ in range(2):  # the fault is used up by the first
        with pytest.raises(Declined):
            await client.perform(partner.action, key=KEY, body=body)
    assert await world.ledger(partner.name) == []


@every(PARTNERS)
@pytest.mark.parametrize(
    ("mode", "raised", "effects"),
    [
        ("decline", Declined, 0),
        ("refuse_connection", Unavailable, 0),
        ("rate_limit", Unavailable, 0),
        ("drop_before_commit", EffectUnknown, 0),
        ("late_commit", EffectUnknown, 0),
        ("commit_then_drop", EffectUnknown, 1),
        ("commit_then_500", EffectUnknown, 1),
    ],
)
@pytest.mark.parametrize("connection", ["new", "kept alive"])
async def test_a_failed_call_says_no_more_than_is_known(  # noqa: PLR0917 pytest passes by name
    world: World,
    client: SimulatedClient,
    partner: Partner,
    mode: str,
    raised: type[ProviderError],
    effects: int,
    connection: str,
) -> None:
    if connection == "kept alive":
        await client.perform(partner.action, key="first", body=partner.body(client, "first"))
    await world.faults(partner.name, mode, seconds=30)

    with pytest.raises(raised) as failed:
        await client.perform(partner.action, key=KEY, body=partner.body(client, KEY))

    assert type(failed.value) is raised
    committed = [row for row in await world.ledger(partner.name) if row["reference"] == KEY]
    assert len(committed) == effects
    assert failed.value.retry_after_seconds == (30 if mode == "rate_limit" else None)


@every(PARTNERS)
async def test_an_answer_after_the_deadline_leaves_the_effect_unknown(
    world: World, partner: Partner
) -> None:
    await world.faults(partner.name, "slow", seconds=30)
    hasty = partner.open(world.urls[partner.name]).profile.model_copy(
        update={"send_timeout_seconds": 0.15}
    )
    client = partner.open(world.urls[partner.name], profile=hasty)
    with pytest.raises(EffectUnknown):
        await client.perform(partner.action, key=KEY, body=partner.body(client, KEY))
    await client.aclose()
    assert len(await world.ledger(partner.name)) == 1


@every(KEYED)
@pytest.mark.parametrize("mode", ["drop_before_commit", "commit_then_drop", "commit_then_500"])
async def test_the_same_key_again_settles_an_unknown_effect(
    world: World, client: SimulatedClient, partner: Partner, mode: str
) -> None:
    await world.faults(partner.name, mode)
    body = partner.body(client, KEY)
    with pytest.raises(EffectUnknown):
        await client.perform(partner.action, key=KEY, body=body)

    record = await client.perform(partner.action, key=KEY, body=body)
    assert [row["id"] for row in await world.ledger(partner.name)] == [record.id]


@every(KEYED)
async def test_a_forgotten_key_makes_a_second_effect(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    await world.faults(partner.name, "key_forgotten")
    body = partner.body(client, KEY)
    first = await client.perform(partner.action, key=KEY, body=body)
    second = await client.perform(partner.action, key=KEY, body=body)
    assert first.id != second.id
    assert await client.perform(partner.action, key=KEY, body=body) == second
    assert len(await world.ledger(partner.name)) == 2


@every(READABLE)
async def test_an_undo_is_an_effect_of_its_own_and_moves_what_it_undoes(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    assert partner.undo is not None
    done = await client.perform(partner.action, key=KEY, body=partner.body(client, KEY))
    undone = await client.perform(
        partner.undo, key="undo", body=partner.undo_body(client, "undo", done.id)
    )

    assert (undone.action, undone.target) == (partner.undo, done.id)
    first, second = await world.ledger(partner.name)
    assert (first["state"], second["state"]) == (partner.undone_state, "succeeded")
    assert (second["operation"], second["target"]) == (partner.undo, done.id)
    assert await client.look_up(partner.undo, key="undo") == (undone,)


@every((PAYMENTS, ACQUIRER))
async def test_refunds_never_exceed_the_charge(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    charge = await client.perform("charge", key=KEY, body=partner.body(client, KEY))

    def refund(key: str, amount_minor: int, currency: str = "EUR") -> bytes:
        return client.freeze(
            "refund",
            {
                "reference": key,
                "charge_id": charge.id,
                "amount_minor": amount_minor,
                "currency": currency,
            },
        )

    await client.perform("refund", key="r1", body=refund("r1", 2000))
    assert (await client.look_up("charge", key=KEY))[0].state == "partially_refunded"
    for key, body in (("r2", refund("r2", 401)), ("r3", refund("r3", 1, "SEK"))):
        with pytest.raises(Declined) as refused:
            await client.perform("refund", key=key, body=body)
        assert refused.value.code == "refund_exceeds_charge"
    await client.perform("refund", key="r4", body=refund("r4", 400))
    assert (await client.look_up("charge", key=KEY))[0].state == "refunded"


@every((WAREHOUSE, CARRIER))
async def test_undoing_twice_undoes_once(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    assert partner.undo is not None
    done = await client.perform(partner.action, key=KEY, body=partner.body(client, KEY))
    undone = [
        await client.perform(partner.undo, key=key, body=partner.undo_body(client, key, done.id))
        for key in ("u1", "u2")
    ]
    assert undone[0] == undone[1]
    assert (undone[1].target, undone[1].reference) == (done.id, "u1")
    assert len(await world.ledger(partner.name, partner.undo)) == 1


@every(READABLE)
async def test_an_undo_of_what_is_not_there_yet_is_not_a_no(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    assert partner.undo is not None
    with pytest.raises(Unavailable):
        await client.perform(partner.undo, key="u", body=partner.undo_body(client, "u", "absent"))


@every(READABLE)
async def test_a_look_up_finds_what_was_committed_and_only_that(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    assert await client.look_up(partner.action, key=KEY) == ()
    record = await client.perform(partner.action, key=KEY, body=partner.body(client, KEY))
    await client.perform(partner.action, key="other", body=partner.body(client, "other"))
    assert await client.look_up(partner.action, key=KEY) == (record,)


@every(READABLE)
@pytest.mark.parametrize(
    "mode",
    [
        "refuse_connection",
        "drop_before_commit",
        "commit_then_drop",
        "commit_then_500",
        "late_commit",
        "rate_limit",
    ],
)
async def test_books_that_cannot_be_read_say_nothing(
    world: World, client: SimulatedClient, partner: Partner, mode: str
) -> None:
    operation = "*" if mode == "refuse_connection" else "look_up"
    await world.faults(partner.name, mode, operation=operation, times=2, seconds=30)
    with pytest.raises(Unavailable):
        await client.look_up(partner.action, key=KEY)


@every(READABLE)
async def test_pages_show_every_record_of_the_window_once(
    world: World, client: SimulatedClient, partner: Partner
) -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    seeds = [
        {
            "operation": partner.action,
            "id": f"seed-{number}",
            "reference": f"ref-{number}",
            "created_at": (start + timedelta(seconds=number // 2)).isoformat(),
        }
        for number in range(10)
    ]
    await world.seed(partner.name, seeds)

    since, until = start + timedelta(seconds=1), start + timedelta(seconds=4)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.list_records(since=since, until=until, cursor=cursor, limit=4)
        seen += [record.id for record in page.records]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [f"seed-{number}" for number in range(2, 8)]


@every((MAIL,))
async def test_mail_has_no_books(world: World, client: SimulatedClient, partner: Partner) -> None:
    assert client.profile.can_look_up is False
    now = datetime.now(UTC)
    with pytest.raises(Unavailable):
        await client.look_up("send", key=KEY)
    with pytest.raises(Unavailable):
        await client.list_records(since=now, until=now, cursor=None, limit=1)


async def test_the_catalogue_reaches_every_provider_under_its_own_name(world: World) -> None:
    for blind in (False, True):
        providers = simulated_providers(world.urls, acquirer_blind=blind)
        assert set(providers) == {partner.name for partner in PARTNERS}
        for partner in PARTNERS:
            provider = providers[partner.name]
            key = f"{partner.name}-{blind}"
            body = provider.freeze(partner.action, {**partner.request, "reference": key})
            await provider.perform(partner.action, key=key, body=body)
            assert provider.profile.provider == partner.name
            assert (await world.ledger(partner.name))[-1]["reference"] == key
            await provider.aclose()
        assert providers["acquirer"].profile.can_look_up is not blind


async def test_a_blind_acquirer_shows_nothing_but_still_sells(world: World) -> None:
    await world.temperament("blind")
    trusting = ACQUIRER.open(world.urls["acquirer"])
    blind = ACQUIRER.open(world.urls["acquirer"], profile=PROFILE_BLIND)
    await blind.perform("charge", key=KEY, body=ACQUIRER.body(blind, KEY))
    for client in (trusting, blind):
        with pytest.raises(Unavailable):
            await client.look_up("charge", key=KEY)
        await client.aclose()
    assert blind.profile.guarantee is Guarantee.BLIND
    assert len(await world.ledger("acquirer")) == 1
