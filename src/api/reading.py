"""Routes that read: an operation by its key, and its receipt."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api import boundary, conditions, resources
from api.authentication import Caller
from api.documentation import ACCEPTED, OperationResource, about_operation, problem_answers
from api.keys_in_paths import key_from_path
from api.problems import Problem, ProblemName, not_found
from api.service import Service, service_of
from ledger.claims import Claim
from operations.preferences import Preferences
from operations.states import ClaimState

WAIT_SECONDS_MAX = 60
_PATH = "/v1/operations/{operation}/{key}"

router = APIRouter(tags=["reading"])
_CAN_FAIL = problem_answers(
    ProblemName.UNAUTHENTICATED,
    ProblemName.NOT_FOUND,
    ProblemName.KEY_MALFORMED,
    ProblemName.VALIDATION_FAILED,
    ProblemName.STORAGE_UNAVAILABLE,
)
IF_NONE_MATCH: dict[str, Any] = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETags that the client has already: then the answer is 304, without a body.",
    "schema": {"type": "string"},
}
Wait = Annotated[int, Query(ge=0, le=WAIT_SECONDS_MAX, description="Hold until it changes.")]


@router.head(_PATH, include_in_schema=False)
@router.get(
    _PATH,
    summary="An operation as it stands",
    operation_id="reading.read",
    response_model=OperationResource,
    responses=_CAN_FAIL
    | {
        200: {"description": "The operation.", "headers": about_operation("ETag")},
        304: {
            "description": "It is still what `If-None-Match` names.",
            "headers": about_operation("ETag"),
        },
    },
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def read_operation(request: Request, wait: Wait = 0) -> Response:
    """The operation resource, with a strong ETag."""
    service = service_of(request)
    claim = await find_claim(request, service=service)
    if wait and claim.state.is_open and _has_seen(request, claim):
        revision = claim.revision
        with service.waiters.watch(claim) as watch:
            claim = await watch.until(lambda now: now.revision != revision, seconds=wait)
    if conditions.has_already(request, resources.etag(claim)):
        return Response(status_code=304, headers=_headers(claim))
    account = await service.ledger.reading.account(claim)
    body = resources.resource(account, service=service)
    return Response(
        json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
        media_type="application/json",
        headers=_headers(account.claim),
    )


@router.head(f"{_PATH}/receipt", include_in_schema=False)
@router.get(
    f"{_PATH}/receipt",
    summary="The original answer itself",
    operation_id="reading.receipt",
    response_class=Response,
    responses=_CAN_FAIL
    | problem_answers(
        ProblemName.KEY_EXPIRED,
        ProblemName.DECLINED,
        ProblemName.COMPENSATED,
        ProblemName.CANCELLED,
        ProblemName.ABANDONED,
    )
    | {
        200: {
            "description": "The receipt: its own status, headers and bytes.",
            "headers": about_operation("Location", "Idempotent-Replayed"),
        },
        202: ACCEPTED | {"description": "There is no receipt yet."},
    },
)
async def read_receipt(request: Request) -> Response:
    """The receipt: status, headers and bytes; or 202 while there is none."""
    service = service_of(request)
    claim = await find_claim(request, service=service)
    if claim.state is ClaimState.EXPIRED:
        raise Problem(
            ProblemName.KEY_EXPIRED,
            "The answer is no longer kept.",
            headers=resources.answer_headers(claim),
        )
    if claim.receipt is not None:
        return boundary.receipt_response(claim, replayed=True, prefer=Preferences())
    account = await service.ledger.reading.account(claim)
    if account.claim.receipt is not None:
        return boundary.receipt_response(account.claim, replayed=True, prefer=Preferences())
    return boundary.accepted_response(account, service=service)


async def find_claim(request: Request, *, service: Service) -> Claim:
    """The claim that a path names, if it is the caller's tenant's. Raises Problem (not-found)."""
    caller = await service.keys.identify(request)
    return await named_claim(request, caller, service=service)


async def named_claim(request: Request, caller: Caller, *, service: Service) -> Claim:
    """The claim that a path names, of the caller's tenant. Raises Problem (not-found)."""
    key = key_from_path(request)
    operation = request.path_params["operation"]
    if operation not in service.operations:
        raise Problem(ProblemName.OPERATION_UNKNOWN, "There is no operation of this name.")
    claim = await service.ledger.claims.read(tenant=caller.tenant, operation=operation, key=key)
    if claim is None:
        raise not_found()
    return claim


def _has_seen(request: Request, claim: Claim) -> bool:
    """Whether the client knows `claim` as it is, or does not say what it knows."""
    return conditions.asks_for_any_change(request) or conditions.has_already(
        request, resources.etag(claim)
    )


def _headers(claim: Claim) -> dict[str, str]:
    return {**resources.answer_headers(claim), "etag": resources.etag(claim)}
