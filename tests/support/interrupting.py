"""What tests do to runs from outside, and how they see what is left at the providers."""

import asyncio
from collections.abc import Awaitable, Callable

from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from ledger.claims import Claim
from operations.contracts import CANCEL_UPDATE, CancelRequest
from support.saga_bench import Begun, SagaBench
from support.world import World

HELD_SECONDS = 0.5
"""How long a provider holds back the answer to a request that it has committed."""

FORWARD = [("warehouse", "reserve"), ("payments", "charge"), ("carrier", "book")]
UNDOES = {"charge": "refund", "reserve": "release", "book": "cancel"}

CANCEL = CancelRequest(requested_by="op", reason="changed my mind")


async def net(world: World) -> dict[str, int]:
    """What is left standing of each action at the providers."""
    left: dict[str, int] = {}
    for provider, action in FORWARD:
        books = await world.ledger(provider)
        done = sum(row["operation"] == action for row in books)
        undone = sum(row["operation"] == UNDOES[action] for row in books)
        left[action] = done - undone
    return left


async def committed(world: World, provider: str, operation: str) -> None:
    """Wait until the provider has committed the call."""

    async def holds() -> bool:
        return bool(await world.ledger(provider, operation))

    await until(holds)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what only the books of somebody else can tell."""
    async with asyncio.timeout(20):
        while not await holds():  # noqa: ASYNC110 - books tell nobody when they change
            await asyncio.sleep(0.01)


async def taken(bench: SagaBench, begun: Begun) -> bool:
    """Ask for a cancel; whether it was taken. It is not when it comes too late."""
    try:
        await bench.ask(begun, CANCEL_UPDATE, CANCEL)
    except (WorkflowUpdateFailedError, RPCError):
        return False
    return True


async def recovered(bench: SagaBench, begun: Begun) -> Claim:
    """Let the relay find the claim whose run is gone; the claim as it then ended."""
    assert await bench.relay_all() == 1
    await bench.begun(begun.claim).ended()
    return await bench.now(begun)
