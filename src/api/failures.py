"""Failures as answers: which exceptions are a problem document, and which one."""

from typing import Final, assert_never

import structlog
from starlette.responses import Response

from api.problems import Problem, ProblemName, storage_unavailable
from api.service import ExecutorUnavailable
from ledger.database import StorageUnavailable

Failure = Problem | StorageUnavailable | ExecutorUnavailable

KINDS: Final = (Problem, StorageUnavailable, ExecutorUnavailable)

_log = structlog.get_logger(__name__)


def answer_to(failure: Failure) -> Response:
    """The problem document that says what to do. Outages are logged."""
    match failure:
        case Problem():
            return failure.response()
        case StorageUnavailable():
            _log.warning("storage.unavailable", reason=str(failure))
            return storage_unavailable().response()
        case ExecutorUnavailable():
            _log.warning("executor.unavailable", reason=str(failure))
            return Problem(
                ProblemName.EXECUTOR_UNAVAILABLE,
                "Temporal cannot be reached now. Retry later.",
                headers={"retry-after": "5"},
            ).response()
        case _:
            assert_never(failure)
