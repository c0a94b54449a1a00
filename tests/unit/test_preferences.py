"""How long a client wants to wait."""

import time

import pytest

from operations.preferences import Preferences, parse_prefer


@pytest.mark.parametrize(
    ("lines", "wait_seconds", "respond_async"),
    [
        ([], None, False),
        ([""], None, False),
        (["wait=5"], 5, False),
        (["wait=0"], 0, False),
        (["wait=60"], 60, False),
        (["wait=61"], 60, False),
        (["wait=007"], 7, False),
        (["wait=" + "9" * 5000], 60, False),
        (['wait="5"'], 5, False),
        (['wait="\\5"'], 5, False),
        (["Wait = 5"], 5, False),
        (["respond-async"], None, True),
        (["Respond-Async"], None, True),
        (['respond-async=""'], None, True),
        (["respond-async="], None, True),
        (["respond-async=yes"], None, False),
        (["respond-async, wait=10"], 10, True),
        (["respond-async", "wait=10"], 10, True),
        (["wait=1, wait=2", "wait=3"], 1, False),
        (["wait=x, wait=2"], None, False),
        (["wait=5; urgent=yes; a"], 5, False),
        (['wait=5 ;; a = "b,c" '], 5, False),
        (['return=minimal, handling=lenient;x="a, wait=9", wait=3'], 3, False),
        ([", ,wait=4,,"], 4, False),
        (["wait"], None, False),
        (["wait="], None, False),
        (["wait=-1"], None, False),
        (["wait=1.5"], None, False),
        (["wait=\u0661"], None, False),
        (["wait=5 6, respond-async"], None, True),
        (["wait 5"], None, False),
        (['x="wait=1, respond-async'], None, False),
        (["(wait=5), respond-async"], None, True),
        (["wait=5\x00"], None, False),
    ],
)
def test_preferences_are_read_or_ignored(
    lines: list[str], wait_seconds: int | None, respond_async: bool
) -> None:
    assert parse_prefer(lines) == Preferences(
        wait_seconds=wait_seconds, respond_async=respond_async
    )


@pytest.mark.parametrize(
    ("line", "waits_seconds", "applied_to_result", "applied_to_202"),
    [
        ("", 10, None, None),
        ("wait=5", 5, "wait=5", "wait=5"),
        ("wait=3600", 60, "wait=60", "wait=60"),
        ("respond-async", 0, None, "respond-async"),
        ("respond-async, wait=5", 5, "wait=5", "respond-async, wait=5"),
    ],
)
def test_what_was_done_is_said(
    line: str, waits_seconds: int, applied_to_result: str | None, applied_to_202: str | None
) -> None:
    preferences = parse_prefer([line])
    assert preferences.wait_at_most_seconds == waits_seconds
    assert preferences.applied(answered_async=False) == applied_to_result
    assert preferences.applied(answered_async=True) == applied_to_202


@pytest.mark.parametrize("unit", ['"', "\\", '"\\', "a;", "a = ", ";=", " ", 'a="b";', ",", "a "])
def test_hostile_headers_cost_linear_time(unit: str) -> None:
    started = time.thread_time()
    parse_prefer([unit * (64 * 1024 // len(unit))])
    assert time.thread_time() - started < 1.0
