"""Keeps child processes: starts them in order, restarts the dead, stops them in reverse.

Each child lives in a session of its own, so that Ctrl-C in a terminal reaches the supervisor alone;
on Linux it also dies when the supervisor is killed. Children must be started from a thread that
lives as long as they do (the event loop's own): Linux ties the death signal to the thread.
"""

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from runtime.embedded import launch
from runtime.embedded.errors import ChildFailed, EmbeddedError
from runtime.embedded.ports import require_free

_PROBE_INTERVAL_SECONDS: Final = 0.05
_PROBE_TIMEOUT_SECONDS: Final = 5.0
# Short enough that a person hardly notices one death, doubled so that a broken child costs little.
_FIRST_BACKOFF_SECONDS: Final = 0.1
_MAX_BACKOFF_SECONDS: Final = 5.0
# A child that served for this long was healthy: its next death starts the backoff anew.
_HEALTHY_AFTER_SECONDS: Final = 2.0
# Three deaths before it ever served: a broken set-up, not an accident.
_MAX_DEATHS_AT_START: Final = 3
_KILL_WAIT_SECONDS: Final = 10.0
_LOG_TAIL_LINES: Final = 20
_LOG_TAIL_BYTES: Final = 16_384
_MAX_LOG_BYTES: Final = 20_000_000


def _ignore(*_what: object) -> None:
    return None


async def _nothing() -> None:
    return None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ChildSpec:
    """One child process: how it starts, how it is seen to be ready, how it is asked to stop.

    `ready` answers whether it serves now and is asked again until it does. `before_start` runs
    before every start. `ports` maps the option that chooses a port to the port. `stop` lists the
    signals to send and the seconds to wait after each; SIGKILL follows.
    """

    name: str
    command: tuple[str, ...]
    ready: Callable[[], Awaitable[bool]]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    user: str = ""
    before_start: Callable[[], Awaitable[None]] = _nothing
    ports: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    stop: tuple[tuple[signal.Signals, float], ...] = ((signal.SIGTERM, 15.0),)
    parent_death_signal: signal.Signals = signal.SIGKILL
    ready_timeout_seconds: float = 60.0


class _Child:
    """The changing half of a child: its process, and whether it serves."""

    def __init__(self, spec: ChildSpec, *, log: Path) -> None:
        self.spec = spec
        self.log = log
        self.process: asyncio.subprocess.Process | None = None
        self.task: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()
        self.may_run = asyncio.Event()
        self.may_run.set()
        self.stopping = False
        self.ever_ready = False
        self.deaths = 0

    def send(self, signal_number: signal.Signals) -> None:
        """Signal the process, and its whole group when it is to be killed."""
        if self.process is None or self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if signal_number is signal.SIGKILL:
                os.killpg(self.process.pid, signal_number)
            else:
                self.process.send_signal(signal_number)

    async def end(self) -> None:
        """Ask the process to stop, ever less kindly, and wait for its end."""
        if self.process is None:
            return
        for signal_number, wait_seconds in (
            *self.spec.stop,
            (signal.SIGKILL, _KILL_WAIT_SECONDS),
        ):
            self.send(signal_number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), wait_seconds)
                return


class Supervisor:
    """Starts, watches, restarts and stops child processes."""

    def __init__(
        self,
        logs_dir: Path,
        *,
        report: Callable[[str], None] | None = None,
        on_ready: Callable[[str, int], None] | None = None,
    ) -> None:
        """Make a supervisor with nothing to do yet.

        Args:
            logs_dir: each child's output is appended to NAME.log in it.
            report: receives one line of text for each death and return of a child.
            on_ready: receives a child's name and PID each time it becomes ready.
        """
        self._logs_dir = logs_dir
        self._report: Callable[[str], None] = report or _ignore
        self._on_ready: Callable[[str, int], None] = on_ready or _ignore
        self._groups: list[list[_Child]] = []
        self._children: dict[str, _Child] = {}

    @property
    def pids(self) -> dict[str, int]:
        """The PID of every child whose process lives, by name."""
        return {
            name: child.process.pid
            for name, child in self._children.items()
            if child.process is not None and child.process.returncode is None
        }

    async def start(self, *specs: ChildSpec) -> None:
        """Start `specs` side by side and return when all are ready.

        Raises:
            PortTaken: a port is in use; none of `specs` was started.
            ChildFailed: one died repeatedly or was not ready in time; all of `specs` are stopped.
        """
        for spec in specs:
            for option, port in spec.ports.items():
                require_free(port, option=option, name=spec.name)
        self._logs_dir.mkdir(parents=True, exist_ok=True)
        group = [_Child(spec, log=self._logs_dir / f"{spec.name}.log") for spec in specs]
        self._groups.append(group)
        for child in group:
            self._children[child.spec.name] = child
            child.task = asyncio.create_task(self._tend(child), name=f"tend {child.spec.name}")
        try:
            await asyncio.gather(*(_until_ready(child) for child in group))
        except BaseException:
            await self._stop_group(group)
            raise

    async def stop(self) -> None:
        """Stop every child, the last started first; returns when all have ended."""
        while self._groups:
            await self._stop_group(self._groups[-1])

    async def hold(self, name: str, *, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """End one child and keep it down until `release`: how tests make an outage."""
        child = self._children[name]
        child.may_run.clear()
        child.ready.clear()
        child.send(with_signal)
        if child.process is not None:
            try:
                await asyncio.wait_for(child.process.wait(), _KILL_WAIT_SECONDS)
            except TimeoutError:
                await child.end()

    async def release(self, name: str) -> None:
        """Start a held child again; returns when it is ready."""
        self._children[name].may_run.set()
        await _until_ready(self._children[name])

    async def await_ready(self, name: str, *, after_pid: int, timeout_seconds: float = 30.0) -> int:
        """Wait until `name` serves as another process than `after_pid`; return its PID.

        Raises:
            TimeoutError: it did not come back in time.
        """
        child = self._children[name]
        async with asyncio.timeout(timeout_seconds):
            while True:
                await _until_ready(child)
                if child.process is not None and child.process.pid != after_pid:
                    return child.process.pid
                await asyncio.sleep(_PROBE_INTERVAL_SECONDS)

    async def _stop_group(self, group: list[_Child]) -> None:
        for child in group:
            child.stopping = True
        try:
            await asyncio.gather(*(child.end() for child in group))
        finally:
            for child in group:
                child.send(signal.SIGKILL)
                if child.task is not None:
                    child.task.cancel()
            await asyncio.gather(
                *(child.task for child in group if child.task is not None), return_exceptions=True
            )
            if group in self._groups:
                self._groups.remove(group)
            for child in group:
                self._children.pop(child.spec.name, None)

    async def _tend(self, child: _Child) -> None:
        """Run a child again and again until it is stopped or has never worked."""
        loop = asyncio.get_running_loop()
        backoff_seconds = _FIRST_BACKOFF_SECONDS
        while not child.stopping:
            await child.may_run.wait()
            started = loop.time()
            why = await self._run_once(child)
            if child.stopping:
                return
            if not child.may_run.is_set():
                self._report(f"{child.spec.name} is held down ({why})")
                continue
            child.deaths += 1
            if not child.ever_ready and child.deaths >= _MAX_DEATHS_AT_START:
                raise _failure(child, why)
            if loop.time() - started > _HEALTHY_AFTER_SECONDS and child.ever_ready:
                backoff_seconds = _FIRST_BACKOFF_SECONDS
            self._report(
                f"{child.spec.name} {why}; starting it again in {backoff_seconds:.1f} s "
                f"(log: {child.log})"
            )
            await asyncio.sleep(backoff_seconds)
            backoff_seconds = min(2 * backoff_seconds, _MAX_BACKOFF_SECONDS)

    async def _run_once(self, child: _Child) -> str:
        """Run one process of a child to its end; return how it ended, for people."""
        try:
            await child.spec.before_start()
            child.process = process = await _spawn(child)
        except (EmbeddedError, OSError) as error:
            if not child.ever_ready:
                raise
            return f"cannot start: {error}"
        if child.stopping:
            # A stop that came while the process was being made has not seen it.
            await child.end()
        probing = asyncio.create_task(self._probe(child, process.pid))
        try:
            exit_code = await process.wait()
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
            child.ready.clear()
        if not probing.cancelled() and (error := probing.exception()) is not None:
            # Slow to the point of failure at its very start: a second try would be as slow.
            child.deaths = max(child.deaths, _MAX_DEATHS_AT_START - 1)
            return str(error)
        return f"(pid {process.pid}) {_how_it_ended(exit_code)}"

    async def _probe(self, child: _Child, pid: int) -> None:
        """Ask a child until it is ready; one that takes too long is killed.

        Raises:
            ChildFailed: it was not ready in time.
        """
        try:
            async with asyncio.timeout(child.spec.ready_timeout_seconds):
                while not await _answers(child.spec):  # noqa: ASYNC110 - only asking tells
                    await asyncio.sleep(_PROBE_INTERVAL_SECONDS)
        except TimeoutError:
            child.send(signal.SIGKILL)
            waited_seconds = child.spec.ready_timeout_seconds
            raise ChildFailed(
                f"(pid {pid}) was not ready after {waited_seconds:.0f} s and was killed"
            ) from None
        if child.deaths:
            self._report(f"{child.spec.name} is back as pid {pid}")
        child.ever_ready = True
        child.ready.set()
        self._on_ready(child.spec.name, pid)


async def _answers(spec: ChildSpec) -> bool:
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_SECONDS):
            return await spec.ready()
    except TimeoutError:
        return False


async def _until_ready(child: _Child) -> None:
    """Wait for a child to serve, or raise what its keeper raised."""
    if child.task is None:
        return
    serving = asyncio.create_task(child.ready.wait())
    try:
        await asyncio.wait({serving, child.task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        serving.cancel()
    if child.task.done():
        child.task.result()
        raise ChildFailed(f"{child.spec.name} was stopped before it was ready")


async def _spawn(child: _Child) -> asyncio.subprocess.Process:
    spec = child.spec
    if child.log.exists() and child.log.stat().st_size > _MAX_LOG_BYTES:
        child.log.replace(child.log.with_suffix(".log.1"))
    with child.log.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(launch.__file__),
            str(os.getpid()),
            spec.user,
            str(int(spec.parent_death_signal)),
            *spec.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **spec.environment},
            start_new_session=True,
        )


def _how_it_ended(exit_code: int) -> str:
    if exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"


def _failure(child: _Child, why: str) -> ChildFailed:
    return ChildFailed(
        f"{child.spec.name} {why}, {child.deaths} times before it was ready.\n"
        f"The end of {child.log}:\n{log_tail(child.log)}"
    )


def log_tail(log: Path) -> str:
    """Return the last lines of a log file, bounded in lines and bytes."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return "(empty)"
    return "\n".join(lines[-_LOG_TAIL_LINES:]) or "(empty)"
