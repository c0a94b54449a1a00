"""A worker with another account, or in another region, sends nothing: its keys would begin anew."""

from typing import Any

import pytest

from operations.declaration import SagaOperation
from operations.states import ClaimState, EffectState, Outcome
from runtime.settings import Settings
from support.interrupting import until
from support.saga_bench import saga_bench
from support.stepping import OVER_PAYMENTS, OVER_WAREHOUSE, UNDELIVERABLE
from support.world import World

PINNED = {"account": "acct_eu", "region": "eu"}


def pinned_to(settings: Settings, provider: str) -> Settings:
    """The settings of a worker that has the account."""
    profiles: dict[Any, Any] = {**settings.provider_profiles}
    profiles[provider] = profiles[provider].model_copy(update=PINNED)
    return settings.model_copy(update={"provider_profiles": profiles})


@pytest.mark.parametrize("operation", [OVER_PAYMENTS, OVER_WAREHOUSE], ids=["keyed", "queryable"])
async def test_only_a_worker_with_the_pinned_account_sends(
    quick: Settings, tenant: str, world: World, operation: SagaOperation
) -> None:
    step = operation.steps[0]
    provider = step.provider
    async with saga_bench(quick, tenant=tenant, with_worker=False) as bench:
        async with saga_bench(quick, tenant=tenant):
            begun = await bench.begin(
                operation, {"address": UNDELIVERABLE}, profiles={provider: PINNED}
            )

            async def says_why() -> bool:
                return any(
                    "no client for" in (row.reason or "") for row in await bench.effects(begun)
                )

            await until(says_why)
            row = await bench.effect(begun, "first")
            assert row.state in {EffectState.PLANNED, EffectState.UNKNOWN}
            assert row.reason is not None
            assert "account 'acct_eu', region 'eu'" in row.reason
            assert (await bench.now(begun)).state is ClaimState.ACCEPTED
        assert await world.ledger(provider) == []
        async with saga_bench(pinned_to(quick, provider), tenant=tenant):
            assert (await begun.ended()).outcome is Outcome.COMPENSATED
        assert step.undo is not None
        calls = [done["operation"] for done in await world.ledger(provider)]
        assert calls == [step.action, step.undo.action]
