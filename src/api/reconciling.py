"""Routes of reconciliation, for operators: schedules, runs, findings, and the report.

A provider's account is shared by all tenants, so what is found there is seen by every operator.
"""

import asyncio
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Query, Request
from pydantic import Field, StrictBool, field_validator
from starlette.responses import HTMLResponse, Response

from api import boundary
from api.authentication import Caller
from api.documentation import PREFER_HEADER, headers, problem_answers
from api.problems import Problem, ProblemName
from api.reconciliation_documentation import RunDocument, RunList, ScheduleResource, as_csv
from api.reconciliation_report import report_page
from api.reconciliation_resources import (
    finding_resource,
    run_path,
    run_resource,
    runs_csv,
    schedule_resource,
)
from api.reconciliation_shared import (
    ID_MAX,
    READS,
    RUN_KEY,
    WRITES,
    Cursor,
    Format,
    Limit,
    RowId,
    answer_csv,
    answer_json,
    body_of,
    operator,
    read_form,
    read_with_canonical,
)
from api.service import ExecutorUnavailable, Service
from ledger.reconciliation_findings import FindingRow
from ledger.reconciliation_runs import RunRequest, RunRow
from operations.declaration import Request as Form
from operations.durations import DURATION_PATTERN, parse_duration
from operations.fingerprint import fingerprint
from operations.keys import format_key_header
from operations.moments import Moment
from operations.preferences import parse_prefer
from operations.reconciliation import FindingState, Trigger

EVERY_SECONDS_MIN, EVERY_SECONDS_MAX = 10, 604_800
RUN_FINDINGS_MAX = 1_000
REPORT_RUNS, REPORT_FINDINGS = 60, 100
LOOK_AGAIN_SECONDS = 0.2

_RUN_HEADERS = headers(
    "Idempotency-Key", "Idempotent-Replayed", "Location", "Retry-After", "Preference-Applied"
)

_log = structlog.get_logger(__name__)
router = APIRouter(tags=["reconciliation"])

ProviderPath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", examples=["payments"])]


class ScheduleForm(Form):
    """How often a provider is reconciled."""

    every: Annotated[str, Field(max_length=40, pattern=DURATION_PATTERN, examples=["PT15M"])]
    """An ISO 8601 duration, of ten seconds to seven days."""
    paused: StrictBool = False

    @field_validator("every")
    @classmethod
    def _within_bounds(cls, every: str) -> str:
        if not EVERY_SECONDS_MIN <= parse_duration(every) <= EVERY_SECONDS_MAX:
            raise ValueError("Use a duration of PT10S to P7D")
        return every


class RunForm(Form):
    """Which window to reconcile; without one, from the watermark to now."""

    since: Moment | None = None
    until: Moment | None = None
    dry_run: StrictBool = False
    """Show what would be found and done, and do nothing."""


@router.get(
    "/v1/reconciliation/{provider}/schedule",
    summary="How often a provider is reconciled, and when it is next",
    operation_id="reconciliation.schedule",
    response_model=ScheduleResource,
    responses=READS,
)
async def read_schedule(request: Request, provider: ProviderPath) -> Response:
    """How often a provider is reconciled, and when it is next."""
    service, _ = await operator(request)
    _check_provider(provider, service=service)
    return await _schedule_answer(provider, service=service)


@router.put(
    "/v1/reconciliation/{provider}/schedule",
    summary="Set how often a provider is reconciled, or pause it",
    operation_id="reconciliation.set_schedule",
    response_model=ScheduleResource,
    responses=WRITES,
    openapi_extra=body_of(ScheduleForm, example={"every": "PT15M", "paused": False}),
)
async def set_schedule(request: Request, provider: ProviderPath) -> Response:
    """Set the schedule. Repeating the request changes nothing."""
    service, _ = await operator(request)
    _check_provider(provider, service=service)
    form = await read_form(request, ScheduleForm, "a schedule")
    schedule = await service.ledger.reconciliation.runs.set_schedule(
        provider,
        every_seconds=parse_duration(form.every),
        paused=form.paused,
        now=service.now(),
    )
    await service.reconciler.apply_schedule(schedule)
    return await _schedule_answer(provider, service=service)


@router.get(
    "/v1/reconciliation/{provider}/runs",
    summary="Runs, newest first",
    operation_id="reconciliation.runs",
    response_model=RunList,
    responses=READS
    | {200: {"description": "A page.", "content": as_csv(), "headers": headers("Next-Cursor")}},
)
async def list_runs(
    request: Request,
    provider: ProviderPath,
    *,
    limit: Limit = 20,
    cursor: Cursor = None,
    form: Annotated[Format, Query(alias="format")] = Format.JSON,
) -> Response:
    """A page of runs; it goes on at `next_cursor`."""
    service, _ = await operator(request)
    _check_provider(provider, service=service)
    found = await service.ledger.reconciliation.runs.page(
        provider, before_id=cursor or ID_MAX, limit=limit + 1
    )
    page = found[:limit]
    following = page[-1].id if len(found) > limit else None
    if form is Format.CSV:
        return answer_csv(runs_csv(page, service=service), following=following)
    runs = [run_resource(run, service=service) for run in page]
    return answer_json({"runs": runs, "next_cursor": following})


@router.post(
    "/v1/reconciliation/{provider}/runs",
    summary="Reconcile now, or for any window",
    operation_id="reconciliation.run",
    status_code=201,
    response_model=RunDocument,
    openapi_extra=body_of(
        RunForm, RUN_KEY, PREFER_HEADER, example={"dry_run": True}, required=False
    ),
    responses=WRITES
    | problem_answers(
        ProblemName.KEY_MISSING,
        ProblemName.KEY_MALFORMED,
        ProblemName.BODY_MALFORMED,
        ProblemName.KEY_REUSED,
    )
    | {
        201: {"description": "The run has ended.", "headers": _RUN_HEADERS},
        202: {"model": RunDocument, "description": "It goes on.", "headers": _RUN_HEADERS},
    },
)
async def start_run(request: Request, provider: ProviderPath) -> Response:
    """Start a run, or attach to the one that the key has started: 201 when it has ended, else 202.

    `Prefer: wait=N` says how long to wait for its end.
    """
    service, caller = await operator(request)
    key = boundary.key_from_header(request)
    _check_provider(provider, service=service)
    prefer = parse_prefer(request.headers.getlist("prefer"))
    run = await _claim_run(request, provider, caller, key, service=service)
    started = True
    if not run.is_over:
        started = await _start(run, service=service)
    if started:
        run = await _await_end(run, seconds=prefer.wait_at_most_seconds, service=service)
    headers = {
        "idempotency-key": format_key_header(key),
        "location": run_path(run),
        **({"idempotent-replayed": "true"} if not run.fresh else {}),
        **({} if run.is_over else {"retry-after": "2"}),
    }
    applied = prefer.applied(answered_async=not run.is_over)
    if applied is not None:
        headers["preference-applied"] = applied
    document = await _run_document(run, service=service)
    return answer_json(document, status=201 if run.is_over else 202, headers=headers)


@router.get(
    "/v1/reconciliation/{provider}/runs/{run}",
    summary="A run and its result",
    operation_id="reconciliation.read_run",
    response_model=RunDocument,
    responses=READS,
)
async def read_run(request: Request, provider: ProviderPath, run: RowId) -> Response:
    """A run, with what it found; a dry run shows what it would have done."""
    service, _ = await operator(request)
    found = await service.ledger.reconciliation.runs.read(run)
    if found is None or found.provider != provider:
        raise Problem(ProblemName.NOT_FOUND, "There is no such run of this provider.")
    return answer_json(await _run_document(found, service=service))


@router.get(
    "/v1/reconciliation/{provider}/report",
    summary="The report for people, with a plot",
    operation_id="reconciliation.report",
    response_class=HTMLResponse,
    responses=READS,
)
async def read_report(request: Request, provider: ProviderPath) -> Response:
    """One HTML page that loads nothing, so that it can be saved and passed on."""
    service, _ = await operator(request)
    _check_provider(provider, service=service)
    rooms = service.ledger.reconciliation
    runs = await rooms.runs.page(provider, before_id=ID_MAX, limit=REPORT_RUNS)
    waiting: list[FindingRow] = []
    for state in (FindingState.OPEN, FindingState.ACKNOWLEDGED):
        waiting += await rooms.findings.page(
            provider=provider, kind=None, state=state, before_id=ID_MAX, limit=REPORT_FINDINGS + 1
        )
    waiting.sort(key=lambda finding: finding.id, reverse=True)
    page = report_page(
        provider,
        runs=runs,
        findings=waiting[:REPORT_FINDINGS],
        more=len(waiting) > REPORT_FINDINGS,
    )
    return HTMLResponse(
        page,
        headers={
            "cache-control": "no-store",
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
        },
    )


def _check_provider(provider: str, *, service: Service) -> None:
    if provider not in service.reconciler.providers:
        known = ", ".join(sorted(service.reconciler.providers))
        raise Problem(
            ProblemName.NOT_FOUND, f"No provider of this name lists its records. There are {known}."
        )


async def _claim_run(
    request: Request, provider: str, caller: Caller, key: str, *, service: Service
) -> RunRow:
    """The row of the run: made now, or by the first request under this key."""
    form, canonical = await read_with_canonical(request, RunForm, "a run", may_be_empty=True)
    now = service.now()
    wanted = RunRequest(
        provider=provider,
        requested_by=caller.tenant,
        key=key,
        fingerprint=fingerprint(operation=f"reconciliation.{provider}", canonical=canonical),
        trigger=Trigger.PERSON,
        workflow_id=service.reconciler.workflow_id(provider, caller.tenant, key),
        since=form.since,
        until=form.until,
        dry_run=form.dry_run,
    )
    if form.until is not None and form.until > now:
        raise _window_wrong("until lies in the future")
    try:
        run = await service.ledger.reconciliation.runs.request(wanted, now=now)
    except (ValueError, OverflowError):
        raise _window_wrong("since must lie before until") from None
    if run.fingerprint != wanted.fingerprint:
        raise Problem(
            ProblemName.KEY_REUSED,
            "This key has started a run with other content, which stands.",
            members={"operation": run_path(run)},
        )
    return run


async def _start(run: RunRow, *, service: Service) -> bool:
    """Start the workflow; False when Temporal is away: then a worker starts it later."""
    try:
        await service.reconciler.start(run)
    except ExecutorUnavailable as error:
        _log.warning("reconciliation.not_started", run=run.id, reason=str(error))
        return False
    return True


async def _await_end(run: RunRow, *, seconds: float, service: Service) -> RunRow:
    """The run once it has ended, or as it is when `seconds` are over."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    fresh = run.fresh
    while not run.is_over and clock() < deadline:
        await asyncio.sleep(min(LOOK_AGAIN_SECONDS, max(deadline - clock(), 0.01)))
        latest = await service.ledger.reconciliation.runs.read(run.id)
        if latest is not None:
            run = latest.made(fresh=fresh)
    return run


async def _run_document(run: RunRow, *, service: Service) -> dict[str, Any]:
    findings = service.ledger.reconciliation.findings
    before = await findings.counts_before(run)
    document = run_resource(run, service=service, before=before)
    if run.dry_run:
        return {**document, "would": run.preview}
    found = await findings.of_run(run, limit=RUN_FINDINGS_MAX)
    return {**document, "findings": [finding_resource(row) for row in found]}


async def _schedule_answer(provider: str, *, service: Service) -> Response:
    schedule = await service.ledger.reconciliation.runs.schedule(provider)
    try:
        times = await service.reconciler.next_times(provider)
    except ExecutorUnavailable:
        times = ()
    document = schedule_resource(
        schedule, every_seconds=service.reconciler.every_seconds, next_runs=times
    )
    return answer_json(document)


def _window_wrong(message: str) -> Problem:
    return Problem(
        ProblemName.VALIDATION_FAILED,
        f"The window is empty or not over yet: {message}.",
        members={"errors": [{"pointer": "/until", "message": message}]},
    )
