"""`/v1/endpoints`: where a tenant wants to be told of its operations."""

import asyncio
import base64
import secrets
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from api import boundary, resources
from api.authentication import UNSURE_SECONDS, Caller
from api.documentation import ETAG_LIST, Instant, headers, problem_answers
from api.problems import Problem, ProblemName
from api.service import ApiSettings, Service, service_of
from ledger.endpoints import ENDPOINTS_MAX, Endpoint
from operations.addresses import AddressRefused, check_address
from operations.declaration import Request as Form
from operations.preconditions import PreconditionMalformed, Tags, parse_preconditions

PATH = "/v1/endpoints/{id}"
SECRET_BYTES = 32

EndpointId = Annotated[
    str,
    Path(
        alias="id",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="A name of the tenant's own.",
        examples=["orders"],
    ),
]


class EndpointTerms(Form):
    """What a tenant chooses."""

    url: Annotated[
        str,
        Field(
            min_length=8,
            max_length=2048,
            pattern=r"^[Hh][Tt][Tt][Pp][Ss]?://[!-~]+$",
            examples=["https://example.org/in"],
        ),
    ]


class EndpointState(StrEnum):
    """Whether events are sent there."""

    ENABLED = "enabled"
    DISABLED = "disabled"


class EndpointResource(BaseModel):
    """An endpoint, and how deliveries to it go. Its secret is shown once, where it was made."""

    id: str
    url: str
    state: EndpointState
    """`enabled`, or `disabled` after five days of failures: PUT it again to switch it on."""
    failures: Annotated[int, Field(ge=0)]
    failing_since: Instant | None
    last_error: str | None
    next_attempt_at: Instant | None
    pending: Annotated[int, Field(ge=0)]
    created_at: Instant
    updated_at: Instant


class EndpointWithSecret(EndpointResource):
    """An endpoint that was made, or given a new secret, just now: the only sight of it."""

    secret: str


class EndpointList(BaseModel):
    """All endpoints of a tenant."""

    endpoints: list[EndpointResource]


_ETAG = headers("ETag")
_IF_MATCH: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "required": True,
    "description": "The ETag of the endpoint that was read.",
    "schema": {"type": "string", "pattern": ETAG_LIST},
    "example": '"1f-2"',
}
_IF_MATCH_ON_CHANGE = _IF_MATCH | {
    "required": False,
    "description": "The ETag of the endpoint that was read; needed for one that exists.",
}
_SHARED = (
    ProblemName.UNAUTHENTICATED,
    ProblemName.FORBIDDEN,
    ProblemName.VALIDATION_FAILED,
    ProblemName.STORAGE_UNAVAILABLE,
)
_CONDITIONAL = (
    *_SHARED,
    ProblemName.NOT_FOUND,
    ProblemName.PRECONDITION_FAILED,
    ProblemName.PRECONDITION_REQUIRED,
)

router = APIRouter(tags=["endpoints"])


@router.get(
    "/v1/endpoints",
    summary="The tenant's endpoints",
    operation_id="endpoints.list",
    response_model=EndpointList,
    responses=problem_answers(*_SHARED),
)
async def list_endpoints(request: Request) -> Response:
    """All of them, without their secrets."""
    service = service_of(request)
    caller = await _operator(request, service=service)
    found = await service.ledger.endpoints.list(tenant=caller.tenant)
    return JSONResponse({"endpoints": [_resource(endpoint) for endpoint in found]})


@router.get(
    PATH,
    summary="An endpoint, and how deliveries to it go",
    operation_id="endpoints.read",
    response_model=EndpointResource,
    responses=problem_answers(*_SHARED, ProblemName.NOT_FOUND) | {200: {"headers": _ETAG}},
)
async def read_endpoint(request: Request, endpoint_id: EndpointId) -> Response:
    """The endpoint of the caller's tenant."""
    service = service_of(request)
    caller = await _operator(request, service=service)
    return _answer(await _existing(caller, endpoint_id, service=service))


@router.put(
    PATH,
    summary="Make an endpoint, or change its address",
    operation_id="endpoints.put",
    response_model=EndpointResource,
    responses=problem_answers(
        *_CONDITIONAL,
        ProblemName.BODY_MALFORMED,
        ProblemName.BODY_TOO_LARGE,
        ProblemName.MEDIA_TYPE_UNSUPPORTED,
    )
    | {
        200: {"description": "It was there.", "headers": _ETAG},
        201: {
            "model": EndpointWithSecret,
            "description": "It was made: the only sight of its secret.",
            "headers": headers("ETag", "Location"),
        },
    },
    openapi_extra={
        "parameters": [_IF_MATCH_ON_CHANGE],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": EndpointTerms.model_json_schema(),
                    "example": {"url": "https://example.org/in"},
                }
            },
        },
    },
)
async def put_endpoint(request: Request, endpoint_id: EndpointId) -> Response:
    """Make it, or change it on the version that was read. The same address again changes nothing
    of an endpoint that works, so a PUT whose answer was lost may be repeated."""
    service = service_of(request)
    caller = await _operator(request, service=service)
    tags = _if_match(request)
    terms = await _read_terms(request, settings=service.settings)
    known = await service.ledger.endpoints.read(tenant=caller.tenant, endpoint=endpoint_id)
    if known is None and tags is None:
        made = await service.ledger.endpoints.add(
            tenant=caller.tenant,
            endpoint=endpoint_id,
            url=terms.url,
            secret=_new_secret(),
            now=service.now(),
        )
        if made is not None:
            await asyncio.sleep(UNSURE_SECONDS)  # by now every process tells of what it accepts
            return _answer(made, status=201)
        known = await service.ledger.endpoints.read(tenant=caller.tenant, endpoint=endpoint_id)
        if known is None:
            raise _does_not_fit(f"A tenant may have {ENDPOINTS_MAX} endpoints.")
    if known is not None and tags is None and known.url == terms.url and known.enabled:
        await asyncio.sleep(_unsure_seconds(known, service=service))
        return _answer(known)
    changed = await service.ledger.endpoints.change(
        tenant=caller.tenant,
        endpoint=endpoint_id,
        url=terms.url,
        revision=_judged(known, tags),
        now=service.now(),
    )
    return _answer(_changed(changed))


@router.post(
    f"{PATH}/secret",
    summary="Give an endpoint a new secret; the one before counts for a day more",
    operation_id="endpoints.rotate",
    response_model=EndpointWithSecret,
    responses=problem_answers(*_CONDITIONAL) | {200: {"headers": _ETAG}},
    openapi_extra={"parameters": [_IF_MATCH]},
)
async def rotate_secret(request: Request, endpoint_id: EndpointId) -> Response:
    """The answer is the only sight of the new secret."""
    service = service_of(request)
    caller = await _operator(request, service=service)
    known = await _existing(caller, endpoint_id, service=service)
    changed = await service.ledger.endpoints.rotate(
        tenant=caller.tenant,
        endpoint=endpoint_id,
        secret=_new_secret(),
        revision=_judged(known, _if_match(request)),
        now=service.now(),
    )
    return _answer(_changed(changed))


@router.delete(
    PATH,
    summary="Delete an endpoint, and what waits to be delivered to it",
    operation_id="endpoints.delete",
    status_code=204,
    responses=problem_answers(*_CONDITIONAL),
    openapi_extra={"parameters": [_IF_MATCH]},
)
async def delete_endpoint(request: Request, endpoint_id: EndpointId) -> Response:
    """Delete it on the version that was read."""
    service = service_of(request)
    caller = await _operator(request, service=service)
    known = await _existing(caller, endpoint_id, service=service)
    revision = _judged(known, _if_match(request))
    gone = await service.ledger.endpoints.remove(
        tenant=caller.tenant, endpoint=endpoint_id, revision=revision
    )
    if not gone:
        raise _stale()
    return Response(status_code=204)


async def _operator(request: Request, *, service: Service) -> Caller:
    """Who decides where a tenant's events go. Raises Problem."""
    caller = await service.keys.identify(request)
    caller.require_operator()
    return caller


async def _existing(caller: Caller, endpoint_id: str, *, service: Service) -> Endpoint:
    endpoint = await service.ledger.endpoints.read(tenant=caller.tenant, endpoint=endpoint_id)
    if endpoint is None:
        raise Problem(ProblemName.NOT_FOUND, "There is no such endpoint.")
    return endpoint


async def _read_terms(request: Request, *, settings: ApiSettings) -> EndpointTerms:
    body, _ = await boundary.read_json_body(request, bytes_max=16 * 1024)
    terms = boundary.fit(EndpointTerms, body)
    if isinstance(terms, list):
        raise boundary.does_not_fit("an endpoint", terms)
    try:
        check_address(
            terms.url,
            allow_http=settings.endpoints_allow_http,
            allow_private=settings.endpoints_allow_private,
        )
    except AddressRefused as refused:
        raise _does_not_fit(f"{refused}.") from None
    return terms


def _if_match(request: Request) -> Tags | None:
    lines = request.headers.getlist("if-match")
    try:
        return parse_preconditions(if_match=lines, if_none_match=()).if_match
    except PreconditionMalformed as error:
        raise _does_not_fit(f"{error}.") from None


def _judged(known: Endpoint | None, tags: Tags | None) -> int:
    """The revision to change, when it is the one that was read. Raises Problem."""
    if tags is None:
        raise Problem(
            ProblemName.PRECONDITION_REQUIRED,
            "Send the ETag of the endpoint that you have read in If-Match.",
        )
    if known is None or not tags.match_strongly(_etag(known)):
        raise _stale()
    return known.revision


def _changed(endpoint: Endpoint | None) -> Endpoint:
    if endpoint is None:
        raise _stale()
    return endpoint


def _stale() -> Problem:
    return Problem(
        ProblemName.PRECONDITION_FAILED, "The endpoint is not, or not as it was when it was read."
    )


def _does_not_fit(message: str) -> Problem:
    return Problem(
        ProblemName.VALIDATION_FAILED,
        message,
        members={"errors": [{"pointer": "/url", "message": message}]},
    )


def _unsure_seconds(known: Endpoint, *, service: Service) -> float:
    """For how long some process may still not know that the tenant has an endpoint."""
    age = service.now() - known.created_at
    return UNSURE_SECONDS if age.total_seconds() < 2 * UNSURE_SECONDS else 0.0


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def _etag(endpoint: Endpoint) -> str:
    return f'"{int(endpoint.created_at.timestamp() * 1_000_000):x}-{endpoint.revision:x}"'


def _answer(endpoint: Endpoint, *, status: int = 200) -> Response:
    headers = {"etag": _etag(endpoint), "cache-control": "no-store"}
    if status == 201:
        headers["location"] = f"/v1/endpoints/{endpoint.id}"
    return JSONResponse(_resource(endpoint), status_code=status, headers=headers)


def _resource(endpoint: Endpoint) -> dict[str, Any]:
    since, retry_at = endpoint.failing_since, endpoint.retry_at
    resource = EndpointResource(
        id=endpoint.id,
        url=endpoint.url,
        state=EndpointState.ENABLED if endpoint.enabled else EndpointState.DISABLED,
        failures=endpoint.failures,
        failing_since=None if since is None else resources.instant(since),
        last_error=endpoint.last_error,
        next_attempt_at=None if retry_at is None else resources.instant(retry_at),
        pending=endpoint.pending,
        created_at=resources.instant(endpoint.created_at),
        updated_at=resources.instant(endpoint.updated_at),
    )
    secret = {} if endpoint.secret is None else {"secret": endpoint.secret}
    return {**resource.model_dump(), **secret}
