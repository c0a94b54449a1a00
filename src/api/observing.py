"""Around every request: bounded headers, counted answers, and a problem document for any bug."""

import secrets
import time
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import measures
from api.problems import Problem, ProblemName

HEAD_BYTES_MAX = 32 * 1024
"""Of request line and header fields. Browsers and proxies stay below 16 KiB."""

_log = structlog.get_logger(__name__)


class Observed:
    """Middleware, the outermost: what leaves here is an answer, whatever happened inside."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and count the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if _head_bytes(scope) > HEAD_BYTES_MAX:
                await head_too_large().response()(scope, receive, watched)
            else:
                await self._app(scope, receive, watched)
        except Exception:
            if status:
                raise
            await _unforeseen(scope)(scope, receive, watched)
        finally:
            _count(scope, status=status, seconds=time.perf_counter() - began)


def head_too_large() -> Problem:
    """The request line and the header fields are more than we read."""
    return Problem(
        ProblemName.HEADERS_TOO_LARGE,
        f"Request line and header fields may have {HEAD_BYTES_MAX} bytes together.",
        headers={"connection": "close"},
    )


def _head_bytes(scope: Scope) -> int:
    fields = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return fields + len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")


def _unforeseen(scope: Scope) -> ASGIApp:
    """A bug: told to the log with all it has, and to the client with a number to ask about."""
    request_id = secrets.token_hex(8)
    _log.exception("request.failed", request_id=request_id, route=_route_name(scope))
    return Problem(
        ProblemName.INTERNAL_ERROR,
        "Something went wrong that we did not foresee. Retry with the same key: that is safe.",
        members={"request_id": request_id},
        headers={"retry-after": "5"},
    ).response()


def _count(scope: Scope, *, status: int, seconds: float) -> None:
    name = _route_name(scope)
    state: dict[str, Any] = scope.get("state") or {}
    measures.REQUESTS.labels(name, state.get("outcome", ""), status).inc()
    measures.SECONDS.labels(name).observe(seconds)


def _route_name(scope: Scope) -> str:
    """The operation, for submissions; the route's own name for the others."""
    state: dict[str, Any] = scope.get("state") or {}
    submitted = state.get("operation")
    if submitted is not None:
        return submitted
    return getattr(scope.get("route"), "name", None) or "unrouted"
