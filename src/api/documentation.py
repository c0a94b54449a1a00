"""What OpenAPI says about answers: typed resources, problems by their names, headers."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, Field, JsonValue

from api.problems import CATALOGUE, ProblemName
from operations.declaration import Operation, SagaOperation
from operations.guarantees import Guarantee
from operations.keys import Purpose
from operations.receipts import PROBLEM_JSON
from operations.states import ClaimState, EffectState, Outcome

Answers = dict[int | str, dict[str, Any]]

Instant = Annotated[
    str,
    Field(json_schema_extra={"format": "date-time", "examples": ["2026-01-31T12:00:00.000Z"]}),
]
"""A point in time, RFC 3339 in UTC."""

ETAG_LIST = r'^(\*|((W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)?)$'
"""What `If-Match` and `If-None-Match` hold (RFC 9110, section 13.1)."""


class StepResource(BaseModel):
    """One step of an operation."""

    name: str
    provider: str
    guarantee: Guarantee | None
    state: EffectState
    provider_reference: str | None
    attempts: Annotated[int, Field(ge=0)]
    undo_state: EffectState | None
    reason: str | None


class ResultResource(BaseModel):
    """The answer of a done operation."""

    status: int
    body: JsonValue


class LinksResource(BaseModel):
    """Where else to look."""

    self: str
    receipt: str
    events: str
    temporal_ui: str | None


class DecisionResource(BaseModel):
    """What a person decided."""

    step: str | None
    purpose: Purpose
    verdict: str
    """`confirmed`, `absent`, `retry`, `abandon`; or `cancel`, about the whole operation."""
    provider_reference: str | None
    evidence: str
    decided_by: str
    decided_at: Instant


class OperationResource(BaseModel):
    """An operation as it stands."""

    operation: str
    key: str
    state: ClaimState
    outcome: Outcome | None
    steps: list[StepResource]
    result: ResultResource | None
    decisions: list[DecisionResource]
    safe_new_key: bool
    """True only when nothing happened and nothing can."""
    workflow_id: str | None
    created_at: Instant
    updated_at: Instant
    expires_at: Instant | None
    links: LinksResource


class OperationList(BaseModel):
    """A page of operations, newest first."""

    operations: list[OperationResource]
    next_cursor: str | None


class ProblemError(BaseModel):
    """One thing that is wrong with a request. Values are never repeated."""

    pointer: str | None = None
    """A JSON pointer into the body."""
    parameter: str | None = None
    message: str


class ProblemDocument(BaseModel):
    """A problem (RFC 9457). `type` is a path of this service that explains it."""

    type: Annotated[str, Field(pattern=r"^/problems/[a-z-]+$")]
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    to_do: str | None = None
    errors: list[ProblemError] | None = None
    differing: list[str] | None = None
    """`key-reused`: JSON pointers at what differs."""
    operation: str | None = None
    """Where the operation that stands can be read."""
    outcome: Outcome | None = None
    """Of a receipt: how the operation ended."""
    step: str | None = None
    code: str | None = None
    request_id: str | None = None


_TEXT: dict[str, Any] = {"type": "string"}
HEADERS: dict[str, dict[str, Any]] = {
    "ETag": {
        "description": "A strong tag: changes with the resource.",
        "schema": {"type": "string", "pattern": '^"[!#-~]+"$'},
    },
    "Location": {"description": "Where the resource can be read.", "schema": _TEXT},
    "Retry-After": {
        "description": "Seconds.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Idempotency-Key": {"description": "The key, as a structured-field string.", "schema": _TEXT},
    "Idempotent-Replayed": {
        "description": "The answer is one that was given before.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Idempotency-Expires": {
        "description": "Until when the receipt is kept.",
        "schema": {"type": "string", "format": "date-time"},
    },
    "Operation-State": {
        "description": "Where the operation stands.",
        "schema": {"type": "string", "enum": [state.value for state in ClaimState]},
    },
    "Preference-Applied": {"description": "Which preferences were followed.", "schema": _TEXT},
    "WWW-Authenticate": {"description": "How to authenticate.", "schema": _TEXT},
    "Link": {"description": "The next page, when there is one.", "schema": _TEXT},
    "Next-Cursor": {"description": "Where the next page of a CSV starts.", "schema": _TEXT},
}

_OF_OPERATION = ("Idempotency-Key", "Operation-State", "Idempotency-Expires")
_OF_PROBLEM = {401: ("WWW-Authenticate",), 409: ("Retry-After",), 429: ("Retry-After",)} | {
    503: ("Retry-After",)
}

_BARE_KEY = r"[!#-'*+\--:<-[\]-~]{1,255}"
_QUOTED_KEY = r"\"([!#-[\]-~]|\\[\"\\]){1,255}\""
KEY_HEADER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": True,
    "description": "New for every operation, the same on every retry of it. A structured-field "
    'string (`"…"`), or bare: both spellings of one key are one key.',
    "schema": {"type": "string", "pattern": f"^({_BARE_KEY}|{_QUOTED_KEY})$"},
    "example": "order-4711",
}
KEY_IN_PATH: dict[str, Any] = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "The idempotency key, percent-encoded. `.` and `..` are not reachable by path.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": 255,
        "pattern": r"^(?!\.{1,2}$)[!-~]+$",
    },
    "example": "order-4711",
}
PREFER_HEADER: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait=N` (0 to 60 seconds, default 10) or `respond-async` (RFC 7240).",
    "schema": {"type": "string"},
    "example": "wait=10",
}


def headers(*names: str) -> dict[str, dict[str, Any]]:
    """Header fields of an answer."""
    return {name: HEADERS[name] for name in names}


def about_operation(*names: str) -> dict[str, dict[str, Any]]:
    """Header fields of an answer about an operation, and `names` beside them."""
    return headers(*_OF_OPERATION, *names)


def submit_answers(operation: Operation) -> Answers:
    """The success of an operation, and 202 for one that may take longer than a client waits."""
    answers: Answers = {
        operation.success_status: {
            "model": operation.answer,
            "description": "Done: the receipt. A retry gets the same bytes.",
            "headers": about_operation("Location", "Idempotent-Replayed", "Preference-Applied"),
        }
    }
    if isinstance(operation, SagaOperation):
        answers[202] = ACCEPTED
    return answers


ACCEPTED: dict[str, Any] = {
    "model": OperationResource,
    "description": "Accepted, and not done within the wait. `Location` says where to look.",
    "headers": about_operation("Location", "Retry-After", "ETag", "Preference-Applied"),
}


def problem_answers(*names: ProblemName) -> Answers:
    """The problems a route can answer with, grouped by status."""
    by_status: dict[int, list[ProblemName]] = {}
    for name in names:
        by_status.setdefault(CATALOGUE[name].status, []).append(name)
    return {status: _problem_answer(status, found) for status, found in sorted(by_status.items())}


def _problem_answer(status: int, names: Iterable[ProblemName]) -> dict[str, Any]:
    found = tuple(dict.fromkeys(names))
    answer: dict[str, Any] = {
        "description": "; ".join(f"`{name.value}`: {CATALOGUE[name].title}" for name in found),
        "content": {
            PROBLEM_JSON: {
                "schema": {"$ref": "#/components/schemas/ProblemDocument"},
                "examples": {
                    name.value: {"$ref": f"#/components/examples/{name.value}"} for name in found
                },
            }
        },
    }
    if status in _OF_PROBLEM:
        answer["headers"] = headers(*_OF_PROBLEM[status])
    return answer


def example(name: ProblemName) -> dict[str, Any]:
    """What a problem's document looks like."""
    explained = CATALOGUE[name]
    return {
        "type": f"/problems/{name.value}",
        "title": explained.title,
        "status": explained.status,
        "detail": explained.happened,
        "to_do": explained.to_do,
    }
