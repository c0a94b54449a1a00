"""`If-Match` and `If-None-Match`, read and judged as RFC 9110, section 13, says."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

FIELD_CHARACTERS_MAX = 4096
"""A hundred of our tags; a longer field is not one that we handed out."""

_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_GAP = re.compile(r"[ \t]*(?:,[ \t]*)*")


class PreconditionMalformed(Exception):
    """The field is neither `*` nor a list of entity tags."""

    def __init__(self, field: str) -> None:
        """Keep the field's name."""
        super().__init__(f"{field} is neither * nor a list of quoted entity tags")
        self.field = field


class Verdict(StrEnum):
    """What the preconditions say about a request."""

    GO_ON = "go_on"
    NOT_MODIFIED = "not_modified"
    """For a read: the client has it already (304)."""
    FAILED = "failed"
    """The resource is not in the state that the client asked for (412)."""


@dataclass(frozen=True, slots=True)
class Tags:
    """What one field names: `*`, which is any representation, or entity tags as written."""

    any: bool = False
    tags: tuple[str, ...] = ()

    def match_strongly(self, current: str | None) -> bool:
        """Whether `current`, a strong tag or None for no resource, is named: weak ones never are
        (RFC 9110, section 8.8.3.2)."""
        return current is not None and (self.any or current in self.tags)

    def match_weakly(self, current: str | None) -> bool:
        """As `match_strongly`, but a weak tag is as good as a strong one."""
        return current is not None and (
            self.any or current in {tag.removeprefix("W/") for tag in self.tags}
        )


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The preconditions of one request. None is a field that was not sent."""

    if_match: Tags | None = None
    if_none_match: Tags | None = None

    def judge(self, current: str | None, *, is_read: bool) -> Verdict:
        """What they say when the resource's strong tag is `current`, or None when there is no such
        resource; in the order of RFC 9110, section 13.2.2. We date nothing, so conditions on dates
        are ignored, as sections 13.1.3 and 13.1.4 ask."""
        if self.if_match is not None and not self.if_match.match_strongly(current):
            return Verdict.FAILED
        if self.if_none_match is not None and self.if_none_match.match_weakly(current):
            return Verdict.NOT_MODIFIED if is_read else Verdict.FAILED
        return Verdict.GO_ON


def parse_preconditions(*, if_match: Iterable[str], if_none_match: Iterable[str]) -> Preconditions:
    """Read both fields; each iterable holds the field's lines, none when it was not sent.

    Raises PreconditionMalformed: a condition that cannot be read must not be taken for a met one.
    """
    return Preconditions(
        if_match=_parse("If-Match", if_match), if_none_match=_parse("If-None-Match", if_none_match)
    )


def _parse(field: str, lines: Iterable[str]) -> Tags | None:
    values = list(lines)
    if not values:
        return None
    value = ",".join(values).strip(" \t")
    if value == "*":
        return Tags(any=True)
    if len(value) > FIELD_CHARACTERS_MAX:
        raise PreconditionMalformed(field)
    tags: list[str] = []
    at = _end_of_gap(value, 0)
    while at < len(value):
        found = _TAG.match(value, at)
        if found is None:
            raise PreconditionMalformed(field)
        tags.append(found.group())
        at = _end_of_gap(value, found.end())
        if at < len(value) and "," not in value[found.end() : at]:
            raise PreconditionMalformed(field)
    return Tags(tags=tuple(tags))


def _end_of_gap(value: str, at: int) -> int:
    """Where the next element begins: empty elements are skipped (RFC 9110, section 5.6.1.2)."""
    gap = _GAP.match(value, at)
    assert gap is not None
    return gap.end()
