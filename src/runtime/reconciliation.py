"""Reconciliation on Temporal: runs, a schedule per provider, and what keeps both in being."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
    WorkflowExecutionStatus,
)
from temporalio.common import (
    Priority,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.remedies import Told
from api.service import ExecutorUnavailable, UpdateRefused
from ledger.database import StorageUnavailable
from ledger.ledger import Ledger
from ledger.reconciliation_runs import RUN_SECONDS_MAX, ProviderSchedule, RunRow
from operations import search
from operations.contracts import Decision
from operations.halves import OurEffect
from operations.keys import workflow_id
from operations.reconciliation import RECONCILIATION_RUN, ReconciliationOrder
from runtime.temporal import TemporalExecutor

RUN_SHARE = 0.9
"""A scheduled run may take this share of its interval, so that none hangs into the next."""

JITTER_SHARE = 0.1
JITTER_MAX = timedelta(seconds=60)
"""Providers are not all asked at the same second, nor by every deployment."""

CATCH_UP_MIN = timedelta(seconds=10)
"""Temporal's own least. Missed runs are not made up for: the next one covers their windows."""

KEEP_SECONDS = 5.0
START_GRACE = timedelta(seconds=5)
SYNC_ROUNDS = 60
"""Every five minutes the schedules are compared again: a Temporal that was wiped gets them back."""

RPC_TIMEOUT = timedelta(seconds=5)
_BACKGROUND = Priority(priority_key=5)
_OPERATION = SearchAttributeKey.for_keyword(search.OPERATION_NAME)
_KEY = SearchAttributeKey.for_keyword(search.OPERATION_KEY)
_DEFAULT_QUEUE = "tallystick"

_log = structlog.get_logger(__name__)


class TemporalReconciler:
    """Starts runs and sets schedules. Every method raises ExecutorUnavailable."""

    def __init__(
        self, client: Client, *, task_queue: str, providers: Iterable[str], every_seconds: int
    ) -> None:
        """Reconcile `providers`, each every `every_seconds` unless a person says otherwise; 0 is
        no schedule."""
        self._client = client
        self._task_queue = task_queue
        self.providers = frozenset(providers)
        self.every_seconds = every_seconds

    def workflow_id(self, provider: str, tenant: str, key: str) -> str:
        """The workflow ID of a run that an operator of `tenant` asked for."""
        return workflow_id(operation=f"reconciliation.{provider}", tenant=tenant, key=key)

    async def start(self, run: RunRow) -> None:
        """Make sure that a run has, or had, its workflow."""
        try:
            await self._client.start_workflow(
                RECONCILIATION_RUN,
                ReconciliationOrder(provider=run.provider, run_id=run.id),
                id=run.workflow_id,
                task_queue=self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                execution_timeout=timedelta(seconds=RUN_SECONDS_MAX),
                static_summary=f"reconcile {run.provider}" + (" (dry run)" * run.dry_run),
                static_details=f"Records of {run.since:%F %T} to {run.until:%F %T} UTC.",
                search_attributes=_attributes(run.provider),
                priority=_BACKGROUND,
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            return
        except (RPCError, RuntimeError) as error:
            raise ExecutorUnavailable(f"Temporal did not start the run: {error}") from error

    async def apply_schedule(self, schedule: ProviderSchedule) -> None:
        """Make Temporal's schedule what ours says."""
        wanted = self._schedule(schedule)
        try:
            await self._create_or_update(self.schedule_id(schedule.provider), wanted)
        except (RPCError, RuntimeError) as error:
            raise ExecutorUnavailable(f"Temporal did not take the schedule: {error}") from error

    async def next_times(self, provider: str) -> tuple[datetime, ...]:
        """When the next scheduled runs are due; none when there is no schedule."""
        handle = self._client.get_schedule_handle(self.schedule_id(provider))
        try:
            found = await handle.describe(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return ()
            raise ExecutorUnavailable(f"Temporal does not answer: {error}") from error
        except RuntimeError as error:
            raise ExecutorUnavailable(f"Temporal does not answer: {error}") from error
        return tuple(found.info.next_action_times[:3])

    def schedule_id(self, provider: str) -> str:
        """The schedule's ID. A second deployment in one namespace has its own task queue."""
        suffix = "" if self._task_queue == _DEFAULT_QUEUE else f"@{self._task_queue}"
        return f"reconciliation/{provider}{suffix}"

    async def _create_or_update(self, schedule_id: str, wanted: Schedule) -> None:
        try:
            await self._client.create_schedule(schedule_id, wanted, rpc_timeout=RPC_TIMEOUT)
        except ScheduleAlreadyRunningError:

            def replaced(_now: ScheduleUpdateInput) -> ScheduleUpdate:
                return ScheduleUpdate(schedule=wanted)

            handle = self._client.get_schedule_handle(schedule_id)
            await handle.update(replaced, rpc_timeout=RPC_TIMEOUT)

    def _schedule(self, wanted: ProviderSchedule) -> Schedule:
        seconds = wanted.every_seconds or self.every_seconds
        every = timedelta(seconds=seconds)
        return Schedule(
            action=ScheduleActionStartWorkflow(
                RECONCILIATION_RUN,
                ReconciliationOrder(provider=wanted.provider, every_seconds=seconds),
                id=f"reconciliation.{wanted.provider}/scheduled",
                task_queue=self._task_queue,
                execution_timeout=every * RUN_SHARE,
                static_summary=f"reconcile {wanted.provider}, every {every}",
                typed_search_attributes=_attributes(wanted.provider),
                priority=_BACKGROUND,
            ),
            spec=ScheduleSpec(
                intervals=[ScheduleIntervalSpec(every=every)],
                jitter=min(every * JITTER_SHARE, JITTER_MAX),
            ),
            policy=SchedulePolicy(
                overlap=ScheduleOverlapPolicy.SKIP,
                catchup_window=max(every / 2, CATCH_UP_MIN),
            ),
            state=ScheduleState(
                note=f"{wanted.provider}: our half and theirs, compared", paused=wanted.paused
            ),
        )


@dataclass(frozen=True, slots=True)
class RunTeller:
    """Tells operations what reconciliation has found out: an `activities.remedies.Teller`."""

    ledger: Ledger
    executor: TemporalExecutor
    client: Client

    async def tell(self, effect: OurEffect, decision: Decision) -> Told:
        """Give the operation's run a verdict, as an operator would."""
        try:
            claims = await self.ledger.claims.read_many([effect.claim_id])
            if not claims:
                return Told.NO_RUN
            await self.executor.resolve(claims[0], decision)
        except UpdateRefused:
            return Told.REFUSED if await self._has_open_run(effect) else Told.NO_RUN
        except (ExecutorUnavailable, StorageUnavailable):
            return Told.UNREACHABLE
        return Told.TAKEN

    async def _has_open_run(self, effect: OurEffect) -> bool:
        run = workflow_id(
            operation=effect.operation, tenant=effect.tenant, key=effect.operation_key
        )
        try:
            found = await self.client.get_workflow_handle(run).describe(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            return error.status is not RPCStatusCode.NOT_FOUND
        return found.status is WorkflowExecutionStatus.RUNNING


@dataclass(frozen=True, slots=True)
class ReconciliationKeeper:
    """A worker's loop: runs that were asked for are started, lost ones are failed, and schedules
    are what the ledger says."""

    ledger: Ledger
    reconciler: TemporalReconciler
    now: Callable[[], datetime]

    async def run(self) -> None:
        """Keep until cancelled. Outages are waited out."""
        rounds = 0
        while True:
            try:
                if rounds % SYNC_ROUNDS == 0:
                    await self.sync_schedules()
                await self.keep_runs()
                rounds += 1
            except (StorageUnavailable, ExecutorUnavailable) as error:
                _log.warning("reconciliation.keeper_waits", reason=str(error))
            await asyncio.sleep(KEEP_SECONDS)

    async def sync_schedules(self) -> None:
        """Make the schedules, those that nobody has set with the interval of the settings."""
        for provider in sorted(self.reconciler.providers):
            wanted = await self.ledger.reconciliation.runs.schedule(provider)
            if wanted.every_seconds or self.reconciler.every_seconds:
                await self.reconciler.apply_schedule(wanted)

    async def keep_runs(self) -> None:
        """Start what was asked for while Temporal was away, and give up what ran out of time."""
        runs = self.ledger.reconciliation.runs
        now = self.now()
        for lost in await runs.give_up_lost(now=now):
            _log.warning("reconciliation.run_lost", run=lost.id, provider=lost.provider)
        for waiting in await runs.never_started(before=now - START_GRACE):
            await self.reconciler.start(waiting)


def _attributes(provider: str) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(_OPERATION, "reconciliation"),
            SearchAttributePair(_KEY, provider),
        ]
    )
