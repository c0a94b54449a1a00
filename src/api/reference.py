"""`/docs`: the API's reference for people, from files of ours.

A page that loads scripts from elsewhere does not work without the internet, and runs what somebody
else's server sends, beside the key that a reader has typed in. So the scripts come with the package
`fastapi-offline`, whose version and hash are locked, and the page's policy allows nothing else.
"""

from functools import cache
from importlib import resources
from typing import Literal

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

PACKAGE = "fastapi_offline"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The viewer writes styles into elements; scripts come from files only."""

CACHE_SECONDS = 3600

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tallystick: the API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="data:,">
</head>
<body>
<div id="reference"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """\
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "none",
  persistAuthorization: false,
  validatorUrl: null,
});
"""

Asset = Literal["swagger-ui-bundle.js", "swagger-ui.css", "start.js"]

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def page() -> Response:
    """The reference, made from `/openapi.json`."""
    return HTMLResponse(_PAGE, headers=_HEADERS)


@router.get("/docs/{asset}")
async def asset(asset: Asset) -> Response:
    """A file of the reference."""
    return Response(
        _content(asset),
        media_type="text/css" if asset.endswith(".css") else "text/javascript",
        headers={**_HEADERS, "cache-control": f"public, max-age={CACHE_SECONDS}"},
    )


@cache
def _content(asset: Asset) -> bytes:
    if asset == "start.js":
        return _START.encode()
    return (resources.files(PACKAGE) / "static" / asset).read_bytes()
