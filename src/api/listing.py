"""The list of a tenant's operations: keyset pages, newest first."""

import base64
import binascii
import hashlib
import json
import struct
import zlib
from datetime import UTC, datetime, timedelta
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api import conditions, resources
from api.documentation import OperationList, headers, problem_answers
from api.problems import Problem, ProblemName
from api.reading import IF_NONE_MATCH
from api.service import Service, service_of
from ledger.reading import Position
from operations.moments import Moment
from operations.states import ClaimState

LIMIT_DEFAULT = 20
LIMIT_MAX = 100
"""A page of this many resources has some 200 kB."""

_PATH = "/v1/operations"
_PARAMETERS = ("operation", "state", "created_after", "limit", "cursor")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
_CURSOR = struct.Struct(">Bqq")
_CURSOR_VERSION = 1
_ID_MAX = 2**63 - 1
_START = Position(created_at=_LAST, claim_id=_ID_MAX)

router = APIRouter(tags=["reading"])


@router.head(_PATH, include_in_schema=False)
@router.get(
    _PATH,
    summary="The tenant's operations, newest first",
    operation_id="reading.list",
    response_model=OperationList,
    responses=problem_answers(
        ProblemName.UNAUTHENTICATED,
        ProblemName.VALIDATION_FAILED,
        ProblemName.STORAGE_UNAVAILABLE,
    )
    | {
        200: {"description": "A page.", "headers": headers("ETag", "Link")},
        304: {
            "description": "The page is still what `If-None-Match` names.",
            "headers": headers("ETag", "Link"),
        },
    },
    openapi_extra={"parameters": [IF_NONE_MATCH]},
)
async def list_operations(
    request: Request,
    *,
    operation: Annotated[str | None, Query(description="Such as `orders.place`.")] = None,
    state: Annotated[ClaimState | None, Query(description="Where it stands.")] = None,
    created_after: Annotated[
        Moment | None, Query(description="Accepted after this; RFC 3339 with an offset.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
    cursor: Annotated[
        str | None,
        Query(pattern=r"^[A-Za-z0-9_-]{28}$", description="From `next_cursor`, as it is."),
    ] = None,
) -> Response:
    """A page. It goes on at `next_cursor`, which is also the `Link` with `rel="next"`."""
    service = service_of(request)
    caller = await service.keys.identify(request)
    check_parameters(request)
    found = await service.ledger.reading.page(
        tenant=caller.tenant,
        operations=_wanted_operations(operation, service=service),
        states=[state] if state else list(ClaimState),
        created_after=_bounded(created_after or _FIRST),
        before=_START if cursor is None else read_cursor(cursor),
        limit=limit + 1,
    )
    page = await service.ledger.reading.accounts(found[:limit])
    following = None
    if len(found) > limit:
        last = found[limit - 1]
        following = write_cursor(Position(created_at=last.created_at, claim_id=last.id))
    document = {
        "operations": [resources.resource(account, service=service) for account in page],
        "next_cursor": following,
    }
    return _answer(request, document, following=following)


def check_parameters(request: Request) -> None:
    """Raises Problem (validation-failed) for unknown and for repeated query parameters.

    A misspelt filter that is ignored would list what was not asked for.
    """
    names = [name for name, _ in request.query_params.multi_items()]
    wrong = [name for name in dict.fromkeys(names) if name not in _PARAMETERS]
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if wrong or repeated:
        errors = [{"parameter": name[:100], "message": "unknown"} for name in wrong[:10]]
        errors += [{"parameter": name[:100], "message": "repeated"} for name in repeated[:10]]
        raise Problem(
            ProblemName.VALIDATION_FAILED,
            f"The parameters are {', '.join(_PARAMETERS)}, each once at the most.",
            members={"errors": errors},
        )


def write_cursor(position: Position) -> str:
    """A position as clients see it: opaque, safe in a URL, 28 characters."""
    micros = (position.created_at - _EPOCH) // timedelta(microseconds=1)
    packed = _CURSOR.pack(_CURSOR_VERSION, micros, position.claim_id)
    return base64.urlsafe_b64encode(packed + struct.pack(">I", zlib.crc32(packed))).decode()


def read_cursor(cursor: str) -> Position:
    """The position in a cursor. Raises Problem (validation-failed) for what is not one of ours.

    The checksum finds what was cut or mistyped; a forged position shows nothing but the tenant's
    own operations.
    """
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        packed, checksum = raw[:-4], raw[-4:]
        version, micros, claim_id = _CURSOR.unpack(packed)
        created_at = _EPOCH + timedelta(microseconds=micros)
    except (binascii.Error, struct.error, OverflowError, ValueError):
        raise _cursor_malformed() from None
    good = checksum == struct.pack(">I", zlib.crc32(packed)) and version == _CURSOR_VERSION
    if not good or claim_id < 1 or not _FIRST <= created_at <= _LAST:
        raise _cursor_malformed()
    return Position(created_at=created_at, claim_id=claim_id)


def _cursor_malformed() -> Problem:
    return Problem(
        ProblemName.VALIDATION_FAILED,
        "The cursor is not one that this service gave.",
        members={"errors": [{"parameter": "query.cursor", "message": "malformed"}]},
    )


def _wanted_operations(operation: str | None, *, service: Service) -> list[str]:
    if operation is None:
        return list(service.operations)
    if operation not in service.operations:
        raise Problem(
            ProblemName.VALIDATION_FAILED,
            "There is no operation of this name.",
            members={"errors": [{"parameter": "query.operation", "message": "unknown operation"}]},
        )
    return [operation]


def _bounded(moment: datetime) -> datetime:
    """The same moment, or the nearest that every part can hold in UTC."""
    try:
        return min(max(moment.astimezone(UTC), _FIRST), _LAST)
    except OverflowError:
        return _FIRST if moment.year == 1 else _LAST


def _answer(request: Request, document: object, *, following: str | None) -> Response:
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-store"}
    if following is not None:
        kept = {name: value for name, value in request.query_params.items() if name != "cursor"}
        target = f"{_PATH}?{urlencode({**kept, 'cursor': following})}"
        headers["link"] = f'<{target}>; rel="next"'
    if conditions.has_already(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)
