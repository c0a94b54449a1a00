"""Messages that contradict our books, for operators: they settled nothing, whoever sent them.

Where the provider's books can be listed, a reconciliation run compares those too, and finds what is
true; this list shows what was said, also by those whose books cannot be read.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from api.documentation import Instant
from api.reconciliation_documentation import FindingAmount
from api.reconciliation_shared import ID_MAX, READS, Cursor, Limit, answer_json, operator
from api.resources import instant
from ledger.contradictions import Contradiction
from operations.messages import Reading
from operations.receipts import operation_path

router = APIRouter(tags=["reconciliation"])


class ContradictionLinks(BaseModel):
    """Where else to look; the operation's own tenant can read it."""

    operation: str


class ContradictionResource(BaseModel):
    """A message that does not fit what we know of the effect that it is about."""

    id: int
    provider: str
    entity: str
    version: str
    state: str
    """The sender's own word."""
    event: str
    """The sender's number of the event, where it has one."""
    reading: Literal[Reading.DIFFERS, Reading.TOO_LATE]
    """`differs`: another amount or identifier; `too_late`: the operation ended without it."""
    reference: str | None
    provider_reference: str | None
    amount: FindingAmount | None
    received_at: Instant
    tenant: str
    operation: str
    key: str
    step: str
    links: ContradictionLinks


class ContradictionList(BaseModel):
    """A page of contradictions, newest first."""

    contradictions: list[ContradictionResource]
    next_cursor: int | None


@router.get(
    "/v1/reconciliation/contradictions",
    summary="Messages that contradict our books, newest first",
    operation_id="contradictions.list",
    response_model=ContradictionList,
    responses=READS,
)
async def list_contradictions(
    request: Request,
    *,
    provider: Annotated[str | None, Query(max_length=64)] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """A page of them; it goes on at `next_cursor`. Messages are kept for 90 days."""
    service, _ = await operator(request)
    found = await service.ledger.contradictions.page(
        provider=provider, before_id=cursor or ID_MAX, limit=limit + 1
    )
    page = found[:limit]
    following = page[-1].id if len(found) > limit else None
    return answer_json(
        {"contradictions": [_resource(one) for one in page], "next_cursor": following}
    )


def _resource(found: Contradiction) -> dict[str, Any]:
    minor = found.amount_minor
    return {
        "id": found.id,
        "provider": found.provider,
        "entity": found.entity,
        "version": found.version,
        "state": found.state,
        "event": found.event,
        "reading": found.reading.value,
        "reference": found.reference,
        "provider_reference": found.provider_reference,
        "amount": None if minor is None else {"minor": minor, "currency": found.currency},
        "received_at": instant(found.received_at),
        "tenant": found.tenant,
        "operation": found.operation,
        "key": found.key,
        "step": found.step,
        "links": {"operation": operation_path(operation=found.operation, key=found.key)},
    }
