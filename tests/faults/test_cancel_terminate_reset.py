"""Whatever is done to a run from outside, the providers' books net to zero or to one.

Cancelled at every step boundary, during each undo and twice; terminated and recovered by the relay;
reset to an earlier point before and after its end.
"""

import asyncio
import contextlib

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from operations.contracts import CANCEL_UPDATE
from operations.keys import Purpose
from operations.orders_place import ORDERS_PLACE
from operations.payments_charge import PAYMENTS_CHARGE
from operations.states import ClaimState, EffectState, Outcome
from runtime.settings import Settings
from support.interrupting import (
    CANCEL,
    FORWARD,
    HELD_SECONDS,
    committed,
    net,
    recovered,
    taken,
    until,
)
from support.saga_bench import Begun, SagaBench, saga_bench
from support.service import CHARGE, ORDER
from support.stepping import OVER_PAYMENTS, OVER_WAREHOUSE, UNDELIVERABLE
from support.world import World

BACKWARD = [("payments", "refund"), ("warehouse", "release")]
RETRY_UNDO = {"step": "first", "purpose": "undo", "verdict": "retry", "evidence": "asked them"}


async def takes(bench: SagaBench, begun: Begun, verdict: dict[str, str]) -> bool:
    """Whether the run takes a verdict now."""
    try:
        await bench.ask(begun, "resolve", verdict)
    except WorkflowUpdateFailedError:
        return False
    return True


async def is_unknown(bench: SagaBench, begun: Begun) -> bool:
    """Whether the ledger shows an unknown effect."""
    return any(row.state is EffectState.UNKNOWN for row in await bench.effects(begun))


async def is_parked(bench: SagaBench, begun: Begun) -> bool:
    """Whether the operation waits for a person."""
    return (await bench.now(begun)).state is ClaimState.PARKED


async def ask_to_cancel(bench: SagaBench, begun: Begun, *, how: str) -> None:
    """By our update, by Temporal's own cancel, or by both, twice."""
    if how in {"update", "both"}:
        await taken(bench, begun)
    if how in {"native", "both"}:
        await begun.handle.cancel()
    if how == "both":
        with contextlib.suppress(RPCError):  # it may have ended by now
            await taken(bench, begun)
            await begun.handle.cancel()


@pytest.mark.parametrize("how", ["update", "native", "both"])
@pytest.mark.parametrize(("provider", "operation"), FORWARD, ids=str)
async def test_a_cancel_during_a_step_leaves_nothing_or_all_standing(
    bench: SagaBench, world: World, provider: str, operation: str, how: str
) -> None:
    await world.faults(provider, "slow", operation=operation, seconds=HELD_SECONDS)
    begun = await bench.begin(ORDERS_PLACE, ORDER, by_rows=True)
    await committed(world, provider, operation)
    await ask_to_cancel(bench, begun, how=how)
    end = await begun.ended()
    if operation == "book":  # the pivot: it had happened, so there was only forward
        assert end.outcome is Outcome.SUCCEEDED
        assert await net(world) == {"reserve": 1, "charge": 1, "book": 1}
    else:
        assert end.outcome is Outcome.CANCELLED
        assert await net(world) == {"reserve": 0, "charge": 0, "book": 0}


async def test_a_cancel_that_is_taken_is_kept_and_one_that_is_not_changes_nothing(
    bench: SagaBench, world: World
) -> None:
    """Fast steps follow each other within one workflow task: a cancel comes before or after."""
    await world.faults("payments", "slow", operation="charge", seconds=HELD_SECONDS)
    begun = await bench.begin(ORDERS_PLACE, ORDER)
    await committed(world, "payments", "charge")
    kept = Outcome.CANCELLED if await taken(bench, begun) else Outcome.SUCCEEDED
    assert (await begun.ended()).outcome is kept
    left = 0 if kept is Outcome.CANCELLED else 1
    assert await net(world) == {"reserve": left, "charge": left, "book": left}


@pytest.mark.parametrize("mode", ["drop_before_commit", "commit_then_drop", "late_commit"])
async def test_a_cancel_during_an_unknown_step_undoes_what_is_found(
    bench: SagaBench, world: World, mode: str
) -> None:
    await world.faults("payments", mode, operation="charge", seconds=0.8)
    await world.faults("payments", "rate_limit", operation="charge", seconds=1)
    begun = await bench.begin(ORDERS_PLACE, ORDER)
    await until(lambda: is_unknown(bench, begun))
    await bench.ask(begun, CANCEL_UPDATE, CANCEL)
    assert (await begun.ended()).outcome is Outcome.CANCELLED
    assert await net(world) == {"reserve": 0, "charge": 0, "book": 0}


@pytest.mark.parametrize("how", ["native", "both"])
@pytest.mark.parametrize(("provider", "operation"), BACKWARD, ids=str)
async def test_a_cancel_during_an_undo_stops_no_undo(
    bench: SagaBench, world: World, provider: str, operation: str, how: str
) -> None:
    await world.faults("carrier", "decline", operation="book")
    await world.faults(provider, "slow", operation=operation, seconds=HELD_SECONDS)
    begun = await bench.begin(ORDERS_PLACE, ORDER)
    await committed(world, provider, operation)
    await ask_to_cancel(bench, begun, how=how)
    assert (await begun.ended()).outcome is Outcome.COMPENSATED
    assert await net(world) == {"reserve": 0, "charge": 0, "book": 0}


async def test_a_cancel_before_the_first_task_leaves_nothing_standing(
    settings: Settings, tenant: str, world: World
) -> None:
    async with saga_bench(settings, tenant=tenant, with_worker=False) as bench:
        begun = await bench.begin(ORDERS_PLACE, ORDER)
        await begun.handle.cancel()
        async with saga_bench(settings, tenant=tenant):
            assert (await begun.ended()).outcome is Outcome.CANCELLED
    assert await net(world) == {"reserve": 0, "charge": 0, "book": 0}


async def test_a_cancel_taken_during_the_only_step_is_kept(bench: SagaBench, world: World) -> None:
    await world.faults("payments", "slow", operation="charge", seconds=HELD_SECONDS)
    begun = await bench.begin(PAYMENTS_CHARGE, CHARGE, by_rows=True)
    await committed(world, "payments", "charge")
    await bench.ask(begun, CANCEL_UPDATE, CANCEL)
    assert (await begun.ended()).outcome is Outcome.CANCELLED
    assert [row["operation"] for row in await world.ledger("payments")] == ["charge", "refund"]


@pytest.mark.parametrize(
    ("provider", "operation"), [*FORWARD, ("mail", "send"), *BACKWARD], ids=str
)
async def test_a_terminated_run_is_recovered_to_one_effect_or_none(
    bench: SagaBench, world: World, provider: str, operation: str
) -> None:
    backward = (provider, operation) in BACKWARD
    if backward:
        await world.faults("carrier", "decline", operation="book")
    await world.faults(provider, "slow", operation=operation, seconds=HELD_SECONDS)
    begun = await bench.begin(ORDERS_PLACE, ORDER)
    await committed(world, provider, operation)
    await begun.handle.terminate("by a person who did not know")
    claim = await recovered(bench, begun)
    left = 0 if backward else 1
    assert claim.outcome is (Outcome.COMPENSATED if backward else Outcome.SUCCEEDED)
    assert await net(world) == {"reserve": left, "charge": left, "book": left}


async def test_a_run_recovered_on_a_refused_connection_still_finds_the_charge_it_must_undo(
    bench: SagaBench, world: World
) -> None:
    await world.faults("payments", "slow", operation="charge", seconds=HELD_SECONDS)
    begun = await bench.begin(PAYMENTS_CHARGE, CHARGE)
    await committed(world, "payments", "charge")
    await begun.handle.terminate("its charge stands without a row")
    await world.faults("payments", "refuse_connection", seconds=1.5)
    assert await bench.relay_all() == 1
    await until(lambda: is_unknown(bench, begun))
    again = bench.begun(begun.claim)
    await bench.ask(again, CANCEL_UPDATE, CANCEL)
    assert (await again.ended()).outcome is Outcome.CANCELLED
    assert [row["operation"] for row in await world.ledger("payments")] == ["charge", "refund"]


async def test_two_relays_recover_a_run_once(bench: SagaBench, world: World) -> None:
    begun = [await bench.begin(PAYMENTS_CHARGE, CHARGE) for _ in range(3)]
    for one in begun:
        await one.ended()
    claims = [await bench.claim(PAYMENTS_CHARGE, CHARGE) for _ in range(5)]
    await bench.ledger.database._pool.execute(
        "UPDATE claims SET check_at = now() WHERE state = 'accepted'"
    )
    taken = await asyncio.gather(*(bench.relay.relay_once() for _ in range(4)))
    assert sum(taken) == len(claims)
    for claim in claims:
        await bench.begun(claim).ended()
    assert len(await world.ledger("payments", "charge")) == len(begun) + len(claims)


@pytest.mark.parametrize("to", [0, -1])
@pytest.mark.parametrize("declined", [False, True])
async def test_a_reset_after_the_end_changes_nothing(
    bench: SagaBench, world: World, to: int, *, declined: bool
) -> None:
    if declined:
        await world.faults("carrier", "decline", operation="book")
    begun = await bench.begin(ORDERS_PLACE, ORDER)
    first = await begun.ended()
    books = {name: await world.ledger(name) for name in ("payments", "warehouse", "carrier")}
    letters = await world.ledger("mail")
    await bench.reset(begun, to=to)
    again = bench.begun(begun.claim)
    assert await again.ended() == first
    assert books == {name: await world.ledger(name) for name in books}
    assert letters == await world.ledger("mail")
    assert (await bench.now(begun)).outcome is first.outcome


@pytest.mark.parametrize(("provider", "operation"), [*FORWARD, *BACKWARD], ids=str)
async def test_a_reset_in_the_middle_has_no_second_effect(
    bench: SagaBench, world: World, provider: str, operation: str
) -> None:
    backward = (provider, operation) in BACKWARD
    address = {**ORDER, "address": UNDELIVERABLE} if backward else ORDER
    await world.faults(provider, "slow", operation=operation, seconds=HELD_SECONDS)
    begun = await bench.begin(ORDERS_PLACE, address)
    await committed(world, provider, operation)
    await bench.reset(begun, to=0)
    end = await bench.begun(begun.claim).ended()
    left = 0 if backward else 1
    assert end.outcome is (Outcome.COMPENSATED if backward else Outcome.SUCCEEDED)
    assert await net(world) == {"reserve": left, "charge": left, "book": left}
    charges = await world.ledger("payments", "charge")
    assert len(charges) == (0 if (operation, left) == ("reserve", 0) else 1)


async def test_a_reset_run_that_is_cancelled_undoes_what_its_predecessor_did(
    bench: SagaBench, world: World
) -> None:
    begun = await bench.begin(OVER_PAYMENTS, {"gated": True})
    await bench.ask(begun, "arrive")
    await world.faults("payments", "refuse_connection", seconds=1.5)
    await bench.reset(begun, to=0)
    again = bench.begun(begun.claim)
    await bench.ask(again, CANCEL_UPDATE, CANCEL)
    await bench.ask(again, "open")
    assert (await again.ended()).outcome is Outcome.CANCELLED
    assert [row["operation"] for row in await world.ledger("payments")] == ["charge", "refund"]


@pytest.mark.parametrize("how", ["native", "update"])
async def test_a_reset_run_that_is_cancelled_at_once_undoes_what_its_predecessor_did(
    quick: Settings, tenant: str, world: World, how: str
) -> None:
    """The new run has asked no provider when it is cancelled, and nothing stands in the ledger."""
    async with saga_bench(quick, tenant=tenant, with_worker=False) as bench:
        async with saga_bench(quick, tenant=tenant):
            begun = await bench.begin(OVER_PAYMENTS, {"gated": True})
            await bench.ask(begun, "arrive")
        await bench.reset(begun, to=0)
        again = bench.begun(begun.claim)
        if how == "native":
            await again.handle.cancel()
        asked = asyncio.create_task(taken(bench, again)) if how == "update" else None
        async with saga_bench(quick, tenant=tenant):
            if asked is not None:
                assert await asked
            await bench.ask(again, "open")
            assert (await again.ended()).outcome is Outcome.CANCELLED
    assert [row["operation"] for row in await world.ledger("payments")] == ["charge", "refund"]


async def test_a_parked_undo_waits_for_ever_and_is_recovered_parked(
    bench: SagaBench, world: World
) -> None:
    await world.faults("warehouse", "decline", operation="release", times=5)
    begun = await bench.begin(OVER_WAREHOUSE, {"address": UNDELIVERABLE})
    await until(lambda: is_parked(bench, begun))
    await begun.handle.terminate("by mistake")
    assert await bench.relay_all() == 1
    again = bench.begun(begun.claim)
    undo = await bench.effect(begun, "first", Purpose.UNDO)
    assert ((await bench.now(begun)).state, undo.state) == ("parked", "parked")
    await world.clear_faults()
    await until(lambda: takes(bench, again, RETRY_UNDO))  # the new run parks it again first
    assert (await again.ended()).outcome is Outcome.COMPENSATED
    assert len(await world.ledger("warehouse", "release")) == 1
