"""Server-sent events: an operation's state and steps, as they change, until it is done."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import structlog
from fastapi import APIRouter, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from api import resources
from api.authentication import Caller
from api.documentation import about_operation, problem_answers
from api.problems import ProblemName
from api.reading import named_claim
from api.service import Service, service_of
from ledger.claims import Claim
from ledger.database import StorageUnavailable

HEARTBEAT_SECONDS = 15
"""Shorter than the 30 to 60 s after which proxies drop a silent connection."""

LIFE_SECONDS = 300.0
"""Then the stream ends and the client comes back with Last-Event-ID: no connection lives for days
on a credential that was checked once, and a deployment drains."""

SEND_SECONDS = 10.0
"""A client that does not read for so long is given up."""

CREDENTIAL_CHECK_SECONDS = 2.0
"""A revoked key ends its streams well within the five seconds that are promised."""

RETRY_MILLISECONDS = 1000
DRAIN_SECONDS = 2.0

_PATH = "/v1/operations/{operation}/{key}/events"
_EVENT_ID = re.compile(r"[0-9]{1,10}")
_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"type": "string", "enum": ["state"]},
        "id": {"type": "string", "pattern": f"^{_EVENT_ID.pattern}$"},
        "retry": {"type": "integer", "minimum": 0},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": "#/components/schemas/OperationResource"},
        },
    },
}
_log = structlog.get_logger(__name__)

router = APIRouter(tags=["reading"])


@router.head(_PATH, include_in_schema=False)
@router.get(
    _PATH,
    summary="Events of an operation's state and steps",
    operation_id="reading.events",
    response_class=EventSourceResponse,
    responses={
        200: {
            "description": "Events named `state`: `data` is the operation resource, `id` counts "
            "its changes. Ends after the state `done`. What was overtaken before it could be sent "
            "is left out.",
            "content": {"text/event-stream": {"schema": _EVENT}},
            "headers": about_operation(),
        },
        204: {
            "description": "Nothing will come after `Last-Event-ID`: do not connect again.",
            "headers": about_operation(),
        },
    }
    | problem_answers(
        ProblemName.UNAUTHENTICATED,
        ProblemName.NOT_FOUND,
        ProblemName.KEY_MALFORMED,
        ProblemName.RATE_LIMITED,
        ProblemName.STORAGE_UNAVAILABLE,
    ),
    openapi_extra={
        "parameters": [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "The `id` of the last event that came: go on after it.",
                "schema": {"type": "string"},
            }
        ]
    },
)
async def stream_events(request: Request) -> Response:
    """The resource at once, and again at each change; after a break, from `Last-Event-ID` on."""
    service = service_of(request)
    caller = await service.keys.identify(request)
    claim = await named_claim(request, caller, service=service)
    seen = _last_seen(request, claim)
    headers = resources.answer_headers(claim)
    if not claim.state.is_open and seen == claim.revision:
        return Response(status_code=204, headers=headers)
    service.streams.check(caller.tenant)
    return EventSourceResponse(
        _events(claim, caller, seen=seen, service=service),
        headers=headers,
        ping=HEARTBEAT_SECONDS,
        send_timeout=SEND_SECONDS,
        shutdown_grace_period=DRAIN_SECONDS,
    )


async def _events(
    claim: Claim, caller: Caller, *, seen: int, service: Service
) -> AsyncGenerator[ServerSentEvent]:
    """One event for each change that is noticed. Closing it frees all that it holds."""
    clock = asyncio.get_running_loop().time
    ends_at = clock() + LIFE_SECONDS
    latest = claim
    with service.streams.opened(caller.tenant), service.waiters.watch(claim) as watch:
        while True:
            if latest.revision > seen:
                try:
                    account = await service.ledger.reading.account(latest)
                except StorageUnavailable as error:
                    _log.warning("stream.ended", claim=claim.id, reason=str(error))
                    return
                seen = account.claim.revision
                body = resources.resource(account, service=service)
                yield ServerSentEvent(
                    json.dumps(body, ensure_ascii=False, separators=(",", ":")),
                    event="state",
                    id=str(seen),
                    retry=RETRY_MILLISECONDS,
                )
                if not account.claim.state.is_open:
                    return
            left = ends_at - clock()
            if left <= 0 or service.waiters.draining or not service.keys.is_live(caller):
                return
            latest = await watch.until(
                partial(_is_past, seen), seconds=min(left, CREDENTIAL_CHECK_SECONDS)
            )


def _is_past(seen: int, claim: Claim) -> bool:
    return claim.revision > seen


def _last_seen(request: Request, claim: Claim) -> int:
    """The change that the client saw last; 0 when it does not say, or says what cannot be."""
    said = request.headers.get("last-event-id", "")
    number = int(said) if _EVENT_ID.fullmatch(said) else 0
    return number if number <= claim.revision else 0
