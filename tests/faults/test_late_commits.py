"""A provider commits a request after its own horizon, when the request was sent again already.

Both stand under one reference, so the saga finds them before it ends: one is kept, or none.
"""

import pytest

from operations.declaration import SagaOperation
from operations.states import Outcome
from support.interrupting import taken
from support.saga_bench import SagaBench
from support.stepping import OVER_ACQUIRER, OVER_WAREHOUSE, UNDELIVERABLE
from support.world import World

SHORT = {
    "send_timeout_seconds": 1.0,
    "lookup_horizon_seconds": 1.5,
    "lookup_interval_seconds": 0.2,
}


@pytest.mark.parametrize("end", [Outcome.SUCCEEDED, Outcome.COMPENSATED, Outcome.CANCELLED])
@pytest.mark.parametrize("operation", [OVER_WAREHOUSE, OVER_ACQUIRER], ids=["stock", "money"])
async def test_what_comes_late_is_taken_back(
    bench: SagaBench, world: World, operation: SagaOperation, end: Outcome
) -> None:
    step = operation.steps[0]
    assert step.undo is not None
    await world.faults(step.provider, "drop_before_commit", operation=step.action)
    request = {"gated": True}
    if end is Outcome.COMPENSATED:
        request |= {"address": UNDELIVERABLE}
    begun = await bench.begin(operation, request, profiles={step.provider: SHORT})
    await bench.ask(begun, "arrive")  # twice absent, sent again, confirmed
    [kept] = await world.ledger(step.provider, step.action)
    late = {name: kept[name] for name in ("operation", "reference", "amount", "currency", "state")}
    [came_late] = await world.seed(step.provider, [late])
    if end is Outcome.CANCELLED:
        assert await taken(bench, begun)
    await bench.ask(begun, "open")
    assert (await begun.ended()).outcome is end
    records = {row["id"]: row["state"] for row in await world.ledger(step.provider, step.action)}
    undos = await world.ledger(step.provider, step.undo.action)
    assert len(records) == 2, "sent once more, and no more than that"
    assert records[came_late] != late["state"], "it was taken back"
    assert (records[kept["id"]] == late["state"]) is (end is Outcome.SUCCEEDED)
    assert len(undos) == (1 if end is Outcome.SUCCEEDED else 2)
