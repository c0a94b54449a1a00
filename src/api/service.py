"""What the routes work with. The composition root fills it in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from starlette.requests import Request

from api.authentication import KeyRing
from api.limits import FirstRequests, Streams
from api.starting import Joins, Starts
from api.waiting import Waiters
from ledger.claims import Claim
from ledger.ledger import Ledger
from ledger.reconciliation_runs import ProviderSchedule, RunRow
from operations.contracts import CancelRequest, Decision
from operations.declaration import Operation

BODY_BYTES_MAX = 256 * 1024
"""Much more than an operation's request needs, and little enough to hold a thousand of them."""


class ExecutorUnavailable(Exception):
    """Temporal cannot be reached now."""


class UpdateRefused(Exception):
    """The run does not take this: `args[0]` says why."""


class Executor(Protocol):
    """What the API asks of Temporal."""

    async def start(self, claim: Claim) -> None:
        """Make sure that a run of the claim exists. Raises ExecutorUnavailable."""
        ...

    async def cancel(self, claim: Claim, request: CancelRequest) -> None:
        """Ask the run to cancel. Raises UpdateRefused, ExecutorUnavailable."""
        ...

    async def resolve(self, claim: Claim, decision: Decision) -> None:
        """Give the run a verdict. Raises UpdateRefused, ExecutorUnavailable."""
        ...

    async def is_reachable(self) -> bool:
        """Whether Temporal answers now."""
        ...


class Reconciler(Protocol):
    """What the API asks of Temporal about reconciliation."""

    providers: frozenset[str]
    """Providers whose records can be listed."""
    every_seconds: int
    """The interval of a provider that nobody has set one for; 0 is none."""

    def workflow_id(self, provider: str, tenant: str, key: str) -> str:
        """The workflow ID of a run that an operator of `tenant` asked for."""
        ...

    async def start(self, run: RunRow) -> None:
        """Make sure that a run has, or had, its workflow. Raises ExecutorUnavailable."""
        ...

    async def apply_schedule(self, schedule: ProviderSchedule) -> None:
        """Make Temporal's schedule what ours says. Raises ExecutorUnavailable."""
        ...

    async def next_times(self, provider: str) -> tuple[datetime, ...]:
        """When the next scheduled runs are due. Raises ExecutorUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What a deployment chooses about the front door."""

    body_bytes_max: int = BODY_BYTES_MAX
    cors_origins: tuple[str, ...] = ()
    temporal_ui_url: str | None = None
    temporal_namespace: str = "default"
    webhook_secrets: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]], repr=False
    )
    """By the name in the webhook's path: what its messages are signed with."""
    endpoints_allow_http: bool = False
    endpoints_allow_private: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """The parts behind the front door."""

    ledger: Ledger
    keys: KeyRing
    waiters: Waiters
    executor: Executor
    reconciler: Reconciler
    operations: Mapping[str, Operation]
    profiles: Mapping[str, str]
    """By operation: what its providers promise now, as JSON, to be pinned on new claims."""
    now: Callable[[], datetime]
    settings: ApiSettings = field(default_factory=ApiSettings)
    first_requests: FirstRequests = field(
        default_factory=lambda: FirstRequests(per_second=0.0, burst=1)
    )
    streams: Streams = field(default_factory=Streams)
    starts: Starts = field(default_factory=Starts)
    joins: Joins = field(default_factory=Joins)


def service_of(request: Request) -> Service:
    """The service that the application of `request` was made for."""
    service: Service = request.app.state.service
    return service
