"""Conditional reads (RFC 9110, section 13): what the client has already."""

from starlette.requests import Request

from operations.preconditions import PreconditionMalformed, Tags, parse_preconditions


def has_already(request: Request, tag: str) -> bool:
    """Whether If-None-Match names `tag`, compared weakly as the RFC wants it for this header."""
    known = _known_tags(request)
    return known is not None and known.match_weakly(tag)


def asks_for_any_change(request: Request) -> bool:
    """Whether the request does not say which version the client has."""
    return _known_tags(request) is None


def _known_tags(request: Request) -> Tags | None:
    """The tags of If-None-Match; None without it. What cannot be read is no condition: for a read
    the whole answer is always right."""
    lines = request.headers.getlist("if-none-match")
    try:
        return parse_preconditions(if_match=(), if_none_match=lines).if_none_match
    except PreconditionMalformed:
        return None
