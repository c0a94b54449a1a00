"""A run that is not the first of its operation: what earlier histories did is known, or found out.

Terminated and recovered, or reset: the ledger tells what was recorded; what was not, is looked up.
"""

import uuid

import pytest

from operations.contracts import Decision, Progress
from operations.declaration import SagaOperation
from operations.keys import Purpose
from operations.orders_place import ORDERS_PLACE
from operations.states import ClaimState, EffectState, Outcome, Verdict
from runtime.settings import Settings
from runtime.wiring import now
from support.interrupting import HELD_SECONDS, committed, net, recovered, taken, until
from support.saga_bench import Begun, SagaBench, saga_bench
from support.service import ORDER
from support.stepping import (
    OVER_ACQUIRER,
    OVER_PAYMENTS,
    OVER_RETURNS,
    OVER_STORES,
    OVER_WAREHOUSE,
    UNDELIVERABLE,
)
from support.world import World


async def test_a_cancel_that_was_taken_is_honoured_by_the_run_that_recovers(
    bench: SagaBench, world: World
) -> None:
    begun = await bench.begin(OVER_PAYMENTS, {"gated": True})
    await bench.ask(begun, "arrive")
    assert await taken(bench, begun)
    await begun.handle.terminate("before it came to honour the cancel")
    claim = await recovered(bench, begun)
    assert claim.outcome is Outcome.CANCELLED
    assert claim.receipt is not None
    assert b"Cancelled by op: changed my mind" in claim.receipt.body
    assert [row["operation"] for row in await world.ledger("payments")] == ["charge", "refund"]


async def test_a_cancel_that_is_recorded_does_not_hide_what_is_being_sent(
    bench: SagaBench, world: World
) -> None:
    """What the run knows is behind the ledger then: the row of the send is committed already."""
    await world.faults("warehouse", "slow", operation="reserve", seconds=HELD_SECONDS)
    begun = await bench.begin(OVER_WAREHOUSE, {})
    await committed(world, "warehouse", "reserve")
    assert await taken(bench, begun)
    await begun.handle.terminate("before the answer came")
    assert (await bench.effect(begun, "first")).state is EffectState.SENT
    assert (await recovered(bench, begun)).outcome is Outcome.CANCELLED
    assert await net(world) == {"reserve": 0, "charge": 0, "book": 0}


async def test_a_cancel_that_came_too_late_is_not_honoured_by_the_run_that_recovers(
    bench: SagaBench, world: World
) -> None:
    await world.faults("carrier", "slow", operation="book", seconds=HELD_SECONDS)
    begun = await bench.begin(ORDERS_PLACE, ORDER, by_rows=True)
    await committed(world, "carrier", "book")
    assert await taken(bench, begun)
    await begun.handle.terminate("while the pivot's answer is on its way")
    assert (await recovered(bench, begun)).outcome is Outcome.SUCCEEDED
    assert await net(world) == {"reserve": 1, "charge": 1, "book": 1}


@pytest.mark.parametrize("how", ["reset", "terminated"])
async def test_a_cancel_finds_a_pivot_that_an_earlier_history_has_passed(
    quick: Settings, tenant: str, world: World, how: str
) -> None:
    """The pivot has no undo, and nothing of it stands in the ledger."""
    async with saga_bench(quick, tenant=tenant, with_worker=False) as bench:
        async with saga_bench(quick, tenant=tenant):
            begun = await bench.begin(OVER_PAYMENTS, {"held": True})
            await bench.ask(begun, "arrive")
        if how == "reset":
            await bench.reset(begun, to=0)
        else:
            await begun.handle.terminate("its parcel has left")
            assert await bench.relay_all() == 1
        again = bench.begun(begun.claim)
        await again.handle.cancel()
        async with saga_bench(quick, tenant=tenant):
            await bench.ask(again, "open")
            assert (await again.ended()).outcome is Outcome.SUCCEEDED
    assert await net(world) == {"reserve": 0, "charge": 1, "book": 1}


@pytest.mark.parametrize(
    ("operation", "gate", "by_rows"),
    [
        (OVER_RETURNS, "gated", False),
        (OVER_STORES, "gated", False),
        (OVER_RETURNS, "held", False),
        (OVER_RETURNS, "held", True),
    ],
    ids=["a_plain_step", "a_recorded_step", "its_receipt", "the_receipt_of_a_recovered_run"],
)
async def test_a_reset_run_goes_no_further_than_the_undoing_of_its_predecessor(
    bench: SagaBench, world: World, operation: SagaOperation, gate: str, by_rows: bool
) -> None:
    """Its history ends before the cancel that its predecessor honoured, and it is not told again.
    What it does next, a step or its receipt, is the first thing by which it can learn of that."""
    begun = await bench.begin(operation, {gate: True}, by_rows=by_rows)
    for _ in range(2):  # the second time, certainly in a task of its own
        await bench.ask(begun, "arrive")
    at_the_gate = len(await bench.tasks(begun)) - 1
    await begun.handle.cancel()
    await bench.ask(begun, "arrive")  # in a task that has the cancel: "open" comes after it
    await world.faults("payments", "slow", operation="refund", seconds=HELD_SECONDS)
    await bench.ask(begun, "open")
    await committed(world, "payments", "refund")
    await bench.reset(begun, to=at_the_gate, reapply=False)
    again = bench.begun(begun.claim)
    await bench.ask(again, "open")
    assert (await again.ended()).outcome is Outcome.CANCELLED
    assert (await bench.now(begun)).outcome is Outcome.CANCELLED
    assert await net(world) == {"reserve": 0, "charge": 0, "book": 0}
    if gate == "gated":
        assert await world.ledger(operation.steps[1].provider) == []


@pytest.mark.parametrize("purpose", [Purpose.ACTION, Purpose.UNDO])
async def test_what_an_operator_gave_up_on_is_not_asked_about_again(
    quick: Settings, tenant: str, world: World, purpose: Purpose
) -> None:
    """The run was lost after the verdict was recorded, and before the operation had ended."""
    blind = quick.model_copy(update={"acquirer_blind": True})
    async with saga_bench(blind, tenant=tenant) as bench:
        if purpose is Purpose.ACTION:
            await world.faults("acquirer", "commit_then_drop", operation="charge")
            begun = await bench.begin(OVER_ACQUIRER, {})
        else:
            await world.faults("payments", "decline", operation="refund")
            begun = await bench.begin(OVER_PAYMENTS, {"address": UNDELIVERABLE})

        async def is_parked() -> bool:
            return (await bench.now(begun)).state is ClaimState.PARKED

        await until(is_parked)
        await begun.handle.terminate("before it could end")
        for verdict in (Verdict.ABANDON, Verdict.RETRY, Verdict.ABANDON):
            await _record(bench, begun, Decision(step="first", purpose=purpose, verdict=verdict))
            known = await bench.ledger.progress.recall(begun.claim.id)
            assert len(known.abandoned) == (verdict is Verdict.ABANDON), "the last one counts"
        assert (await recovered(bench, begun)).outcome is Outcome.ABANDONED
    provider = "acquirer" if purpose is Purpose.ACTION else "payments"
    assert [row["operation"] for row in await world.ledger(provider)] == ["charge"]


async def _record(bench: SagaBench, begun: Begun, decision: Decision) -> None:
    """As the run would have done it."""
    parked = Progress(
        claim_id=begun.claim.id,
        tenant=bench.tenant,
        state=ClaimState.PARKED,
        decision=decision.model_copy(update={"evidence": uuid.uuid4().hex}),
    )
    assert await bench.ledger.progress.record(parked, now=now())
