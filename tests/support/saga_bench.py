"""A worker on real parts and the ledger beside it, without the API: for tests of the saga itself.

An operation is claimed and started exactly as the API does it.
"""

import json
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import WorkflowRunner

from ledger.claims import Claim, Intent
from ledger.ledger import Ledger
from operations.contracts import EffectRecord, RunEnd
from operations.declaration import SagaOperation
from operations.keys import Purpose, workflow_id
from providers.contract import Provider
from runtime import temporal, wiring
from runtime.relay import Relay
from runtime.settings import Settings
from runtime.temporal import TemporalExecutor
from runtime.worker import make_worker
from support.stepping import STEPPING
from workflows.registry import OPERATION_WORKFLOWS


@dataclass(frozen=True)
class Begun:
    """An operation that was claimed, and its run."""

    claim: Claim
    handle: WorkflowHandle[Any, Any]

    @property
    def workflow_id(self) -> str:
        """The run's workflow ID."""
        return self.handle.id

    async def ended(self) -> RunEnd:
        """How the run ended."""
        return RunEnd.model_validate(await self.handle.result())


@dataclass(frozen=True)
class SagaBench:
    """What a test of the saga needs."""

    settings: Settings
    tenant: str
    ledger: Ledger
    temporal: Client
    executor: TemporalExecutor
    providers: Mapping[str, Provider]

    @property
    def relay(self) -> Relay:
        """A relay that is not running: call `relay_once`."""
        return Relay(self.ledger, self.executor, now=wiring.now)

    async def claim(
        self,
        operation: SagaOperation,
        request: Mapping[str, Any],
        *,
        profiles: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Claim:
        """Claim a new key. `profiles` changes what is pinned of the providers named in it."""
        pinned = json.loads(wiring.profiles_of(operation, self.providers))
        for name, changes in (profiles or {}).items():
            pinned[name] |= changes
        return await self.ledger.claims.claim(
            Intent(
                tenant=self.tenant,
                operation=operation.name,
                key=uuid.uuid4().hex,
                fingerprint=b"\0" * 32,
                request=json.dumps(request),
                profiles=json.dumps(pinned),
            ),
            now=wiring.now(),
        )

    async def begin(
        self,
        operation: SagaOperation,
        request: Mapping[str, Any],
        *,
        profiles: Mapping[str, Mapping[str, Any]] | None = None,
        by_rows: bool = False,
    ) -> Begun:
        """Claim a new key and start the run; `by_rows`: as somebody who did not make the claim,
        so that keyed steps, too, are regular activities with a row committed first."""
        claim = await self.claim(operation, request, profiles=profiles)
        await self.executor.start(replace(claim, fresh=not by_rows))
        return self.begun(claim)

    def begun(self, claim: Claim) -> Begun:
        """The claim's run, whichever is the latest."""
        run = workflow_id(operation=claim.operation, tenant=claim.tenant, key=claim.key)
        return Begun(claim, self.temporal.get_workflow_handle(run))

    async def ask(self, begun: Begun, update: str, argument: object = None) -> None:
        """Send an update to the run and wait until it is done."""
        arguments = [] if argument is None else [argument]
        await begun.handle.execute_update(  # pyright: ignore[reportUnknownMemberType]
            update, args=arguments
        )

    async def tasks(self, begun: Begun) -> list[int]:
        """The events with which the run's workflow tasks were completed."""
        history = await begun.handle.fetch_history()
        completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        return [event.event_id for event in history.events if event.event_type == completed]

    async def reset(self, begun: Begun, *, to: int, reapply: bool = True) -> None:
        """Reset the run to its `to`-th completed workflow task; -1 is the last. `reapply`: tell the
        new run again what people told the old one after that."""
        history = await begun.handle.fetch_history()
        tasks = await self.tasks(begun)
        kept = ResetReapplyType.RESET_REAPPLY_TYPE_ALL_ELIGIBLE
        await self.temporal.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=self.temporal.namespace,
                workflow_execution=WorkflowExecution(
                    workflow_id=begun.workflow_id, run_id=history.run_id or ""
                ),
                reason="a test",
                workflow_task_finish_event_id=tasks[to],
                request_id=uuid.uuid4().hex,
                reset_reapply_type=kept if reapply else ResetReapplyType.RESET_REAPPLY_TYPE_NONE,
            )
        )

    async def relay_all(self) -> int:
        """Let the relay look at every open claim now; returns how many there were."""
        await self.ledger.database._pool.execute(
            "UPDATE claims SET check_at = now() WHERE outcome IS NULL"
        )
        return await self.relay.relay_once()

    async def now(self, begun: Begun) -> Claim:
        """The claim as it is now."""
        [claim] = await self.ledger.claims.read_many([begun.claim.id])
        return claim

    async def effects(self, begun: Begun) -> tuple[EffectRecord, ...]:
        """All that the ledger knows of an operation's effects."""
        return (await self.ledger.progress.recall(begun.claim.id)).effects

    async def effect(
        self, begun: Begun, step: str, purpose: Purpose = Purpose.ACTION
    ) -> EffectRecord:
        """One of them, the latest."""
        found = await self.effects(begun)
        return [row for row in found if (row.step, row.purpose) == (step, purpose)][-1]


@asynccontextmanager
async def saga_bench(
    settings: Settings,
    *,
    tenant: str,
    runner: WorkflowRunner | None = None,
    workflows: Sequence[type] = (*OPERATION_WORKFLOWS, *STEPPING),
    with_worker: bool = True,
    announce: Callable[[int], None] | None = None,
) -> AsyncGenerator[SagaBench]:
    """A bench with a worker, unless told otherwise; its relay is the test's to call."""
    async with AsyncExitStack() as resources:
        client = await temporal.connect(settings, lazy=False)
        ledger = await resources.enter_async_context(wiring.open_ledger(settings, name="bench"))
        providers = await resources.enter_async_context(wiring.open_providers(settings))
        if with_worker:
            await resources.enter_async_context(
                make_worker(
                    client,
                    settings=settings,
                    ledger=ledger,
                    providers=providers,
                    announce=announce or ledger.announcer.announce,
                    workflows=workflows,
                    runner=runner,
                )
            )
        executor = TemporalExecutor(client, task_queue=settings.temporal_task_queue)
        yield SagaBench(settings, tenant, ledger, client, executor, providers)
