"""Failpoints: armed by the environment alone, counted, fired once, and traced."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from operations import failpoints
from operations.failpoints import Failpoint, FailpointReached, from_environment, read_arms

POINT = Failpoint.CLAIM_COMMITTED


def _armed(entry: str, log: Path, **more: str) -> dict[str, str]:
    return {failpoints.VARIABLE: entry, failpoints.LOG_VARIABLE: str(log), **more}


def test_nothing_is_counted_or_looked_up_when_nothing_is_armed() -> None:
    assert from_environment({}) is from_environment({failpoints.VARIABLE: " "})
    assert from_environment({})(POINT) is None


def test_it_fires_at_the_nth_hit_and_leaves_a_trace(tmp_path: Path) -> None:
    log = tmp_path / "fired"
    fail_at = from_environment(_armed(f"{POINT}:2:raise", log))

    fail_at(POINT)
    fail_at(Failpoint.CLAIM_COMMITTING)
    with pytest.raises(FailpointReached):
        fail_at(POINT)
    fail_at(POINT)

    assert [line.split()[0] for line in log.read_text().splitlines()] == [f"{POINT}:2:raise"]


def test_a_process_that_is_started_again_does_not_fire_again(tmp_path: Path) -> None:
    environment = _armed(f"{POINT}:1:raise", tmp_path / "fired")
    with pytest.raises(FailpointReached):
        from_environment(environment)(POINT)

    from_environment(environment)(POINT)

    assert len((tmp_path / "fired").read_text().splitlines()) == 1


def test_several_are_armed_with_commas(tmp_path: Path) -> None:
    fail_at = from_environment(
        _armed(f"{POINT}:1:raise,{Failpoint.RUN_STARTED}:1:raise", tmp_path / "fired")
    )
    for point in (POINT, Failpoint.RUN_STARTED):
        with pytest.raises(FailpointReached):
            fail_at(point)


def test_hang_freezes_the_process_and_lets_it_go_on(tmp_path: Path) -> None:
    log = tmp_path / "fired"
    fail_at = from_environment(_armed(f"{POINT}:1:hang", log, **{failpoints.HANG_VARIABLE: "0.05"}))
    began = time.monotonic()
    fail_at(POINT)
    assert time.monotonic() - began >= 0.05
    assert log.exists()


def test_kill_ends_the_process_at_once_and_the_trace_is_there(tmp_path: Path) -> None:
    log = tmp_path / "fired"
    program = (
        "from operations.failpoints import Failpoint, fail_at\n"
        "fail_at(Failpoint.CLAIM_COMMITTED)\n"
        "print('survived')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **_armed(f"{POINT}:1:kill", log)},
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == b""
    assert log.read_text().startswith(f"{POINT}:1:kill pid=")


@pytest.mark.parametrize(
    "entry",
    ["claim.committed", "claim.committed:0:kill", "claim.committed:1:explode", "no.such:1:kill"],
)
def test_what_is_not_a_failpoint_is_refused_at_the_start(entry: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_arms(entry)
