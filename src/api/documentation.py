"""What OpenAPI says about answers: typed per operation, problems by their names."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from api.problems import CATALOGUE, ProblemName
from operations.declaration import Operation
from operations.receipts import PROBLEM_JSON

Answers = dict[int | str, dict[str, Any]]


class StepResource(BaseModel):
    """One step of an operation."""

    name: str
    provider: str
    guarantee: str | None
    state: str
    provider_reference: str | None
    attempts: int
    undo_state: str | None
    reason: str | None


class ResultResource(BaseModel):
    """The answer of a done operation."""

    status: int
    body: Any


class LinksResource(BaseModel):
    """Where else to look."""

    self: str
    receipt: str
    events: str
    temporal_ui: str | None


class DecisionResource(BaseModel):
    """What a person decided."""

    step: str | None
    purpose: str
    verdict: str
    provider_reference: str | None
    evidence: str
    decided_by: str
    decided_at: str


class OperationResource(BaseModel):
    """An operation as it stands."""

    operation: str
    key: str
    state: str
    outcome: str | None
    steps: list[StepResource]
    result: ResultResource | None
    decisions: list[DecisionResource]
    safe_new_key: bool
    workflow_id: str | None
    created_at: str
    updated_at: str
    expires_at: str | None
    links: LinksResource


class OperationList(BaseModel):
    """A page of operations, newest first."""

    operations: list[OperationResource]
    next_cursor: str | None


class ProblemDocument(BaseModel):
    """A problem (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


def submit_answers(operation: Operation) -> Answers:
    """The success of an operation, and 202."""
    return {
        operation.success_status: {
            "model": operation.answer,
            "description": "Done: the receipt. A retry gets the same bytes.",
        },
        202: {
            "model": OperationResource,
            "description": "Accepted, and not done within the wait. `Location` says where to look.",
        },
    }


def problem_answers(*names: ProblemName) -> Answers:
    """The problems a route can answer with, grouped by status."""
    by_status: dict[int, list[ProblemName]] = {}
    for name in names:
        by_status.setdefault(CATALOGUE[name].status, []).append(name)
    return {status: _problem_answer(found) for status, found in sorted(by_status.items())}


def _problem_answer(names: Iterable[ProblemName]) -> dict[str, Any]:
    described = "; ".join(f"`{name.value}`: {CATALOGUE[name].title}" for name in names)
    return {
        "description": described,
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
    }
