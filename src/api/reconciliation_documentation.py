"""What OpenAPI says about reconciliation: runs, findings and schedules, typed."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, JsonValue

from api.documentation import Instant
from operations.reconciliation import FindingKind, FindingState, Remedy, RemedyState, RunState
from operations.reconciliation import Trigger as RunTrigger

Count = Annotated[int, Field(ge=0)]


class RunLinks(BaseModel):
    """Where else to look."""

    self: str
    report: str
    findings: str
    temporal_ui: str | None


class RunChanges(BaseModel):
    """What this run changed, and how its counts differ from those of the run before it."""

    opened: Count
    found_again: Count
    gone: Count
    persisting: Count
    since_last_run: dict[FindingKind, int] | None = None


class RunResource(BaseModel):
    """A reconciliation run."""

    id: int
    provider: str
    state: RunState
    trigger: RunTrigger
    requested_by: str | None
    dry_run: bool
    since: Instant
    until: Instant
    counts: dict[str, Count]
    """By kind of finding, and `records`: how many the provider listed."""
    unmatched: Count
    sums: dict[str, JsonValue]
    """By currency, in minor units."""
    changes: RunChanges
    failure: str | None
    workflow_id: str
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    links: RunLinks


class RunList(BaseModel):
    """A page of runs, newest first."""

    runs: list[RunResource]
    next_cursor: int | None


class FindingAmount(BaseModel):
    """The provider's amount, or ours where they have none."""

    minor: int
    currency: str | None


class FindingLinks(BaseModel):
    """Where it can be read."""

    self: str


class HistoryResource(BaseModel):
    """One change of a finding."""

    at: Instant
    happened: str
    state: FindingState
    by: str | None
    note: str | None
    run: int | None


class FindingResource(BaseModel):
    """A finding: something that our books and the provider's do not agree on."""

    id: int
    provider: str
    kind: FindingKind
    state: FindingState
    record_id: str | None
    reference: str | None
    amount: FindingAmount | None
    occurred_at: Instant
    remedy: Remedy
    remedy_state: RemedyState
    evidence: dict[str, JsonValue]
    note: str | None
    resolved_by: str | None
    first_run: int
    last_run: int
    runs_in_a_row: Count
    opened_at: Instant
    updated_at: Instant
    links: FindingLinks


class FindingWithHistory(FindingResource):
    """A finding, and all that happened to it."""

    history: list[HistoryResource]


class FindingList(BaseModel):
    """A page of findings, newest first."""

    findings: list[FindingResource]
    next_cursor: int | None


class RunDocument(RunResource):
    """A run with what it found; a dry run with what it would have found and done."""

    findings: list[FindingResource] | None = None
    would: list[dict[str, JsonValue]] | None = None


class ScheduleResource(BaseModel):
    """How often a provider is reconciled."""

    provider: str
    every: Annotated[str | None, Field(examples=["PT15M"])]
    """An ISO 8601 duration; null when it is reconciled only when asked."""
    paused: bool
    watermark: Instant | None
    next_runs: list[Instant]


def as_csv() -> dict[str, Any]:
    """What a list answers to `format=csv`, beside JSON."""
    return {"text/csv": {"schema": {"type": "string"}}}
