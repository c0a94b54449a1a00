"""The supervisor, with small programs as children."""

import asyncio
import dataclasses
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from runtime.embedded.errors import ChildFailed, DirectoryInUse, PortTaken
from runtime.embedded.files import directory_lock, write_private
from runtime.embedded.ports import LOOPBACK, pick_port
from runtime.embedded.supervisor import ChildSpec, Supervisor

SERVE = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("serving", flush=True)
while True:
    connection, _ = listener.accept()
    connection.close()
"""


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def _server(name: str, *, port: int, script: str = SERVE) -> ChildSpec:
    return ChildSpec(
        name=name,
        command=(sys.executable, "-S", "-c", script, str(port)),
        ready=lambda: _accepts(port),
        ports={f"--{name}-port": port},
        stop=((signal.SIGTERM, 5.0),),
    )


class Diary:
    """What a supervisor said and announced."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ready: list[tuple[str, int]] = []


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture
async def supervisor(tmp_path: Path, diary: Diary) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(
        tmp_path / "logs",
        report=diary.lines.append,
        on_ready=lambda name, pid: diary.ready.append((name, pid)),
    )
    yield supervisor
    await supervisor.stop()


async def test_child_is_ready_in_its_own_session_and_writes_its_log(
    supervisor: Supervisor, diary: Diary, tmp_path: Path
) -> None:
    await supervisor.start(_server("echo", port=pick_port()))

    pid = supervisor.pids["echo"]
    assert diary.ready == [("echo", pid)]
    assert os.getsid(pid) == pid != os.getsid(0)
    assert (tmp_path / "logs" / "echo.log").read_text() == "serving\n"


async def test_dead_child_is_restarted_on_its_port_reported_and_announced(
    supervisor: Supervisor, diary: Diary
) -> None:
    port = pick_port()
    await supervisor.start(_server("echo", port=port))
    first = supervisor.pids["echo"]

    os.kill(first, signal.SIGKILL)
    second = await supervisor.await_ready("echo", after_pid=first, timeout_seconds=10)

    assert await _accepts(port)
    assert diary.ready == [("echo", first), ("echo", second)]
    died, returned = diary.lines
    assert f"echo (pid {first}) was killed by SIGKILL; starting it again in 0.1 s" in died
    assert returned == f"echo is back as pid {second}"


async def test_held_child_stays_down_until_released(supervisor: Supervisor) -> None:
    port = pick_port()
    await supervisor.start(_server("echo", port=port))

    await supervisor.hold("echo")
    assert supervisor.pids == {}
    assert not await _accepts(port)

    await supervisor.release("echo")
    assert await _accepts(port)


async def test_child_that_never_starts_is_an_error_with_the_end_of_its_log(
    supervisor: Supervisor,
) -> None:
    broken = _server("broken", port=pick_port(), script="import sys; sys.exit('no such table')")

    with pytest.raises(ChildFailed, match=r"(?s)broken .*ended with status 1.*no such table"):
        await supervisor.start(broken)

    assert supervisor.pids == {}


async def test_child_that_is_never_ready_is_an_error_and_is_ended(supervisor: Supervisor) -> None:
    async def never() -> bool:
        return False

    silent = ChildSpec(
        name="silent",
        command=(sys.executable, "-S", "-c", "import time; time.sleep(60)"),
        ready=never,
        ready_timeout_seconds=0.3,
    )

    with pytest.raises(ChildFailed, match="was not ready after 0 s and was killed"):
        await supervisor.start(silent)

    assert supervisor.pids == {}


async def test_taken_port_is_named_with_the_option_that_changes_it(supervisor: Supervisor) -> None:
    port = pick_port()
    other = await asyncio.start_server(lambda _r, writer: writer.close(), LOOPBACK, port)
    async with other:
        with pytest.raises(PortTaken, match=rf"port {port} for echo .*--echo-port"):
            await supervisor.start(_server("echo", port=port))


async def test_children_stop_in_reverse(supervisor: Supervisor, tmp_path: Path) -> None:
    farewells = tmp_path / "farewells"
    for name in ("first", "second"):
        farewell = f"""
import signal, sys
def leave(*_):
    with open({str(farewells)!r}, "a") as file:
        file.write("{name} ")
    sys.exit()
signal.signal(signal.SIGTERM, leave)
"""
        await supervisor.start(_server(name, port=pick_port(), script=farewell + SERVE))

    await supervisor.stop()

    assert farewells.read_text().split() == ["second", "first"]


async def test_child_that_ignores_the_request_to_stop_is_killed(supervisor: Supervisor) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVE
    spec = _server("deaf", port=pick_port(), script=deaf)
    await supervisor.start(dataclasses.replace(spec, stop=((signal.SIGTERM, 0.2),)))
    process = psutil.Process(supervisor.pids["deaf"])

    await asyncio.wait_for(supervisor.stop(), 10)

    assert not process.is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the children of the dead")
async def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio, sys
from pathlib import Path
from runtime.embedded.supervisor import ChildSpec, Supervisor

async def always():
    return True

async def main():
    supervisor = Supervisor(Path({str(tmp_path)!r}))
    await supervisor.start(ChildSpec(name="c", command=("sleep", "60"), ready=always))
    print(supervisor.pids["c"], flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = psutil.Process(int(await parent.stdout.readline()))

    parent.kill()
    await parent.wait()

    async with asyncio.timeout(5):
        while not _has_ended(child):  # noqa: ASYNC110 - nobody tells us about an orphan
            await asyncio.sleep(0.02)


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_second_supervisor_is_refused_on_the_same_directory(tmp_path: Path) -> None:
    with (
        directory_lock(tmp_path, name="supervisor.lock"),
        pytest.raises(DirectoryInUse, match=rf"in use by process {os.getpid()}"),
        directory_lock(tmp_path, name="supervisor.lock"),
    ):
        pass

    with directory_lock(tmp_path, name="supervisor.lock"):
        pass


def test_private_file_is_replaced_whole_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    write_private(path, "first")
    write_private(path, "second")

    assert path.read_text() == "second"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
