"""Routes that submit: POST and PUT for each operation, with a typed path of its own."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from api import boundary
from api.documentation import problem_answers, submit_answers
from api.keys_in_paths import key_from_path
from api.problems import ProblemName
from api.service import service_of
from operations.declaration import Operation


def submit_router(operation: Operation) -> APIRouter:
    """The routes that submit `operation`."""
    router = APIRouter(tags=[operation.name])
    path = f"/v1/operations/{operation.name}"
    shared: dict[str, Any] = {
        "response_class": Response,
        "status_code": operation.success_status,
        "responses": submit_answers(operation) | problem_answers(*ProblemName),
    }

    @router.post(
        path,
        summary=operation.title,
        operation_id=f"{operation.name}.submit",
        openapi_extra=_request_body(operation) | {"parameters": [_KEY_HEADER, _PREFER_HEADER]},
        **shared,
    )
    async def post(request: Request) -> Response:
        service = service_of(request)
        caller = await service.keys.identify(request)
        key = boundary.key_from_header(request)
        return await boundary.submit(request, caller, operation, key, service=service)

    @router.put(
        f"{path}/{{key}}",
        summary=f"{operation.title}, with the key in the path",
        operation_id=f"{operation.name}.put",
        openapi_extra=_request_body(operation) | {"parameters": [_KEY_PATH, _PREFER_HEADER]},
        **shared,
    )
    async def put(request: Request) -> Response:
        service = service_of(request)
        caller = await service.keys.identify(request)
        key = key_from_path(request)
        return await boundary.submit(request, caller, operation, key, service=service)

    del post, put
    return router


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


_KEY_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
_KEY_HEADER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": True,
    "description": "New for every operation, the same on every retry of it. Quoted or bare.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[0-9A-Za-z_.-]+$"},
    "example": "order-4711",
}
_KEY_PATH: dict[str, Any] = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "The idempotency key, percent-encoded.",
    "schema": _KEY_SCHEMA,
    "example": "order-4711",
}
_PREFER_HEADER: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait=N` (0 to 60 seconds, default 10) or `respond-async` (RFC 7240).",
    "schema": {"type": "string"},
    "example": "wait=10",
}
