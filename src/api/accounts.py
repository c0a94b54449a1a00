"""Accounts: idempotent by nature, so without a key. Who must not overwrite says so with an ETag."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import JSONResponse, Response

from api import boundary
from api.documentation import ETAG_LIST, headers, problem_answers
from api.problems import Problem, ProblemName
from api.service import service_of
from ledger.accounts import Account, AccountRefusal, Put
from operations.accounts import (
    ACCOUNT_ID_CHARACTERS_MAX,
    ACCOUNT_ID_PATTERN,
    AccountResource,
    AccountTerms,
)
from operations.preconditions import (
    PreconditionMalformed,
    Preconditions,
    Verdict,
    parse_preconditions,
)

PATH = "/v1/accounts/{id}"
AccountIdInPath = Annotated[
    str,
    Path(
        alias="id",
        pattern=ACCOUNT_ID_PATTERN,
        max_length=ACCOUNT_ID_CHARACTERS_MAX,
        description="A name of the tenant's own.",
        examples=["cash"],
    ),
]

router = APIRouter(tags=["accounts"])


def _tag_header(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", "pattern": ETAG_LIST},
        "example": '"1f-2"',
    }


_PARAMETERS = [
    _tag_header("If-Match", "ETags, one of which the account must have; `*`: it must exist."),
    _tag_header(
        "If-None-Match", "ETags that the account must not have; `*`: it must not exist yet."
    ),
]
_SHARED_PROBLEMS = (
    ProblemName.UNAUTHENTICATED,
    ProblemName.PRECONDITION_FAILED,
    ProblemName.VALIDATION_FAILED,
    ProblemName.STORAGE_UNAVAILABLE,
)
_ETAG = headers("ETag")


@router.get(
    PATH,
    summary="An account and its balance",
    operation_id="accounts.read",
    response_model=AccountResource,
    responses=problem_answers(*_SHARED_PROBLEMS, ProblemName.NOT_FOUND)
    | {
        200: {"description": "The account.", "headers": _ETAG},
        304: {"description": "The client has it already.", "headers": _ETAG},
    },
    openapi_extra={"parameters": _PARAMETERS},
)
async def read_account(request: Request, account_id: AccountIdInPath) -> Response:
    """The account of the caller's tenant, with a strong ETag."""
    service = service_of(request)
    caller = await service.keys.identify(request)
    conditions = _conditions(request)
    account = await service.ledger.accounts.read(tenant=caller.tenant, account_id=account_id)
    if account is None:
        raise Problem(ProblemName.NOT_FOUND, "There is no such account.")
    match conditions.judge(account.etag, is_read=True):
        case Verdict.GO_ON:
            return JSONResponse(_resource(account), headers=_headers(account))
        case Verdict.NOT_MODIFIED:
            return Response(status_code=304, headers=_headers(account))
        case Verdict.FAILED:
            raise _precondition_failed()


@router.put(
    PATH,
    summary="Make an account, or change its terms",
    operation_id="accounts.put",
    response_model=AccountResource,
    responses=problem_answers(
        *_SHARED_PROBLEMS,
        ProblemName.BODY_MALFORMED,
        ProblemName.BODY_TOO_LARGE,
        ProblemName.MEDIA_TYPE_UNSUPPORTED,
    )
    | {
        200: {"description": "It was there, and has these terms now.", "headers": _ETAG},
        201: {
            "model": AccountResource,
            "description": "It was made.",
            "headers": headers("ETag", "Location"),
        },
    },
    openapi_extra={
        "parameters": _PARAMETERS,
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": AccountTerms.model_json_schema(),
                    "example": {"currency": "EUR", "floor_minor": 0},
                }
            },
        },
    },
)
async def put_account(request: Request, account_id: AccountIdInPath) -> Response:
    """Make or change the account of the caller's tenant. Repeating it changes nothing."""
    service = service_of(request)
    caller = await service.keys.identify(request)
    conditions = _conditions(request)
    terms = await _read_terms(request, bytes_max=service.settings.body_bytes_max)
    done = await service.ledger.accounts.put(
        terms,
        tenant=caller.tenant,
        account_id=account_id,
        allowed=lambda account: _allow(conditions, account),
        now=service.now(),
    )
    if not isinstance(done, Put):
        raise _refused(done)
    # The answer holds the whole representation, so its ETag promises nothing about the request's
    # body being stored as it was sent (RFC 9110, section 9.3.4).
    where = {"content-location": f"/v1/accounts/{account_id}"}
    if done.created:
        where["location"] = where["content-location"]
    return JSONResponse(
        _resource(done.account),
        status_code=201 if done.created else 200,
        headers={**_headers(done.account), **where},
    )


async def _read_terms(request: Request, *, bytes_max: int) -> AccountTerms:
    body, _ = await boundary.read_json_body(request, bytes_max=bytes_max)
    terms = boundary.fit(AccountTerms, body)
    if isinstance(terms, list):
        raise boundary.does_not_fit("an account", terms)
    return terms


def _allow(conditions: Preconditions, account: Account | None) -> bool:
    current = None if account is None else account.etag
    return conditions.judge(current, is_read=False) is Verdict.GO_ON


def _conditions(request: Request) -> Preconditions:
    try:
        return parse_preconditions(
            if_match=request.headers.getlist("if-match"),
            if_none_match=request.headers.getlist("if-none-match"),
        )
    except PreconditionMalformed as error:
        raise Problem(
            ProblemName.VALIDATION_FAILED,
            f"{error}.",
            members={"errors": [{"parameter": error.field, "message": "malformed"}]},
        ) from None


def _resource(account: Account) -> dict[str, Any]:
    return AccountResource(
        id=account.id,
        currency=account.terms.currency,
        floor_minor=account.terms.floor_minor,
        balance_minor=account.balance_minor,
    ).model_dump()


def _headers(account: Account) -> dict[str, str]:
    return {"etag": account.etag, "cache-control": "private, no-cache", "vary": "authorization"}


def _precondition_failed() -> Problem:
    return Problem(
        ProblemName.PRECONDITION_FAILED, "The account is not in the state that the request names."
    )


def _refused(refusal: AccountRefusal) -> Problem:
    match refusal:
        case AccountRefusal.PRECONDITION_FAILED:
            return _precondition_failed()
        case AccountRefusal.CURRENCY_IN_USE:
            return _does_not_go("/currency", "the account has entries in another currency")
        case AccountRefusal.FLOOR_ABOVE_BALANCE:
            return _does_not_go("/floor_minor", "the balance would be below the floor")


def _does_not_go(pointer: str, message: str) -> Problem:
    return boundary.does_not_fit("the account", [{"pointer": pointer, "message": message}])
