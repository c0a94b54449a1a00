"""The whole service on one machine: Postgres, Temporal, providers, worker and API, kept running."""

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
from rich.console import Console
from rich.table import Table

from runtime.embedded import programs
from runtime.embedded.commands import run_command
from runtime.embedded.files import directory_lock, write_private
from runtime.embedded.keys import KeyHolder, KeyRing
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.embedded.programs import TALLYSTICK, Ports
from runtime.embedded.supervisor import Supervisor
from runtime.embedded.temporal import EmbeddedTemporal

DEV_FILE: Final = "dev.json"
# A part that was started by itself on the same directory holds its own lock.
_LOCKS: Final = ("supervisor.lock", "postgres.lock", "temporal.lock")
_COMMAND_TIMEOUT_SECONDS: Final = 60.0
_PROBE_TIMEOUT_SECONDS: Final = 3.0


class EmbeddedStack:
    """Everything, as an async context manager; ready, with `dev.json` written, once it is entered.

    A second one on the same directory, after the first has ended in whatever way, finds all data.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        api_port: int = 0,
        temporal_port: int = 0,
        ui_port: int = 0,
        providers_port: int = 0,
        single_process: bool = False,
        postgres_settings: Mapping[str, str] | None = None,
        program: tuple[str, ...] = TALLYSTICK,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Choose the ports; nothing starts before it is entered.

        Args:
            data_dir: holds all state: databases, ledger, keys, logs, `dev.json`.
            api_port, temporal_port, ui_port, providers_port: on the loopback address; 0 picks a
                free one. All ports stay the same while the stack lives.
            single_process: API and worker in one process, the fastest way.
            postgres_settings: added to PostgreSQL's command line.
            program: what runs `migrate`, `keys`, `providers`, `worker`, `api` and `serve`.
            report: receives a line for each step, death and return.
        """
        self._program = program
        self.data_dir = data_dir.resolve()
        self.single_process = single_process
        self._report = report or _discard
        self.ports = Ports.pick(api=api_port, admin=providers_port)
        self.postgres = EmbeddedPostgres(self.data_dir, settings=postgres_settings)
        self.temporal = EmbeddedTemporal(self.data_dir, port=temporal_port, ui_port=ui_port)
        self.supervisor = Supervisor(
            self.data_dir / "logs", report=self._report, on_ready=self._note_ready
        )
        self.keys: dict[str, str] = {}
        self._key_ring = KeyRing(self.data_dir / "keys.json", issue=self._issue_key)
        self._resources = contextlib.AsyncExitStack()
        self._http = httpx.AsyncClient(timeout=_PROBE_TIMEOUT_SECONDS, trust_env=False)
        self._announced = False

    @property
    def is_ready(self) -> bool:
        """Whether everything serves and `dev.json` says so."""
        return self._announced

    @property
    def api_url(self) -> str:
        """The address of the API."""
        return programs.url(self.ports.api)

    @property
    def providers_url(self) -> str:
        """The address of the simulated providers' admin interface."""
        return programs.url(self.ports.admin)

    @property
    def environment(self) -> dict[str, str]:
        """The settings of our programs as environment variables; needs a prepared cluster."""
        settings = programs.environment(
            self.ports,
            database_url=self.postgres.url,
            temporal_address=self.temporal.address,
            temporal_ui_url=self.temporal.ui_url,
        )
        return {**settings, **programs.bytecode_settings(self.data_dir)}

    @property
    def document(self) -> dict[str, Any]:
        """What `dev.json` says."""
        pids = self.supervisor.pids
        if self.single_process and programs.API in pids:
            pids[programs.WORKER] = pids[programs.API]
        return {
            "api": self.api_url,
            "temporal": self.temporal.address,
            "ui": self.temporal.ui_url,
            "providers": self.providers_url,
            "database": self.postgres.url,
            "keys": self.keys,
            "pids": pids,
        }

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as resources:
            resources.push_async_callback(self._http.aclose)
            for name in _LOCKS:
                resources.enter_context(directory_lock(self.data_dir, name=name))
            resources.push_async_callback(self.supervisor.stop)
            resources.callback(self._withdraw)
            await self._start()
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._resources.aclose()

    async def _start(self) -> None:
        self._withdraw()
        self._report("starting Postgres, Temporal and the simulated providers")
        await self.postgres.prepare()
        await self.supervisor.start(
            self.postgres.spec(),
            self.temporal.spec(),
            programs.providers_spec(
                self.ports, program=self._program, data_dir=self.data_dir, probe=self._is_ok
            ),
        )
        self._report("migrating the database")
        await _together(self._run("migrate"), self.temporal.configure())
        self._report("starting the worker and the API")
        await _together(self._start_programs(), self._key_ring.gather())
        self.keys = await self._key_ring.refresh(works=self._token_works)
        self._announced = True
        self._announce()

    async def _start_programs(self) -> None:
        settings = self.environment
        api = programs.api_spec(
            self.ports,
            program=self._program,
            settings=settings,
            probe=self._is_ok,
            with_worker=self.single_process,
        )
        if self.single_process:
            await self.supervisor.start(api)
            return
        worker = programs.worker_spec(
            self.ports, program=self._program, settings=settings, probe=self._is_ok
        )
        await self.supervisor.start(worker, api)

    async def _run(self, *arguments: str) -> str:
        return await run_command(
            (*self._program, *arguments),
            what=f"tallystick {' '.join(arguments)}",
            timeout_seconds=_COMMAND_TIMEOUT_SECONDS,
            environment=self.environment,
        )

    async def _issue_key(self, holder: KeyHolder) -> str:
        return await self._run(
            "keys", "issue", "--tenant", holder.tenant, "--role", holder.role, "--output", "json"
        )

    async def _token_works(self, token: str) -> bool:
        """Whether the API still knows a token; any answer but 401 says so."""
        response = await self._http.get(
            f"{self.api_url}/v1/operations",
            params={"limit": 1},
            headers={"Authorization": f"Bearer {token}"},
        )
        return response.status_code != 401

    async def _is_ok(self, address: str) -> bool:
        try:
            return (await self._http.get(address)).status_code == 200
        except httpx.HTTPError:
            return False

    def _note_ready(self, _name: str, _pid: int) -> None:
        if self._announced:
            self._announce()

    def _announce(self) -> None:
        write_private(self.data_dir / DEV_FILE, json.dumps(self.document, indent=2))

    def _withdraw(self) -> None:
        self._announced = False
        (self.data_dir / DEV_FILE).unlink(missing_ok=True)


async def run_until_signalled(stack: EmbeddedStack, *, console: Console) -> None:
    """Keep a stack in the foreground until SIGINT, SIGTERM or SIGHUP, also while it starts.

    Raises:
        EmbeddedError: it could not start; the message is for the person who started it.
    """
    started, stopped = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, stopped.set)
    running = asyncio.create_task(_keep(stack, console=console, started=started, until=stopped))
    waiting = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not started.is_set():
            running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        waiting.cancel()
        for number in signals:
            loop.remove_signal_handler(number)


async def _keep(
    stack: EmbeddedStack, *, console: Console, started: asyncio.Event, until: asyncio.Event
) -> None:
    async with stack:
        started.set()
        console.print(addresses_table(stack))
        console.print("Ctrl-C stops everything.")
        await until.wait()
        console.print("stopping")
    console.print("stopped")


def addresses_table(stack: EmbeddedStack) -> Table:
    """Where everything is, for people."""
    table = Table(title="Tallystick is ready", show_header=False)
    table.add_row("API", stack.api_url)
    table.add_row("API documentation", f"{stack.api_url}/docs")
    table.add_row("Temporal UI", stack.temporal.ui_url)
    table.add_row("Temporal", stack.temporal.address)
    table.add_row("Simulated providers", stack.providers_url)
    table.add_row("Addresses, keys and PIDs", str(stack.data_dir / DEV_FILE))
    table.add_row("Logs", str(stack.data_dir / "logs"))
    return table


async def _together(*jobs: Coroutine[Any, Any, object]) -> None:
    """Run jobs side by side to their end; the first failure cancels the others and is raised."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _discard(_line: str) -> None:
    return None
