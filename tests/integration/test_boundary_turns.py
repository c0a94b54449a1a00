"""Starts that wait for their turn, over HTTP: nobody waits longer than asked, nothing is lost, and
the relay leaves them alone for as long as this process lives."""

import asyncio

import pytest
from temporalio.service import RPCError, RPCStatusCode

from api import starting, turns
from api.turns import Turns
from operations.states import ClaimState
from runtime.settings import Settings
from support.boundary import completed, run_sql
from support.service import CHARGE, RunningService, running_service

OPERATION = "payments.charge"


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may have one run open, until it ends."""
    monkeypatch.setattr(turns, "OPEN_SECONDS", 600.0)
    monkeypatch.setattr(starting, "KEEP_SECONDS", 0.1)

    def one(_turns: Turns) -> int:
        return 1

    monkeypatch.setattr(Turns, "may_have_open", one)


async def has_run(service: RunningService, key: str) -> bool:
    """Whether Temporal knows a run of the operation."""
    try:
        await service.temporal.get_workflow_handle(service.workflow_id(OPERATION, key)).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


@pytest.mark.usefixtures("one_at_a_time")
async def test_a_start_that_waits_holds_up_no_answer_and_happens_in_its_turn(
    settings: Settings, tenant: str
) -> None:
    at_once = {"Prefer": "respond-async"}
    async with running_service(settings, tenant=tenant, with_worker=False) as service:
        first = await service.submit(OPERATION, "first", CHARGE, headers=at_once)
        assert await has_run(service, "first")

        async with asyncio.timeout(10):
            second, third = await asyncio.gather(
                service.submit(OPERATION, "second", CHARGE, headers=at_once),
                service.submit(OPERATION, "third", CHARGE, wait=2),
            )
        assert [answer.status_code for answer in (first, second, third)] == [202, 202, 202]
        assert third.headers["preference-applied"] == "wait=2"
        assert not await has_run(service, "second")
        await until_kept(service, "second")

        claim = await service.ledger.claims.read(tenant=tenant, operation=OPERATION, key="first")
        assert claim is not None
        await completed(service, claim)
        async with asyncio.timeout(10):
            while not await has_run(service, "second"):  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(0.05)
        assert not await has_run(service, "third")
        assert await state_of(service, "third") is ClaimState.ACCEPTED


async def state_of(service: RunningService, key: str) -> ClaimState:
    """Of the operation's claim."""
    claim = await service.ledger.claims.read(tenant=service.tenant, operation=OPERATION, key=key)
    assert claim is not None
    return claim.state


async def until_kept(service: RunningService, key: str) -> None:
    """Return when the relay's next look at the claim has been put off."""
    at = "SELECT check_at FROM claims WHERE tenant = $1 AND key = $2"
    before = await run_sql(service, at, service.tenant, key)
    async with asyncio.timeout(10):
        while await run_sql(service, at, service.tenant, key) == before:  # noqa: ASYNC110 - a row
            await asyncio.sleep(0.05)
