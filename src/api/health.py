"""Whether the process lives, whether it can serve, and the pages that explain problems."""

import html
from typing import Any, Literal

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.responses import HTMLResponse, JSONResponse, Response

from api import measures
from api.documentation import problem_answers
from api.problems import CATALOGUE, ProblemName, not_found
from api.service import service_of
from ledger import versions
from ledger.database import StorageUnavailable

router = APIRouter(tags=["health"])
_NAME: dict[str, Any] = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "enum": [name.value for name in ProblemName]},
}


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"]


class Readiness(BaseModel):
    """Whether requests can be served, and why not."""

    status: Literal["ready", "unready"]
    postgres: str
    """`current`, `unreachable`, or which schema it has."""
    temporal: Literal["reachable", "unreachable"]


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", summary="Alive", operation_id="health.alive")
async def healthz() -> Alive:
    """The process answers."""
    return Alive(status="alive")


@router.head("/readyz", include_in_schema=False)
@router.get(
    "/readyz",
    summary="Able to serve",
    operation_id="health.ready",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Not able to."}},
)
async def readyz(request: Request) -> JSONResponse:
    """Postgres is reachable and its schema current. Temporal is reported, and may be away."""
    service = service_of(request)
    try:
        version = await versions.current(service.ledger.database)
        storage = "current" if version == versions.newest() else f"schema is {version or 'empty'}"
    except StorageUnavailable:
        storage = "unreachable"
    executor = "reachable" if await service.executor.is_reachable() else "unreachable"
    ready = storage == "current"
    return JSONResponse(
        {"status": "ready" if ready else "unready", "postgres": storage, "temporal": executor},
        status_code=200 if ready else 503,
    )


@router.get(
    "/metrics",
    summary="For Prometheus",
    operation_id="health.metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Counters and durations of this process."""
    service = service_of(request)
    measures.WAITING.set(service.waiters.count())
    measures.STREAMS.set(service.streams.count())
    measures.STARTS_WAITING.set(len(service.starts.turns.waiting))
    measures.OPEN_PER_TENANT.set(service.starts.turns.may_have_open())
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@router.head("/problems/{name}", include_in_schema=False)
@router.get(
    "/problems/{name}",
    response_class=HTMLResponse,
    summary="What a problem means",
    operation_id="health.problem",
    responses=problem_answers(ProblemName.NOT_FOUND),
    openapi_extra={"parameters": [_NAME]},
)
async def problem_page(request: Request) -> Response:
    """The page at a problem's `type`."""
    name = request.path_params["name"]
    try:
        found = CATALOGUE[ProblemName(name)]
    except ValueError:
        raise not_found() from None
    title, happened, to_do = (
        html.escape(text) for text in (found.title, found.happened, found.to_do)
    )
    return HTMLResponse(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        "<style>body{font:1rem/1.5 system-ui;max-width:40rem;margin:3rem auto;padding:0 1rem}"
        "h1{font-size:1.4rem}dt{font-weight:600;margin-top:1rem}dd{margin:0}</style>"
        f"<h1>{title}</h1><dl><dt>Status</dt><dd>{found.status}</dd>"
        f"<dt>Type</dt><dd>/problems/{html.escape(name)}</dd>"
        f"<dt>What happened</dt><dd>{happened}</dd><dt>What to do</dt><dd>{to_do}</dd></dl></html>"
    )
