"""Conditional reads (RFC 9110, section 13): what the client has already."""

import re

from starlette.requests import Request

_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def has_already(request: Request, tag: str) -> bool:
    """Whether If-None-Match names `tag`, compared weakly as the RFC wants it for this header."""
    return _ANY in (known := _known_tags(request)) or tag in known


def asks_for_any_change(request: Request) -> bool:
    """Whether the request does not say which version the client has."""
    return "if-none-match" not in request.headers


_ANY = "*"


def _known_tags(request: Request) -> frozenset[str]:
    values = ", ".join(request.headers.getlist("if-none-match"))
    if values.strip() == _ANY:
        return frozenset({_ANY})
    return frozenset(_TAG.findall(values))
