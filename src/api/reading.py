"""Routes that read: an operation by its key, and its receipt."""

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api import boundary, resources
from api.documentation import OperationResource, problem_answers
from api.keys_in_paths import key_from_path
from api.problems import Problem, ProblemName, not_found
from api.service import Service, service_of
from ledger.claims import Claim
from operations.preferences import Preferences
from operations.states import ClaimState

WAIT_SECONDS_MAX = 60

router = APIRouter(tags=["reading"])
_CAN_FAIL = problem_answers(
    ProblemName.UNAUTHENTICATED,
    ProblemName.NOT_FOUND,
    ProblemName.KEY_MALFORMED,
    ProblemName.VALIDATION_FAILED,
    ProblemName.STORAGE_UNAVAILABLE,
)
Wait = Annotated[int, Query(ge=0, le=WAIT_SECONDS_MAX, description="Hold until it changes.")]


@router.get(
    "/v1/operations/{operation}/{key}",
    summary="An operation as it stands",
    response_model=OperationResource,
    responses=_CAN_FAIL,
)
async def read_operation(request: Request, wait: Wait = 0) -> Response:
    """The operation resource, with a strong ETag."""
    service = service_of(request)
    claim = await find_claim(request, service=service)
    known = request.headers.get("if-none-match")
    if wait and claim.state.is_open and known in {None, resources.etag(claim)}:
        revision = claim.revision
        with service.waiters.watch(claim) as watch:
            claim = await watch.until(lambda now: now.revision != revision, seconds=wait)
    tag = resources.etag(claim)
    if known is not None and tag in {part.strip() for part in known.split(",")}:
        return Response(status_code=304, headers={"etag": tag})
    effects = await service.ledger.reading.effects(claim.id)
    body = resources.resource(claim, effects, service=service)
    return Response(
        json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
        media_type="application/json",
        headers={**resources.answer_headers(claim), "etag": tag},
    )


@router.get(
    "/v1/operations/{operation}/{key}/receipt",
    summary="The original answer itself",
    responses=_CAN_FAIL | problem_answers(ProblemName.KEY_EXPIRED),
)
async def read_receipt(request: Request) -> Response:
    """The receipt: status, headers and bytes; or 202 while there is none."""
    service = service_of(request)
    claim = await find_claim(request, service=service)
    if claim.state is ClaimState.EXPIRED:
        raise Problem(ProblemName.KEY_EXPIRED, "The answer is no longer kept.")
    if claim.receipt is not None:
        return boundary.receipt_response(claim, replayed=True, prefer=Preferences())
    headers = resources.answer_headers(claim)
    headers["retry-after"] = str(resources.retry_after_seconds(claim))
    return Response(status_code=202, headers=headers)


async def find_claim(request: Request, *, service: Service) -> Claim:
    """The claim that a path names, if it is the caller's tenant's. Raises Problem (not-found)."""
    caller = await service.keys.identify(request)
    key = key_from_path(request)
    operation = request.path_params["operation"]
    if operation not in service.operations:
        raise Problem(ProblemName.OPERATION_UNKNOWN, "There is no operation of this name.")
    claim = await service.ledger.claims.read(tenant=caller.tenant, operation=operation, key=key)
    if claim is None:
        raise not_found()
    return claim
