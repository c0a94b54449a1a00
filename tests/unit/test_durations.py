"""ISO 8601 durations."""

import pytest

from operations.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT15M", 900), ("P1D", 86_400), ("P1DT1H1M1S", 90_061), ("PT90S", 90)]
)
def test_a_duration_is_its_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "15M", "PT-5M", "P1Y", "P2W", "PT1.5H", "pt5m", "PT5M ", "PT9999999S"],
)
def test_what_is_no_duration_of_fixed_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_duration(text)


def test_nothing_is_written_as_no_seconds() -> None:
    assert format_duration(0) == "PT0S"
