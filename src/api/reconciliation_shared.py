"""What the routes of reconciliation share: who may, how to read bodies, how to write answers."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query, Request
from starlette.responses import Response

from api import boundary
from api.authentication import Caller
from api.documentation import ETAG_LIST, KEY_HEADER, Answers, problem_answers
from api.problems import ProblemName
from api.service import Service, service_of
from operations.declaration import Request as Form
from operations.strict_json import JsonValue

BODY_BYTES_MAX = 16 * 1024
PAGE_MAX = 200
ID_MAX = 2**63 - 1

F = TypeVar("F", bound=Form)

RowId = Annotated[int, Path(ge=1, le=ID_MAX)]
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
Cursor = Annotated[int | None, Query(ge=1, le=ID_MAX, description="From `next_cursor`.")]


IF_MATCH: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "required": True,
    "description": "The ETag of the finding that was read.",
    "schema": {"type": "string", "pattern": ETAG_LIST},
    "example": '"f1-2"',
}
RUN_KEY: dict[str, Any] = {**KEY_HEADER, "example": "month-end"}


class Format(StrEnum):
    """How a list is written."""

    JSON = "json"
    CSV = "csv"


PROBLEMS = (
    ProblemName.UNAUTHENTICATED,
    ProblemName.FORBIDDEN,
    ProblemName.NOT_FOUND,
    ProblemName.VALIDATION_FAILED,
    ProblemName.STORAGE_UNAVAILABLE,
)
READS: Answers = problem_answers(*PROBLEMS)
WRITES: Answers = {
    **problem_answers(
        *PROBLEMS,
        ProblemName.BODY_MALFORMED,
        ProblemName.BODY_TOO_LARGE,
        ProblemName.MEDIA_TYPE_UNSUPPORTED,
        ProblemName.EXECUTOR_UNAVAILABLE,
    ),
}


def body_of(
    form: type[Form],
    *headers: Mapping[str, Any],
    example: Mapping[str, Any],
    required: bool = True,
) -> dict[str, Any]:
    """What OpenAPI says of a body that we read ourselves, and of headers beside it."""
    schema = form.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions: dict[str, Any] = schema.pop("$defs", {})
    for name, member in schema["properties"].items():
        if "$ref" in member:
            schema["properties"][name] = definitions[member["$ref"].rpartition("/")[2]]
    return {
        "parameters": list(headers),
        "requestBody": {
            "required": required,
            "content": {"application/json": {"schema": schema, "example": example}},
        },
    }


async def operator(request: Request) -> tuple[Service, Caller]:
    """The service, and who asks: an operator. Raises Problem (unauthenticated, forbidden)."""
    service = service_of(request)
    caller = await service.keys.identify(request)
    caller.require_operator()
    return service, caller


async def read_form(request: Request, form: type[F], what: str, *, may_be_empty: bool = False) -> F:
    """The body as `form`. Raises Problem (validation-failed, and those of reading a body)."""
    return (await read_with_canonical(request, form, what, may_be_empty=may_be_empty))[0]


async def read_with_canonical(
    request: Request, form: type[F], what: str, *, may_be_empty: bool
) -> tuple[F, bytes]:
    """The body as `form`, and its canonical bytes. Raises Problem as `read_form` does."""
    body: JsonValue = {}
    canonical = b"{}"
    length = request.headers.get("content-length", "0")
    empty = length == "0" and "transfer-encoding" not in request.headers
    if not (may_be_empty and empty):
        body, canonical = await boundary.read_json_body(request, bytes_max=BODY_BYTES_MAX)
    read = boundary.fit(form, body)
    if isinstance(read, list):
        raise boundary.does_not_fit(what, read)
    return read, canonical


def answer_json(
    document: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON document that nobody may cache."""
    return Response(
        json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(),
        status_code=status,
        media_type="application/json",
        headers={"cache-control": "no-store", **(headers or {})},
    )


def answer_csv(text: str, *, following: int | None) -> Response:
    """A CSV page; `Next-Cursor` says where the next one starts."""
    headers = {"cache-control": "no-store"}
    if following is not None:
        headers["next-cursor"] = str(following)
    return Response(text, media_type="text/csv", headers=headers)
