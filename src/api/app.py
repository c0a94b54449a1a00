"""The application: routes, middleware, and the rule that every failure is a problem document."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from api import (
    accounts,
    contradictions,
    endpoints,
    failures,
    findings,
    health,
    listing,
    operating,
    reading,
    reconciling,
    reference,
    streaming,
    webhooks,
)
from api.keys_in_paths import EncodedPaths
from api.observing import Observed
from api.openapi import DESCRIPTION, describe
from api.problems import Problem, ProblemName, not_found
from api.service import ApiSettings, Service
from api.submitting import Submissions, submit_router
from operations.declaration import Operation

EXPOSED_HEADERS = [
    "Idempotent-Replayed",
    "Idempotency-Key",
    "Idempotency-Expires",
    "Operation-State",
    "Preference-Applied",
    "Location",
    "Retry-After",
    "ETag",
    "Link",
]

ACCEPTED_HEADERS = [
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    "Prefer",
]

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

PREFLIGHT_SECONDS = 600
"""How long a browser remembers that it may: the ten minutes that browsers allow at least."""

ServiceContext = Callable[[], AbstractAsyncContextManager[Service]]


def create_app(
    open_service: ServiceContext, *, operations: tuple[Operation, ...], settings: ApiSettings
) -> FastAPI:
    """The application; `open_service` makes and closes what stands behind it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with open_service() as service:
            app.state.service = service
            yield

    app = FastAPI(
        title="Tallystick",
        version="1",
        summary="One net effect per operation, and the same truthful answer to every retry.",
        description=DESCRIPTION,
        license_info={"name": "MIT"},
        lifespan=lifespan,
        middleware=_middleware(settings, operations),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for operation in operations:
        app.include_router(submit_router(operation))
    app.include_router(listing.router)
    app.include_router(reading.router)
    app.include_router(operating.router)
    app.include_router(streaming.router)
    app.include_router(accounts.router)
    app.include_router(webhooks.router)
    app.include_router(endpoints.router)
    app.include_router(findings.router)
    app.include_router(contradictions.router)
    app.include_router(reconciling.router)
    app.include_router(health.router)
    app.include_router(reference.router)
    _handle_failures(app)
    describe(app, operations)
    return app


def _middleware(settings: ApiSettings, operations: tuple[Operation, ...]) -> list[Middleware]:
    stack = [
        Middleware(Observed),
        Middleware(Submissions, operations=operations),
        Middleware(EncodedPaths),
    ]
    if settings.cors_origins:
        stack.insert(
            0,
            Middleware(
                CORSMiddleware,
                allow_origins=list(settings.cors_origins),
                allow_methods=list(METHODS),
                allow_headers=ACCEPTED_HEADERS,
                expose_headers=EXPOSED_HEADERS,
                max_age=PREFLIGHT_SECONDS,
            ),
        )
    return stack


def _methods(app: FastAPI, request: Request) -> list[str]:
    """What the path of `request` allows, by all of its routes (RFC 9110, section 15.5.6).

    Starlette names the methods of the first route that fits the path; the next one may have more.
    """
    return [method for method in METHODS if _is_routed(app, {**request.scope, "method": method})]


def _is_routed(app: FastAPI, scope: Scope) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in app.routes)


def _handle_failures(app: FastAPI) -> None:
    """Every failure is a problem document that says what to do."""

    async def on_failure(_request: Request, failure: Exception) -> Response:
        return failures.answer_to(cast("failures.Failure", failure))

    for kind in failures.KINDS:
        app.add_exception_handler(kind, on_failure)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_request: Request, error: RequestValidationError) -> Response:
        errors = [
            {"parameter": ".".join(map(str, found["loc"])), "message": found["msg"]}
            for found in error.errors()[:20]
        ]
        return Problem(
            ProblemName.VALIDATION_FAILED,
            "A parameter of the request is not as documented.",
            members={"errors": errors},
        ).response()

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            return Problem(
                ProblemName.METHOD_NOT_ALLOWED,
                f"{request.method} is not defined here.",
                headers={"allow": ", ".join(_methods(app, request))},
            ).response()
        if request.url.path.startswith("/v1/operations/"):
            return Problem(
                ProblemName.OPERATION_UNKNOWN, "There is no operation of this name."
            ).response()
        return not_found().response()

    del on_invalid, on_http
