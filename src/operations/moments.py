"""Points in time that clients send: RFC 3339 with an offset, and nothing that merely looks like it.

Pydantic's own reading also takes numbers for seconds or milliseconds since 1970, by their size: a
client that sends one has made a mistake that nobody would notice.
"""

import re
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator

_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def _written_out(moment: object) -> object:
    if not isinstance(moment, str) or _DATE_TIME.fullmatch(moment) is None:
        raise ValueError("Use RFC 3339 with an offset: 2026-01-31T12:00:00Z")
    return moment


Moment = Annotated[AwareDatetime, BeforeValidator(_written_out)]
"""An RFC 3339 date-time (section 5.6)."""
