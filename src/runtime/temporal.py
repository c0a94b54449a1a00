"""Temporal as the executor: connect, start runs so that there is only one, and ask them things."""

import asyncio
from datetime import timedelta

from pydantic import TypeAdapter
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    Priority,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from api.service import ExecutorUnavailable, UpdateRefused
from ledger.claims import Claim
from operations import search
from operations.contracts import CANCEL_UPDATE, RESOLVE_UPDATE, CancelRequest, Decision, Run
from operations.failpoints import Failpoint, fail_at
from operations.guarantees import ProviderProfile
from operations.keys import workflow_id
from runtime.codec import data_converter
from runtime.settings import Settings

START_TIMEOUT = timedelta(seconds=2)
"""A client is waiting: rather 202 than a long wait for a server that is away."""

UPDATE_TIMEOUT = timedelta(seconds=10)

TASK_TIMEOUT = timedelta(seconds=5)
"""How soon another worker takes over when one dies between two calls (Temporal's default: 10 s)."""

_TENANT = SearchAttributeKey.for_keyword(search.OPERATION_TENANT)
_OPERATION = SearchAttributeKey.for_keyword(search.OPERATION_NAME)
_KEY = SearchAttributeKey.for_keyword(search.OPERATION_KEY)

_PROFILES = TypeAdapter(dict[str, ProviderProfile])


async def connect(settings: Settings, *, lazy: bool = True) -> Client:
    """A client of the configured server; lazily, it need not be up yet."""
    key, keys = settings.temporal_api_key, settings.payload_keys
    return await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        api_key=None if key is None else key.get_secret_value(),
        tls=settings.temporal_tls,
        data_converter=data_converter(None if keys is None else keys.get_secret_value()),
        lazy=lazy,
    )


class TemporalExecutor:
    """Runs of operations. One claim has one workflow ID, and so one run at any time."""

    def __init__(self, client: Client, *, task_queue: str, eager: bool = False) -> None:
        """`eager`: a worker in this process takes the first task without a round trip."""
        self._client = client
        self._task_queue = task_queue
        self._eager = eager

    async def start(self, claim: Claim) -> None:
        """Make sure that there is or was a run, never a second one. Raises ExecutorUnavailable."""
        await self.has_run(claim)

    async def has_run(self, claim: Claim) -> bool:
        """Start a run unless there is or was one. False when one was, and has closed.

        Only who has just made the claim knows that no run was before: Temporal forgets closed runs
        when their retention ends, or all of them when it is restored. Any other begins with what
        the ledger remembers.

        Raises ExecutorUnavailable.
        """
        try:
            await self._start(
                claim, WorkflowIDReusePolicy.REJECT_DUPLICATE, recovered=not claim.fresh
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def recover(self, claim: Claim) -> None:
        """Start a run anew, for an open claim whose run has closed. Raises ExecutorUnavailable."""
        await self._start(claim, WorkflowIDReusePolicy.ALLOW_DUPLICATE, recovered=True)

    async def cancel(self, claim: Claim, request: CancelRequest) -> None:
        """Ask the run to cancel. Raises UpdateRefused, ExecutorUnavailable."""
        await self._update(claim, CANCEL_UPDATE, request)

    async def resolve(self, claim: Claim, decision: Decision) -> None:
        """Give the run a verdict. Raises UpdateRefused, ExecutorUnavailable."""
        await self._update(claim, RESOLVE_UPDATE, decision)

    async def is_reachable(self) -> bool:
        """Whether the server answers within a second."""
        try:
            return await self._client.service_client.check_health(timeout=timedelta(seconds=1))
        except (RPCError, RuntimeError):
            return False

    async def _start(self, claim: Claim, reuse: WorkflowIDReusePolicy, *, recovered: bool) -> None:
        fail_at(Failpoint.RUN_STARTING)
        try:
            # The client tries again after each failed call: its own bound is for one of them.
            async with asyncio.timeout(START_TIMEOUT.total_seconds()):
                await self._client.start_workflow(
                    claim.operation,
                    run_of(claim, recovered=recovered),
                    id=workflow_id(operation=claim.operation, tenant=claim.tenant, key=claim.key),
                    task_queue=self._task_queue,
                    id_reuse_policy=reuse,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    task_timeout=TASK_TIMEOUT,
                    static_summary=f"{claim.operation} for {claim.tenant}",
                    static_details=_details(claim),
                    search_attributes=_attributes(claim),
                    priority=Priority(fairness_key=claim.tenant),
                    request_eager_start=self._eager,
                    rpc_timeout=START_TIMEOUT,
                )
        except (RPCError, RuntimeError, TimeoutError) as error:
            raise ExecutorUnavailable(f"Temporal did not start the run: {error!r}") from error
        fail_at(Failpoint.RUN_STARTED)

    async def _update(self, claim: Claim, name: str, argument: object) -> None:
        run = workflow_id(operation=claim.operation, tenant=claim.tenant, key=claim.key)
        handle = self._client.get_workflow_handle(run)
        fail_at(Failpoint.UPDATE_SENDING)
        try:
            await handle.execute_update(  # pyright: ignore[reportUnknownMemberType]
                name, argument, rpc_timeout=UPDATE_TIMEOUT
            )
            fail_at(Failpoint.UPDATE_SENT)
        except WorkflowUpdateFailedError as error:
            why = error.cause.message if isinstance(error.cause, FailureError) else error.cause
            raise UpdateRefused(str(why)) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            raise ExecutorUnavailable("No worker took the update in time") from error
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise UpdateRefused("The operation has no open run at the moment") from error
            raise ExecutorUnavailable(f"Temporal did not take the update: {error}") from error
        except RuntimeError as error:
            raise ExecutorUnavailable(f"Temporal cannot be reached: {error}") from error


def run_of(claim: Claim, *, recovered: bool) -> Run:
    """What the workflow is told: exactly what the claim row holds."""
    assert claim.request is not None
    assert claim.profiles is not None
    return Run(
        claim_id=claim.id,
        tenant=claim.tenant,
        operation=claim.operation,
        key=claim.key,
        accepted_at=claim.created_at,
        request_json=claim.request,
        profiles=_PROFILES.validate_json(claim.profiles),
        recovered=recovered,
        tells_trouble_only=True,
    )


def _details(claim: Claim) -> str:
    return (
        f"**{claim.operation}** of tenant **{claim.tenant}**, idempotency key `{claim.key}`.\n\n"
        f"Claim {claim.id}, accepted {claim.created_at:%Y-%m-%d %H:%M:%S} UTC. "
        "The receipt stands in the ledger; this run performs the steps."
    )


def _attributes(claim: Claim) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(_TENANT, claim.tenant),
            SearchAttributePair(_OPERATION, claim.operation),
            SearchAttributePair(_KEY, claim.key),
        ]
    )
