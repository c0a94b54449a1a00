"""The client's wishes about waiting: the Prefer header (RFC 7240)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

WAIT_SECONDS_MAX = 60
"""What the contract offers. A longer wish is cut to it, and Preference-Applied says so."""

WAIT_SECONDS_DEFAULT = 10
"""Longer than almost every operation runs, shorter than what proxies usually put up with."""

_BARE = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_QUOTED = r'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*+"'
# Up to a comma outside of quotes. Possessive throughout, so hostile headers cost linear time.
_ELEMENT = re.compile(r'(?:[^",]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))++', re.DOTALL)
_PREFERENCE = re.compile(
    rf"[ \t]*+(?P<name>{_BARE})(?:[ \t]*+=[ \t]*+(?P<value>{_BARE}|{_QUOTED})?+)?+"
    rf"(?:[ \t]*+;[ \t]*+(?:{_BARE}(?:[ \t]*+=[ \t]*+(?:{_BARE}|{_QUOTED})?+)?+)?+)*+[ \t]*+"
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SECONDS = re.compile(r"[0-9]++")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What the client asked for, within our bounds."""

    wait_seconds: int | None = None
    """From `wait=N`, 0 to 60; None when it was not given."""
    respond_async: bool = False
    """From `respond-async`: rather a 202 at once than a wait."""

    @property
    def wait_at_most_seconds(self) -> int:
        """How long to hold the request. With both preferences it waits, then answers 202 (RFC 7240,
        section 4.3); `respond-async` alone does not wait; without either it is the default."""
        if self.wait_seconds is not None:
            return self.wait_seconds
        return 0 if self.respond_async else WAIT_SECONDS_DEFAULT

    def applied(self, *, answered_async: bool) -> str | None:
        """The value of Preference-Applied (RFC 7240, section 3), or None when it is left out.

        `answered_async` is whether the answer is a 202: `respond-async` was only acted on then.
        """
        applied: list[str] = []
        if self.respond_async and answered_async:
            applied.append("respond-async")
        if self.wait_seconds is not None:
            applied.append(f"wait={self.wait_seconds}")
        return ", ".join(applied) or None


def parse_prefer(values: Sequence[str]) -> Preferences:
    """The preferences in the values of all Prefer header lines, in their order.

    Nothing in them is an error: unknown preferences, unusable values and broken syntax are ignored,
    parameters of known ones too, and the first of several of one name counts (RFC 7240, section 2),
    also when its value is unusable.
    """
    found: dict[str, str] = {}
    for line in values:
        for element in _ELEMENT.findall(line):
            preference = _PREFERENCE.fullmatch(element)
            if preference is not None:
                found.setdefault(preference["name"].lower(), _word(preference["value"]))
    return Preferences(
        wait_seconds=_wait_seconds(found.get("wait", "")),
        # The preference has no value, and an empty one is none (RFC 7240, section 2).
        respond_async=found.get("respond-async") == "",
    )


def _word(value: str | None) -> str:
    if value is None:
        return ""
    return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value


def _wait_seconds(value: str) -> int | None:
    if _SECONDS.fullmatch(value) is None:
        return None
    significant = value.lstrip("0") or "0"
    # Judged by its length first: int() refuses what has thousands of digits.
    if len(significant) > len(str(WAIT_SECONDS_MAX)):
        return WAIT_SECONDS_MAX
    return min(int(significant), WAIT_SECONDS_MAX)
