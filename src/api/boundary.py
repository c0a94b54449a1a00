"""The idempotency boundary: read a request strictly, claim its key, answer the truth about it."""

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from api import measures, resources
from api.authentication import Caller
from api.claiming import claim_by_kind
from api.problems import Problem, ProblemName
from api.service import ExecutorUnavailable, Service
from ledger.claims import Claim, Intent
from ledger.reading import Account
from operations.declaration import Operation, SagaOperation
from operations.declaration import Request as OperationRequest
from operations.failpoints import Failpoint, fail_at
from operations.fingerprint import canonical_bytes, differing_pointers, fingerprint
from operations.keys import KeyMalformed, KeyMissing, parse_key_header
from operations.preferences import Preferences, parse_prefer
from operations.receipts import operation_path
from operations.states import ClaimState
from operations.strict_json import JsonMalformed, JsonValue, read_json

LARGE_BODY_BYTES = 32 * 1024
"""Bodies above this are read in a thread: a hostile one would hold the event loop for 100 ms."""

BODY_SECONDS = 20.0
"""A quarter of a megabyte takes this long at 13 kB/s. Slower clients hold nothing but a socket."""

NEVER_STARTED_SECONDS = 2.0
"""A claim that is still accepted after this long may have lost the process that was to start it:
whoever attaches makes sure that there is a run."""

START_PATIENCE_SECONDS = 1.0
"""Who does not want to wait for the end waits this long for the start: then the operation is there
to be looked at, in Temporal too. In the middle of a flood of its tenant, it may start later."""

GIVEN_UP_SECONDS = 1.0
"""How long nobody waits for a run that could not be started: then the relay may have done it."""

Model = TypeVar("Model", bound=BaseModel)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Submission:
    """A request that has been read, and found good."""

    operation: Operation
    intent: Intent
    body: JsonValue
    prefer: Preferences


async def submit(
    request: Request, caller: Caller, operation: Operation, key: str, *, service: Service
) -> Response:
    """Claim, attach or replay, and answer. Raises Problem, StorageUnavailable."""
    request.state.fate = measures.Fate.REFUSED
    try:
        return await _submit(request, caller, operation, key, service=service)
    finally:
        measures.CLAIMS.labels(operation.name, request.state.fate.value).inc()


async def _submit(
    request: Request, caller: Caller, operation: Operation, key: str, *, service: Service
) -> Response:
    submission = await read_submission(request, caller, operation, key, service=service)
    claim = first = await claim_key(submission, service=service)
    if claim.state is ClaimState.EXPIRED:
        raise _expired(claim)
    if claim.fingerprint != submission.intent.fingerprint:
        raise _key_reused(claim, submission)
    request.state.fate = _fate(first)
    if claim.receipt is None:
        claim, submission = await attach(claim, submission, service=service)
    if claim.outcome is not None:
        request.state.outcome = claim.outcome.value
    fail_at(Failpoint.ANSWER_SENDING)
    return await answer(claim, submission, replayed=not first.fresh, service=service)


async def read_submission(
    request: Request, caller: Caller, operation: Operation, key: str, *, service: Service
) -> Submission:
    """Read the request strictly. Nothing is claimed yet."""
    _check_query(request)
    body, canonical = await read_json_body(request, bytes_max=service.settings.body_bytes_max)
    intent = Intent(
        tenant=caller.tenant,
        operation=operation.name,
        key=key,
        fingerprint=fingerprint(operation=operation.name, canonical=canonical),
        request=canonical.decode(),
        profiles=service.profiles[operation.name],
        tells=caller.tells,
    )
    prefer = parse_prefer(request.headers.getlist("prefer"))
    return Submission(operation=operation, intent=intent, body=body, prefer=prefer)


async def claim_key(submission: Submission, *, service: Service) -> Claim:
    """Claim the key, or find who was first. A request that does not fit claims nothing."""
    intent = submission.intent
    fitting = fit(submission.operation.request, submission.body)
    if not isinstance(fitting, list):
        return await _claim_within_limit(submission, fitting, service=service)
    first = await _read_first(intent, service=service)
    if first is None:
        raise does_not_fit(intent.operation, fitting)
    return first


async def _claim_within_limit(
    submission: Submission, fitting: OperationRequest, *, service: Service
) -> Claim:
    """Claim the key unless that would be one new operation too many for the tenant."""
    intent = submission.intent
    scope = (intent.tenant, intent.operation, intent.key)
    joined = await service.joins.join(scope)
    if joined is not None:
        return joined
    with service.joins.lead(scope) as found, service.first_requests.admission(scope) as admission:
        if not admission.granted or _too_many_wait(submission, service=service):
            first = await _read_first(intent, service=service)
            if first is None:
                raise admission.refusal()
            return first
        claim = await claim_by_kind(
            intent, fitting, operation=submission.operation, service=service
        )
        admission.settle(fresh=claim.fresh)
        found.set_result(claim)
        return claim


def _too_many_wait(submission: Submission, *, service: Service) -> bool:
    """Whether the tenant has started so much that no more can wait here."""
    starts_a_run = isinstance(submission.operation, SagaOperation)
    return starts_a_run and service.starts.turns.is_full(submission.intent.tenant)


async def _read_first(intent: Intent, *, service: Service) -> Claim | None:
    return await service.ledger.claims.read(
        tenant=intent.tenant, operation=intent.operation, key=intent.key
    )


async def attach(
    claim: Claim, submission: Submission, *, service: Service
) -> tuple[Claim, Submission]:
    """Make sure that there is a run, and wait for its end as long as the client prefers.

    Returns the submission without its wish to wait when that could not be fulfilled.
    """
    patience = submission.prefer.wait_at_most_seconds
    with service.waiters.watch(claim) as watch:
        if claim.fresh or _may_lack_a_run(claim, service=service):
            starting = service.starts.begin(claim.id, _start(claim, service=service))
            if patience < START_PATIENCE_SECONDS:
                await asyncio.wait({starting}, timeout=START_PATIENCE_SECONDS)
        claim = await watch.until(
            lambda now: _is_settled_for_now(now) or watch.given_up, seconds=patience
        )
        cut_short = watch.given_up or service.waiters.draining
    if cut_short and not _is_settled_for_now(claim):
        unfulfilled = replace(submission.prefer, wait_seconds=None)
        return claim, replace(submission, prefer=unfulfilled)
    return claim, submission


async def answer(
    claim: Claim, submission: Submission, *, replayed: bool, service: Service
) -> Response:
    """The receipt, byte for byte, or 202 and where to look."""
    if claim.receipt is None:
        account = await service.ledger.reading.account(claim)
        claim = account.claim
        if claim.receipt is None:
            response = accepted_response(account, service=service)
            _say_what_was_applied(response, submission.prefer, answered_async=True)
            return response
    return receipt_response(claim, replayed=replayed, prefer=submission.prefer)


def accepted_response(account: Account, *, service: Service) -> Response:
    """202 with the operation as it stands, where to look, and when."""
    claim = account.claim
    body = resources.resource(account, service=service)
    return Response(
        json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
        status_code=202,
        media_type="application/json",
        headers={
            **resources.answer_headers(claim),
            "etag": resources.etag(claim),
            "location": operation_path(operation=claim.operation, key=claim.key),
            "retry-after": str(resources.retry_after_seconds(claim)),
        },
    )


def receipt_response(claim: Claim, *, replayed: bool, prefer: Preferences) -> Response:
    """The stored answer: exact status, bytes and allow-listed headers."""
    assert claim.receipt is not None
    response = Response(claim.receipt.body, status_code=claim.receipt.status)
    for name, value in claim.receipt.headers:
        response.headers.append(name, value)
    response.headers.update(resources.answer_headers(claim))
    if replayed:
        response.headers["idempotent-replayed"] = "true"
    _say_what_was_applied(response, prefer, answered_async=False)
    return response


def key_from_header(request: Request) -> str:
    """The key in the Idempotency-Key header. Raises Problem (key-missing, key-malformed)."""
    values = [value for name, value in request.headers.raw if name == b"idempotency-key"]
    try:
        return parse_key_header(values)
    except KeyMissing as error:
        raise Problem(ProblemName.KEY_MISSING, error.reason) from None
    except KeyMalformed as error:
        raise Problem(ProblemName.KEY_MALFORMED, error.reason) from None


async def read_json_body(request: Request, *, bytes_max: int) -> tuple[JsonValue, bytes]:
    """The body as a JSON value, and its canonical form.

    Raises Problem: media-type-unsupported, body-malformed, and those of `read_body`.
    """
    _check_media_type(request)
    raw = await read_body(request, bytes_max=bytes_max)
    try:
        if len(raw) > LARGE_BODY_BYTES:
            return await asyncio.to_thread(_understand, raw)
        return _understand(raw)
    except JsonMalformed as error:
        at = "" if error.position is None else f" (byte {error.position})"
        raise Problem(ProblemName.BODY_MALFORMED, f"{error.reason}{at}") from None


async def read_body(request: Request, *, bytes_max: int) -> bytes:
    """The whole body. Raises Problem: body-too-large as soon as that is known, request-timeout."""
    too_large = Problem(
        ProblemName.BODY_TOO_LARGE, f"The body may have {bytes_max} bytes at the most."
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > bytes_max:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise too_large
    except ClientDisconnect:
        raise Problem(ProblemName.BODY_MALFORMED, "The body was cut off.") from None
    except TimeoutError:
        raise Problem(
            ProblemName.REQUEST_TIMEOUT,
            f"The body did not arrive within {BODY_SECONDS:.0f} seconds.",
            headers={"connection": "close"},
        ) from None
    return bytes(body)


def _understand(raw: bytes) -> tuple[JsonValue, bytes]:
    body = read_json(raw)
    return body, canonical_bytes(body)


def _check_query(request: Request) -> None:
    """A query parameter would be part of the meaning: none is defined, so none is accepted."""
    if request.scope["query_string"]:
        names = sorted(set(request.query_params.keys()))[:10]
        raise Problem(
            ProblemName.VALIDATION_FAILED,
            "Submitting takes no query parameters: put everything that matters into the body.",
            members={"errors": [{"parameter": name, "message": "unknown"} for name in names]},
        )


def _check_media_type(request: Request) -> None:
    media_type = request.headers.get("content-type")
    if media_type is None:
        return
    essence = media_type.partition(";")[0].strip().lower()
    if essence != "application/json" and not essence.endswith("+json"):
        raise Problem(
            ProblemName.MEDIA_TYPE_UNSUPPORTED,
            f"The body is {essence[:80] or 'of no media type'}; send application/json.",
        )
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Problem(
            ProblemName.MEDIA_TYPE_UNSUPPORTED, "Send the body without a content encoding."
        )


def fit(model: type[Model], body: JsonValue) -> Model | list[dict[str, str]]:
    """The body as `model`; or what is wrong with it, by JSON pointer and without values."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        return [
            {
                "pointer": "".join(f"/{_escaped(part)}" for part in found["loc"]),
                "message": found["msg"],
            }
            for found in error.errors(include_input=False, include_url=False)[:20]
        ]


def does_not_fit(what: str, errors: list[dict[str, str]]) -> Problem:
    """The problem (validation-failed) that says so."""
    return Problem(
        ProblemName.VALIDATION_FAILED,
        f"The request does not fit {what}: {len(errors)} error(s).",
        members={"errors": errors},
    )


def _escaped(part: int | str) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")[:100]


def _fate(first: Claim) -> measures.Fate:
    if first.fresh:
        return measures.Fate.FRESH
    return measures.Fate.ATTACHED if first.receipt is None else measures.Fate.REPLAYED


def _may_lack_a_run(claim: Claim, *, service: Service) -> bool:
    age_seconds = (service.now() - claim.created_at).total_seconds()
    return claim.state is ClaimState.ACCEPTED and age_seconds > NEVER_STARTED_SECONDS


async def _start(claim: Claim, *, service: Service) -> None:
    """Start the run when it is its turn; let those go who would wait until the relay starts it."""
    left_to_relay = True
    try:
        async with service.starts.turns.turn(claim.tenant, claim.id) as turn:
            left_to_relay = turn.needed and not await _start_now(claim, service=service)
            # One that was claimed before has probably had its run for long.
            turn.started = claim.fresh and not left_to_relay
    except Exception:  # noqa: BLE001 - the claim stands, whatever it is: the relay starts its run
        _log.exception("run.not_started", claim=claim.id)
    if left_to_relay:
        service.waiters.give_up(claim.id, seconds=GIVEN_UP_SECONDS)


async def _start_now(claim: Claim, *, service: Service) -> bool:
    """Start the run; False when Temporal is away."""
    if service.starts.paused:
        return False
    try:
        await service.executor.start(claim)
    except ExecutorUnavailable as error:
        _log.warning("run.not_started", claim=claim.id, reason=str(error)[:200])
        if await service.executor.is_reachable():
            return True  # slow, not away: the relay starts what was not started
        service.starts.pause()
        return False
    return True


def _is_settled_for_now(claim: Claim) -> bool:
    """Whether waiting on is pointless: there is an answer, or a person has to act first."""
    return claim.state in {ClaimState.DONE, ClaimState.PARKED, ClaimState.EXPIRED}


def _say_what_was_applied(response: Response, prefer: Preferences, *, answered_async: bool) -> None:
    applied = prefer.applied(answered_async=answered_async)
    if applied is not None:
        response.headers["preference-applied"] = applied


def _expired(claim: Claim) -> Problem:
    return Problem(
        ProblemName.KEY_EXPIRED,
        "This key was used, its operation has ended, and its answer is no longer kept.",
        headers=resources.answer_headers(claim),
    )


def _key_reused(claim: Claim, submission: Submission) -> Problem:
    first = read_json((claim.request or "null").encode())
    return Problem(
        ProblemName.KEY_REUSED,
        "This key was first used with other content. That operation stands, and this request did "
        "nothing. A new key would be a new operation, beside the first one.",
        members={
            "differing": list(differing_pointers(first, submission.body)),
            "operation": operation_path(operation=claim.operation, key=claim.key),
        },
        headers=resources.answer_headers(claim),
    )
