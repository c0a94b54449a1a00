"""Keys in paths. A key may hold any visible ASCII, `/` too: routes see the path as it was sent."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.problems import Problem, ProblemName
from operations.keys import KeyMalformed, parse_key_path

OPERATIONS_PREFIX = b"/v1/operations/"


class EncodedPaths:
    """Middleware: below `/v1/operations/`, routing works on the percent-encoded path.

    A server decodes the path before routing, which would turn the key `a%2Freceipt` into the path
    of another resource.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route by the path as it was sent."""
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] == "http" and raw.startswith(OPERATIONS_PREFIX):
            path = raw.partition(b"?")[0].decode("latin-1")
            scope["path"] = path
        await self._app(scope, receive, send)


def key_from_path(request: Request) -> str:
    """The key in the path. Raises Problem (key-malformed)."""
    try:
        return parse_key_path(request.path_params["key"])
    except KeyMalformed as error:
        raise Problem(ProblemName.KEY_MALFORMED, error.reason) from None
