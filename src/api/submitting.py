"""Routes that submit: POST and PUT for each operation, with a typed path of its own."""

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api import boundary, failures
from api.documentation import (
    KEY_HEADER,
    KEY_IN_PATH,
    PREFER_HEADER,
    problem_answers,
    submit_answers,
)
from api.keys_in_paths import key_from_path
from api.problems import ProblemName
from api.service import service_of
from operations.declaration import Operation, SagaOperation


class Submissions:
    """Middleware: a POST to an operation's own path goes straight to `submit`.

    It is the busiest request there is, and routing it would cost as much as all that is done with
    it (`docs/performance.md`). The routes below describe it, and take every other spelling.
    """

    def __init__(self, app: ASGIApp, *, operations: Iterable[Operation]) -> None:
        """Wrap `app`."""
        self._app = app
        self._by_path = {_path(operation).encode(): operation for operation in operations}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Submit, or leave it to the routes."""
        operation = self._by_path.get(scope.get("raw_path") or b"")
        if operation is None or scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            answer = await submit(Request(scope, receive, send), operation)
        except failures.KINDS as failure:
            answer = failures.answer_to(failure)
        await answer(scope, receive, send)


async def submit(request: Request, operation: Operation) -> Response:
    """Submit `operation` under the key in the header. Raises Problem, StorageUnavailable."""
    request.state.operation = operation.name
    service = service_of(request)
    caller = await service.keys.identify(request)
    key = boundary.key_from_header(request)
    return await boundary.submit(request, caller, operation, key, service=service)


def submit_router(operation: Operation) -> APIRouter:
    """The routes that submit `operation`."""
    router = APIRouter(tags=[operation.name])
    path = _path(operation)
    shared: dict[str, Any] = {"response_class": Response, "status_code": operation.success_status}
    answers, refusals = submit_answers(operation), _refusals(operation)

    @router.post(
        path,
        summary=operation.title,
        operation_id=f"{operation.name}.submit",
        responses=answers | problem_answers(ProblemName.KEY_MISSING, *refusals),
        openapi_extra=_request_body(operation) | {"parameters": [KEY_HEADER, PREFER_HEADER]},
        **shared,
    )
    async def post(request: Request) -> Response:
        """Submit it; sent again with the same key, it is the same operation."""
        return await submit(request, operation)

    @router.put(
        f"{path}/{{key}}",
        summary=f"{operation.title}, with the key in the path",
        operation_id=f"{operation.name}.put",
        responses=answers | problem_answers(*refusals),
        openapi_extra=_request_body(operation) | {"parameters": [KEY_IN_PATH, PREFER_HEADER]},
        **shared,
    )
    async def put(request: Request) -> Response:
        """Submit it; sent again to the same path, it is the same operation."""
        request.state.operation = operation.name
        service = service_of(request)
        caller = await service.keys.identify(request)
        key = key_from_path(request)
        return await boundary.submit(request, caller, operation, key, service=service)

    del post, put
    return router


def _path(operation: Operation) -> str:
    return f"/v1/operations/{operation.name}"


def _refusals(operation: Operation) -> tuple[ProblemName, ...]:
    """What a submission may be told instead of its answer."""
    ends = (ProblemName.COMPENSATED, ProblemName.CANCELLED, ProblemName.ABANDONED)
    return (
        ProblemName.KEY_MALFORMED,
        ProblemName.BODY_MALFORMED,
        ProblemName.UNAUTHENTICATED,
        ProblemName.DECLINED,
        ProblemName.REQUEST_TIMEOUT,
        ProblemName.KEY_REUSED,
        *(() if isinstance(operation, SagaOperation) else (ProblemName.IN_PROGRESS,)),
        ProblemName.KEY_EXPIRED,
        ProblemName.BODY_TOO_LARGE,
        ProblemName.MEDIA_TYPE_UNSUPPORTED,
        ProblemName.VALIDATION_FAILED,
        *(ends if isinstance(operation, SagaOperation) else ()),
        ProblemName.RATE_LIMITED,
        ProblemName.STORAGE_UNAVAILABLE,
    )


def _request_body(operation: Operation) -> dict[str, Any]:
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": f"#/components/schemas/{operation.request.__name__}"},
                    "example": dict(operation.example),
                }
            },
        }
    }
