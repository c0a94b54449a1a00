"""The answers that are kept: what a client is told when an operation has ended, and told again."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from operations.contracts import StoredReceipt
from operations.states import Outcome

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
REPLAYED_HEADERS = frozenset({"content-type", "location"})
"""The only headers that a receipt keeps: a cookie or a date belongs to one reply."""

OUTCOME_STATUS: Mapping[Outcome, int] = {
    Outcome.DECLINED: 402,
    Outcome.COMPENSATED: 424,
    Outcome.CANCELLED: 424,
    Outcome.ABANDONED: 424,
}
_TITLES: Mapping[Outcome, str] = {
    Outcome.DECLINED: "The operation was declined",
    Outcome.COMPENSATED: "A later step failed, and what was done has been undone",
    Outcome.CANCELLED: "The operation was cancelled, and what was done has been undone",
    Outcome.ABANDONED: "An operator gave up on a step of this operation",
}


def operation_path(*, operation: str, key: str) -> str:
    """Where an operation can be read: the path of its resource."""
    return f"/v1/operations/{operation}/{quote(key, safe='')}"


def success_receipt(
    answer: Mapping[str, Any], *, status: int, operation: str, key: str
) -> StoredReceipt:
    """The receipt of an operation that succeeded."""
    return StoredReceipt(
        status=status,
        headers=(
            ("content-type", JSON),
            ("location", operation_path(operation=operation, key=key)),
        ),
        body=json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode(),
    )


def problem_receipt(
    outcome: Outcome, *, detail: str, step: str | None = None, code: str | None = None
) -> StoredReceipt:
    """The receipt of an operation that ended without success, as a problem document (RFC 9457)."""
    status = OUTCOME_STATUS[outcome]
    problem: dict[str, Any] = {
        "type": f"/problems/{outcome.value}",
        "title": _TITLES[outcome],
        "status": status,
        "detail": detail,
        "outcome": outcome.value,
    }
    if step is not None:
        problem["step"] = step
    if code is not None:
        problem["code"] = code
    return StoredReceipt(
        status=status,
        headers=(("content-type", PROBLEM_JSON),),
        body=json.dumps(problem, ensure_ascii=False, separators=(",", ":")).encode(),
    )
