"""The simulated world itself: durable, and it lies exactly as told."""

import asyncio
import errno
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from operations.errors import EffectUnknown, Unavailable
from providers.payments import SimulatedPayments
from providers.simulated.server import open_world
from providers.simulated.vocabulary import WorldConfig
from support.partners import ACQUIRER, CARRIER, PAYMENTS, WAREHOUSE
from support.world import World, running_world

SETTLE_SECONDS = 5.0


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds, bounded."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while not await condition():  # noqa: ASYNC110 it happens in another process
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with running_world(tmp_path_factory.mktemp("world") / "ledger.sqlite") as world:
        yield world


@pytest_asyncio.fixture(loop_scope="session")
async def world(shared_world: World) -> World:
    await shared_world.clear_faults()
    await shared_world.wipe()
    await shared_world.temperament("consistent")
    return shared_world


@pytest_asyncio.fixture(loop_scope="session")
async def payments(world: World) -> AsyncGenerator[SimulatedPayments]:
    client = SimulatedPayments(world.urls["payments"])
    yield client
    await client.aclose()


async def charge(client: Any, key: str) -> Any:
    return await client.perform("charge", key=key, body=PAYMENTS.body(client, key))


async def test_acknowledged_effects_survive_a_kill_in_the_middle_of_a_storm(
    world: World, payments: SimulatedPayments
) -> None:
    acknowledged: dict[str, str] = {}
    enough = asyncio.Event()

    async def storm(lane: int) -> None:
        for number in range(10_000):
            key = f"{lane}-{number}"
            try:
                acknowledged[key] = (await charge(payments, key)).id
            except (EffectUnknown, Unavailable):
                return
            if len(acknowledged) >= 200:
                enough.set()

    storms = [asyncio.create_task(storm(lane)) for lane in range(8)]
    await enough.wait()
    await world.kill9()
    await asyncio.gather(*storms)
    addresses = dict(world.urls)
    await world.restart()

    assert world.urls == addresses
    kept = {row["key"]: row["id"] for row in await world.ledger("payments")}
    assert acknowledged.items() <= kept.items()
    first = next(iter(acknowledged))
    assert (await charge(payments, first)).id == acknowledged[first]


async def test_sigterm_ends_it_in_order(tmp_path: Path) -> None:
    world = World(tmp_path / "ledger.sqlite")
    async with world:
        await world.faults("mail", "late_commit")
    assert await world.stop() == 0


async def test_a_refused_port_closes_and_the_same_one_reopens(
    world: World, payments: SimulatedPayments
) -> None:
    await charge(payments, "before")
    await world.faults("payments", "refuse_connection", seconds=0.3)
    with pytest.raises(Unavailable):
        await charge(payments, "during")

    async def reopened() -> bool:
        try:
            await charge(payments, "after")
        except Unavailable:
            return False
        return True

    await until(reopened)
    assert [row["key"] for row in await world.ledger("payments")] == ["before", "after"]
    assert await world.armed() == []


async def test_a_refusing_port_listens_to_nobody_and_the_others_do(world: World) -> None:
    await world.faults("payments", "refuse_connection", seconds=60)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", urlsplit(world.urls["payments"]).port)
    client = CARRIER.open(world.urls["carrier"])
    await client.perform("book", key="k", body=CARRIER.body(client, "k"))
    await client.aclose()


async def test_clearing_the_faults_reopens_at_once(
    world: World, payments: SimulatedPayments
) -> None:
    await world.faults("payments", "refuse_connection", seconds=60)
    await world.clear_faults()
    await charge(payments, "after")


@pytest.mark.parametrize("mode", ["drop_before_commit", "commit_then_drop", "late_commit"])
async def test_a_dropped_connection_is_reset_not_closed(world: World, mode: str) -> None:
    await world.faults("mail", mode, seconds=60)
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(world.urls["mail"]).port)
    body = b'{"to":"a@b","subject":"","text":"","message_id":"<k@x>"}'
    writer.write(b"POST /messages HTTP/1.1\r\nHost: mail\r\nContent-Length: %d\r\n\r\n" % len(body))
    writer.write(body)
    with pytest.raises(ConnectionResetError) as reset:
        await reader.read()
    assert reset.value.errno == errno.ECONNRESET
    writer.close()


async def test_a_fault_is_used_up_after_its_requests(
    world: World, payments: SimulatedPayments
) -> None:
    fault = await world.faults("payments", "drop_before_commit", operation="charge", times=2)
    for left in (1, 0):
        with pytest.raises(EffectUnknown):
            await charge(payments, "k")
        assert [(one["id"], one["left"]) for one in await world.armed()] == [(fault["id"], left)][
            :left
        ]
    await charge(payments, "k")


async def test_faults_are_met_in_the_order_they_were_armed_and_only_by_their_operation(
    world: World, payments: SimulatedPayments
) -> None:
    await world.faults("payments", "commit_then_drop", operation="refund")
    await world.faults("payments", "rate_limit", operation="charge", seconds=7)
    await world.faults("payments", "commit_then_500")
    with pytest.raises(Unavailable) as limited:
        await charge(payments, "k")
    assert limited.value.retry_after_seconds == 7
    with pytest.raises(EffectUnknown):
        await charge(payments, "k")
    await charge(payments, "k")
    assert [one["operation"] for one in await world.armed()] == ["refund"]


async def test_a_lagging_record_is_in_the_ledger_before_it_can_be_looked_up(
    world: World, payments: SimulatedPayments
) -> None:
    await world.faults("payments", "lookup_lag", seconds=0.4)
    await world.faults("payments", "commit_then_drop")
    with pytest.raises(EffectUnknown):
        await charge(payments, "k")

    now = datetime.now(UTC)
    window = {"since": now - timedelta(minutes=1), "until": now + timedelta(minutes=1)}
    assert len(await world.ledger("payments")) == 1
    assert await payments.look_up("charge", key="k") == ()
    assert (await payments.list_records(**window, cursor=None, limit=9)).records == ()

    async def visible() -> bool:
        return len(await payments.look_up("charge", key="k")) == 1

    await until(visible)
    assert len((await payments.list_records(**window, cursor=None, limit=9)).records) == 1


async def test_a_late_commit_comes_after_the_connection_is_lost(world: World) -> None:
    client = WAREHOUSE.open(world.urls["warehouse"])
    await world.faults("warehouse", "late_commit", seconds=0.4)
    with pytest.raises(EffectUnknown):
        await client.perform("reserve", key="k", body=WAREHOUSE.body(client, "k"))
    assert await client.look_up("reserve", key="k") == ()

    async def committed() -> bool:
        return len(await client.look_up("reserve", key="k")) == 1

    await until(committed)
    await client.aclose()


async def test_a_key_is_in_progress_until_its_late_commit(
    world: World, payments: SimulatedPayments
) -> None:
    await world.faults("payments", "late_commit", seconds=0.4)
    with pytest.raises(EffectUnknown):
        await charge(payments, "k")
    with pytest.raises(EffectUnknown, match="409 in_progress"):
        await charge(payments, "k")

    async def answered() -> bool:
        try:
            await charge(payments, "k")
        except EffectUnknown:
            return False
        return True

    await until(answered)
    assert len(await world.ledger("payments")) == 1


async def test_a_lagging_acquirer_shows_a_sale_two_seconds_late(world: World) -> None:
    await world.temperament("lagging")
    client = ACQUIRER.open(world.urls["acquirer"])
    sale = await client.perform("charge", key="k", body=ACQUIRER.body(client, "k"))
    assert await client.look_up("charge", key="k") == ()

    async def visible() -> bool:
        return len(await client.look_up("charge", key="k")) == 1

    await until(visible)
    assert datetime.now(UTC) - sale.created_at >= timedelta(seconds=2)
    await client.aclose()


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"provider": "bank", "mode": "decline"},
        {"provider": "payments", "mode": "explode"},
        {"provider": "payments", "mode": "decline", "times": 0},
        {"provider": "payments", "mode": "slow", "seconds": -1},
        {"provider": "payments", "mode": "slow", "seconds": 3_601},
        {"provider": "payments", "mode": "decline", "operation": "book"},
        {"provider": "mail", "mode": "slow", "operation": "look_up"},
        {"provider": "mail", "mode": "refuse_connection", "operation": "send"},
        {"provider": "mail", "mode": "slow", "colour": "red"},
        [],
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused(world: World, order: Any) -> None:
    status, document = await world.admin("POST", "/admin/faults", order)
    assert (status, document["error"]["code"]) == (422, "invalid_request")
    assert await world.armed() == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/admin/ledger?provider=bank", None, 422),
        ("GET", "/admin/nothing", None, 404),
        ("POST", "/admin/temperament", {"provider": "mail", "temperament": "blind"}, 422),
        ("POST", "/admin/ledger", {"provider": "mail", "records": [{"operation": "book"}]}, 422),
        ("POST", "/admin/ledger", {"provider": "mail", "records": []}, 422),
    ],
)
async def test_the_admin_interface_says_what_is_wrong(
    world: World, method: str, path: str, body: Any, status: int
) -> None:
    answered, document = await world.admin(method, path, body)
    assert answered == status
    assert document["error"]["message"]


async def test_ten_thousand_records_can_be_seeded_and_read_back(world: World) -> None:
    records = [
        {"operation": "charge", "reference": f"r{n}", "amount": n + 1, "currency": "EUR"}
        for n in range(10_000)
    ]
    ids = await world.seed("payments", records)
    rows = await world.ledger("payments")
    assert [row["id"] for row in rows] == ids
    assert sum(row["amount"] for row in rows) == 50_005_000

    _, page = await world.admin(
        "GET", f"/admin/ledger?provider=payments&after={rows[9]['seq']}&limit=2"
    )
    assert page == rows[10:12]
    status, _ = await world.admin(
        "POST",
        "/admin/ledger",
        {"provider": "payments", "records": [{"operation": "charge", "id": ids[0]}]},
    )
    assert status == 409


async def test_a_key_is_forgotten_after_its_lifetime(tmp_path: Path) -> None:
    config = WorldConfig(ledger=tmp_path / "ledger.sqlite", key_lifetime_seconds=0.3)
    async with open_world(config) as urls:
        client = SimulatedPayments(urls["payments"])
        first = await charge(client, "k")

        async def is_another() -> bool:
            return (await charge(client, "k")).id != first.id

        await until(is_another)
        await client.aclose()


async def test_a_configured_token_is_checked_and_its_lack_is_no_refusal(tmp_path: Path) -> None:
    config = WorldConfig(ledger=tmp_path / "ledger.sqlite", bearer_token="right")
    async with open_world(config) as urls:
        for token in (None, "wrong"):
            stranger = SimulatedPayments(urls["payments"], token=token)
            with pytest.raises(Unavailable, match="bearer token"):
                await charge(stranger, "k")
            await stranger.aclose()
        friend = SimulatedPayments(urls["payments"], token="right")
        await charge(friend, "k")
        await friend.aclose()


async def test_a_taken_port_is_said_in_one_sentence(world: World, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "providers.simulated",
        f"--ledger={tmp_path / 'ledger.sqlite'}",
        f"--mail-port={urlsplit(world.urls['mail']).port}",
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(15):
        _, complaint = await process.communicate()
    assert process.returncode == 1
    assert complaint.decode().startswith("The simulated providers cannot start: ")
    assert complaint.count(b"\n") == 1
