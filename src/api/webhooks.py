"""`POST /v1/webhooks/{provider}`: what providers tell us, by their signatures alone."""

import json
from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.responses import Response

from api import boundary
from api.documentation import problem_answers
from api.evidence import tell_run
from api.problems import Problem, ProblemName
from api.service import Service, service_of
from ledger.database import StorageUnavailable
from ledger.inbox import Proof
from operations.messages import Message, Novelty
from providers.webhook_events import STRIPE, BodyUnreadable, read_standard, read_stripe
from providers.webhook_signatures import SignatureInvalid, verify_standard, verify_stripe

_SIGNED = ("webhook-id", "webhook-timestamp", "webhook-signature", "stripe-signature")

_PROVIDER: dict[str, Any] = {
    "name": "provider",
    "in": "path",
    "required": True,
    "description": "One that this service has a secret of.",
    "schema": {"type": "string"},
    "example": "payments",
}

_log = structlog.get_logger(__name__)
router = APIRouter(tags=["receiving"])


class TakenResource(BaseModel):
    """That a message was taken in, and whether it was before."""

    status: Novelty


def _signed_by(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": "Of the signature, as the provider's scheme has it.",
        "schema": {"type": "string"},
    }


@router.post(
    "/v1/webhooks/{provider}",
    summary="Take a provider's webhook in",
    operation_id="webhooks.take",
    responses={
        200: {
            "model": TakenResource,
            "description": "It is kept: new, repeated, late or unknown, all alike.",
        },
        **problem_answers(
            ProblemName.SIGNATURE_INVALID,
            ProblemName.BODY_MALFORMED,
            ProblemName.REQUEST_TIMEOUT,
            ProblemName.BODY_TOO_LARGE,
            ProblemName.NOT_FOUND,
            ProblemName.STORAGE_UNAVAILABLE,
        ),
    },
    openapi_extra={
        "parameters": [_PROVIDER, *(_signed_by(name) for name in _SIGNED)],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
    },
)
async def take_webhook(request: Request) -> Response:
    """Verify the raw bytes, then take the message in, in one transaction. A repeat changes nothing.

    Runs are told after the answer has left: a provider waits for seconds only.
    """
    service = service_of(request)
    provider: str = request.path_params["provider"]
    secrets = service.settings.webhook_secrets.get(provider)
    if secrets is None:
        raise Problem(ProblemName.NOT_FOUND, "No webhooks are expected from a provider so named.")
    body = await boundary.read_body(request, bytes_max=service.settings.body_bytes_max)
    headers = _signature_headers(request)
    message = _verified(provider, body, headers=headers, secrets=secrets, service=service)
    taken = await service.ledger.inbox.take(message, now=service.now())
    _log.info(
        "webhook.taken",
        provider=provider,
        entity=message.entity,
        version=message.version,
        novelty=taken.novelty.value,
        reading=None if taken.reading is None else taken.reading.value,
    )
    telling = None if taken.proof is None else BackgroundTask(_tell, taken.proof, service)
    return Response(
        json.dumps({"status": taken.novelty.value}).encode(),
        media_type="application/json",
        headers={"cache-control": "no-store"},
        background=telling,
    )


def _verified(
    provider: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    secrets: tuple[str, ...],
    service: Service,
) -> Message:
    """The message, once its signature has been found good. Raises Problem."""
    try:
        if provider == STRIPE:
            now_seconds = service.now().timestamp()
            verify_stripe(body, headers=headers, secrets=secrets, now_seconds=now_seconds)
            return read_stripe(body)
        verify_standard(body, headers=headers, secrets=secrets)
        return read_standard(provider, body, message_id=headers["webhook-id"])
    except SignatureInvalid as error:
        raise Problem(ProblemName.SIGNATURE_INVALID, f"{error}.") from None
    except BodyUnreadable as error:
        raise Problem(ProblemName.BODY_MALFORMED, f"The signature is good, but {error}.") from None


def _signature_headers(request: Request) -> dict[str, str]:
    """The headers that a signature needs. Raises Problem for one that is there twice."""
    found: dict[str, str] = {}
    for name in _SIGNED:
        lines = request.headers.getlist(name)
        if len(lines) > 1:
            raise Problem(ProblemName.SIGNATURE_INVALID, f"The header {name} is there twice.")
        if lines:
            found[name] = lines[0]
    return found


async def _tell(proof: Proof, service: Service) -> None:
    try:
        await tell_run(proof, ledger=service.ledger, executor=service.executor)
    except StorageUnavailable as error:
        _log.warning("proof.not_told", claim=proof.claim_id, reason=str(error))
