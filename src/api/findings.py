"""Routes of findings, for operators: list them, read one with its history, change its state."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field, StringConstraints
from starlette.responses import Response

from api.documentation import headers, problem_answers
from api.problems import Problem, ProblemName
from api.reconciliation_documentation import FindingList, FindingWithHistory, as_csv
from api.reconciliation_resources import finding_etag, finding_resource, findings_csv
from api.reconciliation_shared import (
    ID_MAX,
    IF_MATCH,
    READS,
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
)
from api.service import Service
from ledger.reconciliation_findings import FindingRow
from operations.declaration import Request as Form
from operations.preconditions import PreconditionMalformed, Tags, parse_preconditions
from operations.reconciliation import FindingKind, FindingState

router = APIRouter(tags=["reconciliation"])

Note = Annotated[
    str,
    StringConstraints(strip_whitespace=True, pattern=r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"),
    Field(min_length=1, max_length=2000),
]


class FindingForm(Form):
    """What a person says about a finding."""

    state: Literal[FindingState.ACKNOWLEDGED, FindingState.RESOLVED]
    """Runs open findings; people acknowledge and resolve them."""
    note: Note | None = None


@router.get(
    "/v1/reconciliation/findings",
    summary="Findings, newest first",
    operation_id="findings.list",
    response_model=FindingList,
    responses=READS
    | {200: {"description": "A page.", "content": as_csv(), "headers": headers("Next-Cursor")}},
)
async def list_findings(
    request: Request,
    *,
    provider: Annotated[str | None, Query(max_length=64)] = None,
    kind: FindingKind | None = None,
    state: FindingState | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    form: Annotated[Format, Query(alias="format")] = Format.JSON,
) -> Response:
    """A page of findings; it goes on at `next_cursor`."""
    service, _ = await operator(request)
    found = await service.ledger.reconciliation.findings.page(
        provider=provider, kind=kind, state=state, before_id=cursor or ID_MAX, limit=limit + 1
    )
    page = found[:limit]
    following = page[-1].id if len(found) > limit else None
    if form is Format.CSV:
        return answer_csv(findings_csv(page), following=following)
    return answer_json(
        {"findings": [finding_resource(row) for row in page], "next_cursor": following}
    )


@router.get(
    "/v1/reconciliation/findings/{finding}",
    summary="A finding with its history",
    operation_id="findings.read",
    response_model=FindingWithHistory,
    responses=READS | {200: {"description": "The finding.", "headers": headers("ETag")}},
)
async def read_finding(request: Request, finding: RowId) -> Response:
    """The finding, with a strong ETag."""
    service, _ = await operator(request)
    return await _finding_answer(await _finding(finding, service=service), service=service)


@router.patch(
    "/v1/reconciliation/findings/{finding}",
    summary="Acknowledge or resolve a finding",
    operation_id="findings.change",
    response_model=FindingWithHistory,
    openapi_extra=body_of(
        FindingForm, IF_MATCH, example={"state": "resolved", "note": "Refunded by hand, case 4711."}
    ),
    responses=WRITES
    | problem_answers(ProblemName.PRECONDITION_FAILED, ProblemName.PRECONDITION_REQUIRED)
    | {200: {"description": "The finding as it is now.", "headers": headers("ETag")}},
)
async def change_finding(request: Request, finding: RowId) -> Response:
    """Change a finding as it was read: `If-Match` names that version."""
    service, caller = await operator(request)
    tags = _if_match(request)
    form = await read_form(request, FindingForm, "a finding")
    known = await _finding(finding, service=service)
    if not tags.match_strongly(finding_etag(known)):
        raise _changed(known)
    changed = await service.ledger.reconciliation.findings.set_state(
        known,
        state=form.state,
        note=form.note,
        by=f"{caller.tenant}/{caller.key_id}",
        now=service.now(),
    )
    if changed is None:
        raise _changed(await _finding(finding, service=service))
    return await _finding_answer(changed, service=service)


async def _finding(finding_id: int, *, service: Service) -> FindingRow:
    found = await service.ledger.reconciliation.findings.read(finding_id)
    if found is None:
        raise Problem(ProblemName.NOT_FOUND, "There is no such finding.")
    return found


async def _finding_answer(finding: FindingRow, *, service: Service) -> Response:
    history = await service.ledger.reconciliation.findings.history(finding.id)
    return answer_json(finding_resource(finding, history), headers={"etag": finding_etag(finding)})


def _if_match(request: Request) -> Tags:
    try:
        conditions = parse_preconditions(
            if_match=request.headers.getlist("if-match"), if_none_match=()
        )
    except PreconditionMalformed as error:
        raise Problem(ProblemName.VALIDATION_FAILED, f"{error}.") from None
    if conditions.if_match is None:
        raise Problem(
            ProblemName.PRECONDITION_REQUIRED,
            "Send the ETag of the finding that you have read in If-Match.",
        )
    return conditions.if_match


def _changed(finding: FindingRow) -> Problem:
    return Problem(
        ProblemName.PRECONDITION_FAILED,
        "The finding has changed since that version was read.",
        headers={"etag": finding_etag(finding)},
    )
