"""The vocabulary of reconciliation: findings, remedies, runs, and what workflow and activities say.

As in `operations.contracts`, names and fields here are on the wire: renaming one breaks runs.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from operations.contracts import Payload

RECONCILIATION_RUN = "reconciliation.run"

OPEN_RUN = "reconciliation.open"
FETCH_RECORDS = "reconciliation.fetch"
MATCH_RECORDS = "reconciliation.match"
SWEEP_EFFECTS = "reconciliation.sweep"
ACT_ON_FINDINGS = "reconciliation.act"
CLOSE_RUN = "reconciliation.close"


def finding_path(finding_id: int) -> str:
    """Where an operator reads a finding."""
    return f"/v1/reconciliation/findings/{finding_id}"


class FindingKind(StrEnum):
    """What comparing our half with theirs can find."""

    MATCHED = "matched"
    """Both have it, and agree. Counted, never kept."""
    AMOUNT_MISMATCH = "amount_mismatch"
    """Both have it, with another amount or currency."""
    PROVIDER_ONLY = "provider_only"
    """They have it, and no effect of ours is meant by it."""
    LOCAL_ONLY = "local_only"
    """We hold it for confirmed, and their books do not show it."""
    DUPLICATE = "duplicate"
    """They have it more than once under one reference of ours."""
    LATE = "late"
    """They have it, while we did not know so, or had stopped to expect it."""
    REFUND_EXCESS = "refund_excess"
    """More was given back than was taken."""


class Remedy(StrEnum):
    """What reconciliation does by itself about a finding."""

    NONE = "none"
    """Nothing: it waits for a person."""
    RESOLVE = "resolve"
    """Tell the operation that its unknown effect exists."""
    UNDO = "undo"
    """Take back at the provider what must not stand there."""


class RemedyState(StrEnum):
    """How far a remedy has come."""

    NONE = "none"
    PLANNED = "planned"
    DONE = "done"
    REFUSED = "refused"
    """It cannot be done: now it waits for a person."""


class FindingState(StrEnum):
    """Where a finding stands."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    """A person has seen it and works on it."""
    RESOLVED = "resolved"


class RunState(StrEnum):
    """Where a reconciliation run stands."""

    ACCEPTED = "accepted"
    """Asked for; no workflow has taken it up."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """It ended without an end: stopped, or out of time. Its watermark has not moved."""


class Trigger(StrEnum):
    """Who asked for a run."""

    SCHEDULE = "schedule"
    PERSON = "person"


class ReconciliationOrder(Payload):
    """The argument of `reconciliation.run`."""

    provider: str
    run_id: int | None = None
    """The row of the run; None for a scheduled one, which makes its row first."""
    every_seconds: float | None = None
    """The schedule's interval: the run ends itself before the next one is due."""
    phase: str = FETCH_RECORDS
    """Where a run that was continued as new goes on."""


class RunOpening(Payload):
    """What `reconciliation.open` needs to make, or find again, the row of a run."""

    provider: str
    workflow_id: str
    run_id: int | None = None
    every_seconds: float | None = None


class Opened(Payload):
    """The row of a run that is under way."""

    run_id: int


class Turn(Payload):
    """How far one turn of an activity has come."""

    finished: bool
    """Whether the phase is over."""
    pause_seconds: float = 0.0
    """How long to wait before the next turn."""
    remark: str = ""
    """For people who watch the run."""


class RunClosing(Payload):
    """How a run ends."""

    run_id: int
    failure: str | None = None


class ReconciliationEnd(Payload):
    """What the workflow returns."""

    run_id: int
    state: RunState
    counts: dict[str, int] = Field(default_factory=dict[str, int])
    sums: dict[str, Any] = Field(default_factory=dict[str, Any])
    persisting: int = 0
    """Open findings that this run and an earlier one have found."""
    window_until: datetime | None = None
