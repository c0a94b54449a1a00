"""Routes for operators: cancel an operation, decide about a step. Each on the version they read.

The run itself judges whether it can take a verdict (a Temporal update with a validator), and the
answer comes when the verdict stands in the ledger.
"""

import json
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, StringConstraints, model_validator
from starlette.responses import Response

from api import boundary, resources
from api.authentication import Caller
from api.documentation import ETAG_LIST, OperationResource, about_operation, problem_answers
from api.problems import Problem, ProblemName
from api.reading import named_claim
from api.service import ExecutorUnavailable, Service, UpdateRefused, service_of
from ledger.claims import Claim
from ledger.reading import Account
from operations.contracts import CancelRequest, Decision, EffectRecord
from operations.declaration import Request as Form
from operations.declaration import SagaOperation
from operations.keys import Purpose
from operations.preconditions import PreconditionMalformed, Tags, parse_preconditions
from operations.states import ClaimState, EffectState, Verdict
from operations.strict_json import JsonValue

BODY_BYTES_MAX = 16 * 1024
"""Evidence has two thousand characters at the most."""

_PATH = "/v1/operations/{operation}/{key}"
_UNDECIDED = (EffectState.PARKED, EffectState.UNKNOWN, EffectState.SENT)
"""What a verdict can be about, the most pressing first."""

_Prose = StringConstraints(strip_whitespace=True, pattern=r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$")
Evidence = Annotated[str, _Prose, Field(min_length=1, max_length=2000)]
Reason = Annotated[str, _Prose, Field(max_length=500)]
ProviderReference = Annotated[
    str, Field(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$", examples=["ch_1"])
]

F = TypeVar("F", bound=Form)

router = APIRouter(tags=["operating"])


class Resolution(Form):
    """A verdict about one step, with its evidence."""

    verdict: Verdict
    evidence: Evidence
    provider_reference: ProviderReference | None = None
    """For `confirmed`: what the provider calls the effect."""
    purpose: Purpose | None = None
    """Which of the step's effects; left out, the one that waits for a verdict."""

    @model_validator(mode="after")
    def _names_what_exists(self) -> "Resolution":
        if self.verdict is Verdict.CONFIRMED and self.provider_reference is None:
            raise ValueError("provider_reference is needed to confirm")
        return self


class Cancellation(Form):
    """A wish to cancel."""

    reason: Reason = ""


_IF_MATCH: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "required": True,
    "description": "The ETag of the resource that was judged.",
    "schema": {"type": "string", "pattern": ETAG_LIST},
    "example": '"1f-2"',
}
_ANSWERS = {
    200: {"description": "It is recorded.", "headers": about_operation("ETag")}
} | problem_answers(
    ProblemName.BODY_MALFORMED,
    ProblemName.KEY_MALFORMED,
    ProblemName.UNAUTHENTICATED,
    ProblemName.FORBIDDEN,
    ProblemName.OPERATION_UNKNOWN,
    ProblemName.NOT_FOUND,
    ProblemName.VERDICT_REFUSED,
    ProblemName.PRECONDITION_FAILED,
    ProblemName.PRECONDITION_REQUIRED,
    ProblemName.BODY_TOO_LARGE,
    ProblemName.MEDIA_TYPE_UNSUPPORTED,
    ProblemName.VALIDATION_FAILED,
    ProblemName.STORAGE_UNAVAILABLE,
    ProblemName.EXECUTOR_UNAVAILABLE,
)


def _documented(
    model: type[BaseModel], *, required: bool, examples: dict[str, Any]
) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    if model is Resolution:
        schema["if"] = {"properties": {"verdict": {"const": Verdict.CONFIRMED.value}}}
        schema["then"] = {
            "required": ["provider_reference"],
            "properties": {"provider_reference": {"type": "string"}},
        }
    properties: dict[str, Any] = schema["properties"]
    for name, kind in (("verdict", Verdict), ("purpose", Purpose)):
        if name in properties:
            properties[name] = {"type": "string", "enum": [value.value for value in kind]}
    return {
        "parameters": [_IF_MATCH],
        "requestBody": {
            "required": required,
            "content": {
                "application/json": {
                    "schema": schema,
                    "examples": {name: {"value": value} for name, value in examples.items()},
                }
            },
        },
    }


@router.post(
    f"{_PATH}/cancel",
    summary="Cancel an operation: what was done is undone",
    operation_id="operating.cancel",
    response_model=OperationResource,
    responses=_ANSWERS,
    openapi_extra=_documented(
        Cancellation, required=False, examples={"cancel": {"reason": "The customer called."}}
    ),
)
async def cancel(request: Request) -> Response:
    """Ask the run to cancel. 200 when the wish is recorded; what follows, the resource shows."""
    service = service_of(request)
    caller, claim = await _called(request, service=service)
    wish = await _read(request, Cancellation, "a cancel", may_be_empty=True)
    account = await _on_version(request, claim, service=service)
    await _tell_run(
        account.claim,
        CancelRequest(requested_by=_name(caller), reason=wish.reason),
        service=service,
    )
    return await _answer(account.claim, service=service)


@router.post(
    f"{_PATH}/steps/{{step}}/resolution",
    summary="Decide about a step, with evidence",
    operation_id="operating.resolve",
    response_model=OperationResource,
    responses=_ANSWERS,
    openapi_extra=_documented(
        Resolution,
        required=True,
        examples={
            "confirmed": {
                "verdict": "confirmed",
                "provider_reference": "ch_1",
                "evidence": "The provider's dashboard shows ch_1 for 24.00 EUR.",
            },
            "absent": {"verdict": "absent", "evidence": "The provider's support, case 4711."},
        },
    ),
)
async def resolve(request: Request, step: str) -> Response:
    """Give the run a verdict. 200 when it is recorded, with who gave it and the evidence."""
    service = service_of(request)
    caller, claim = await _called(request, service=service)
    _check_step(claim, step, service=service)
    resolution = await _read(request, Resolution, "a resolution", may_be_empty=False)
    account = await _on_version(request, claim, service=service)
    judged = _judged(account, step, purpose=resolution.purpose)
    await _check_reference(judged, resolution, service=service)
    decision = Decision(
        step=step,
        purpose=judged.purpose,
        verdict=resolution.verdict,
        provider_reference=resolution.provider_reference,
        evidence=resolution.evidence,
        decided_by=_name(caller),
        about=judged.key,
    )
    await _tell_run(account.claim, decision, service=service)
    return await _answer(account.claim, service=service)


async def _called(request: Request, *, service: Service) -> tuple[Caller, Claim]:
    """Who asks, and about what. Raises Problem."""
    caller = await service.keys.identify(request)
    caller.require_operator()
    return caller, await named_claim(request, caller, service=service)


async def _read(request: Request, form: type[F], what: str, *, may_be_empty: bool) -> F:
    """The body as `form`. Raises Problem."""
    body: JsonValue = {}
    length = request.headers.get("content-length", "0")
    empty = length == "0" and "transfer-encoding" not in request.headers
    if not (may_be_empty and empty):
        body, _ = await boundary.read_json_body(request, bytes_max=BODY_BYTES_MAX)
    read = boundary.fit(form, body)
    if isinstance(read, list):
        raise boundary.does_not_fit(what, read)
    return read


async def _on_version(request: Request, claim: Claim, *, service: Service) -> Account:
    """The operation as it stands, when that is the version the operator has read.

    Raises Problem: precondition-required, precondition-failed, verdict-refused.
    """
    tags = _if_match(request)
    account = await service.ledger.reading.account(claim)
    if not tags.match_strongly(resources.etag(account.claim)):
        raise Problem(
            ProblemName.PRECONDITION_FAILED,
            "The operation has changed since that version was read.",
            headers={**resources.answer_headers(account.claim)},
        )
    if not isinstance(service.operations[claim.operation], SagaOperation):
        raise _refused("A local operation ends in the transaction that begins it.")
    if not account.claim.state.is_open:
        raise _refused(f"The operation is {account.claim.state.value}.")
    return account


def _if_match(request: Request) -> Tags:
    try:
        conditions = parse_preconditions(
            if_match=request.headers.getlist("if-match"), if_none_match=()
        )
    except PreconditionMalformed as error:
        raise Problem(
            ProblemName.VALIDATION_FAILED,
            f"{error}.",
            members={"errors": [{"parameter": error.field, "message": "malformed"}]},
        ) from None
    if conditions.if_match is None:
        raise Problem(
            ProblemName.PRECONDITION_REQUIRED,
            "Send the ETag of the operation that you have read in If-Match.",
        )
    return conditions.if_match


def _check_step(claim: Claim, step: str, *, service: Service) -> None:
    operation = service.operations[claim.operation]
    steps = operation.steps if isinstance(operation, SagaOperation) else ()
    if step not in {found.name for found in steps}:
        raise Problem(ProblemName.NOT_FOUND, f"{claim.operation} has no step of this name.")


def _judged(account: Account, step: str, *, purpose: Purpose | None) -> EffectRecord:
    """The effect that the verdict is about. Raises Problem (verdict-refused)."""
    effects = [effect for effect in account.effects if effect.step == step]
    latest = [found for kind in Purpose if (found := resources.latest(effects, step, kind))]
    wanted = [effect for effect in latest if purpose in {None, effect.purpose}]
    for state in _UNDECIDED:
        for effect in wanted:
            if effect.state is state:
                return effect
    if not wanted:
        raise _refused(f"The step {step!r} has not come so far.")
    states = ", ".join(f"{effect.purpose.value} {effect.state.value}" for effect in wanted)
    raise _refused(f"There is nothing to decide about {step!r}: {states}.")


async def _check_reference(
    judged: EffectRecord, resolution: Resolution, *, service: Service
) -> None:
    """A reference can belong to one effect only: else one operation could undo another's."""
    if resolution.verdict is not Verdict.CONFIRMED or resolution.provider_reference is None:
        return
    if await service.ledger.verdicts.is_taken(
        resolution.provider_reference,
        provider=judged.provider,
        account=judged.account,
        action=judged.action,
        key=judged.key,
    ):
        raise _refused("This provider reference is recorded for another effect already.")


async def _tell_run(claim: Claim, message: Decision | CancelRequest, *, service: Service) -> None:
    """Give the run the message; returns when it is recorded. Raises Problem."""
    try:
        if claim.state is ClaimState.ACCEPTED:
            await service.executor.start(claim)
        match message:
            case Decision():
                await service.executor.resolve(claim, message)
            case CancelRequest():
                await service.executor.cancel(claim, message)
    except UpdateRefused as error:
        raise _refused(f"{error}.") from None
    except ExecutorUnavailable as error:
        raise Problem(
            ProblemName.EXECUTOR_UNAVAILABLE,
            f"{error}. Read the operation again: it shows whether this was taken.",
            headers={"retry-after": "5"},
        ) from None


async def _answer(claim: Claim, *, service: Service) -> Response:
    """The operation after the change."""
    fresh = await service.ledger.claims.read_many([claim.id])
    account = await service.ledger.reading.account(fresh[0] if fresh else claim)
    body = resources.resource(account, service=service)
    return Response(
        json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
        media_type="application/json",
        headers={
            **resources.answer_headers(account.claim),
            "etag": resources.etag(account.claim),
        },
    )


def _name(caller: Caller) -> str:
    """Who decides: the tenant, and which of its keys."""
    return f"{caller.tenant}/{caller.key_id}"


def _refused(why: str) -> Problem:
    return Problem(ProblemName.VERDICT_REFUSED, why)
