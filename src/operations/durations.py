"""ISO 8601 durations, as far as an interval needs them: days, hours, minutes and seconds."""

import re

_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,6})H)?(?:(?P<minutes>\d{1,6})M)?(?:(?P<seconds>\d{1,6})S)?)?"
)
DURATION_PATTERN = r"^P([0-9]{1,6}D)?(T([0-9]{1,6}H)?([0-9]{1,6}M)?([0-9]{1,6}S)?)?$"
"""For schemas: what `parse_duration` reads, and a little more."""

_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def parse_duration(text: str) -> int:
    """The whole seconds of a duration such as `PT15M` or `P1DT12H` (ISO 8601-1, section 5.5.2).

    Years, months and weeks are refused: their length depends on when they begin, or on nobody
    ever using them. Raises ValueError.
    """
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts:
        raise ValueError("Use an ISO 8601 duration of days, hours, minutes, seconds: PT15M, P1D")
    return sum(int(number) * _SECONDS[unit] for unit, number in parts.items())


def format_duration(seconds: int) -> str:
    """The shortest duration of `seconds`. `parse_duration` reads it back."""
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, left = divmod(rest, 60)
    day = f"{days}D" if days else ""
    parts = ((hours, "H"), (minutes, "M"), (left, "S"))
    time = "".join(f"{number}{unit}" for number, unit in parts if number)
    return f"P{day}T{time}" if time else f"P{day or 'T0S'}"
