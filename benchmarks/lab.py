"""The laboratory: real Postgres with durable settings, Temporal, the payments process, and whatever
is measured on them. Everything is a child process on loopback, and ends with the lab."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg
import httpx

from runtime.embedded import launch
from runtime.embedded.ports import port_or_pick
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.embedded.temporal import EmbeddedTemporal, is_ready, temporal_program

SUBJECTS = Path(__file__).parent / "subjects"
TALLYSTICK = (sys.executable, "-m", "runtime.cli")
START_SECONDS = 40.0
STOP_SECONDS = 10.0
BODY = '{"amount":{"minor":2400,"currency":"EUR"},"card":"tok_visa"}'
OPERATION_PATH = "/v1/operations/bench.three_charges"

POSTGRES_SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
}
"""Said although they are the defaults: a benchmark on a database that may forget shows nothing."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process we started."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    @property
    def pid(self) -> int:
        """Its PID."""
        return self.process.pid


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Something that takes submissions and can be measured."""

    name: str
    port: int
    path: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    processes: Mapping[str, int]
    """By role, the PIDs whose processor time and memory are its own."""
    database_url: str = ""


class Lab:
    """Starts parts and subjects; an async context manager."""

    def __init__(self, directory: Path) -> None:
        """Keep all state in `directory`."""
        self.directory = directory
        self.postgres = EmbeddedPostgres(directory, settings=POSTGRES_SETTINGS)
        self.temporal = EmbeddedTemporal(directory)
        self.urls: dict[str, str] = {}
        self.admin_url = ""
        self.world_pid = 0
        self._resources = AsyncExitStack()
        self._children: list[Child] = []

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as resources:
            resources.push_async_callback(self._stop_children)
            await resources.enter_async_context(self.postgres)
            await resources.enter_async_context(self.temporal)
            await self._start_world()
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._resources.aclose()

    async def database(self, name: str) -> str:
        """The address of a database of this name, made when it does not exist."""
        connection = await asyncpg.connect(self.postgres.url)
        try:
            with suppress(asyncpg.DuplicateDatabaseError):
                await connection.execute(f'CREATE DATABASE "{name}"')
        finally:
            await connection.close()
        return self.postgres.url_of(name)

    async def start(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str]
    ) -> Child:
        """Start a process that dies with us; its output goes to `logs/`."""
        log = self.directory / "logs" / f"{name}.bench.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                str(launch.__file__),
                str(os.getpid()),
                "",
                "9",
                *command,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": _python_path(), **environment},
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    async def run(self, command: Sequence[str], *, environment: Mapping[str, str]) -> str:
        """Run a command to its end and return what it wrote. Raises RuntimeError when it failed."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
        )
        output, errors = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"{command}: {errors.decode()[-2000:]}")
        return output.decode()

    async def answers(self, child: Child, url: str) -> None:
        """Wait until `url` answers below 500. Raises RuntimeError with the log's end otherwise."""
        async with httpx.AsyncClient(trust_env=False, timeout=2) as http:
            for _ in range(int(START_SECONDS / 0.1)):
                if child.process.returncode is not None:
                    break
                with suppress(httpx.HTTPError):
                    if (await http.get(url)).status_code < 500:
                        return
                await asyncio.sleep(0.1)
        raise RuntimeError(f"{child.name} did not start: {child.log.read_text()[-2000:]}")

    async def stop(self, *children: Child) -> None:
        """End children in order, by force after a while."""
        for child in children:
            if child.process.returncode is None:
                child.process.terminate()
        for child in children:
            try:
                await asyncio.wait_for(child.process.wait(), STOP_SECONDS)
            except TimeoutError:
                child.process.kill()
                await child.process.wait()

    def child(self, pid: int) -> Child:
        """The child with this PID. Raises StopIteration."""
        return next(child for child in self._children if child.pid == pid)

    async def ours(
        self, name: str, *, single_process: bool, environment: Mapping[str, str] | None = None
    ) -> Subject:
        """Tallystick on a database and a task queue of its own."""
        port = port_or_pick(0)
        settings = {
            "TALLYSTICK_DATABASE_URL": await self.database(name),
            "TALLYSTICK_TEMPORAL_ADDRESS": self.temporal.address,
            "TALLYSTICK_TEMPORAL_TASK_QUEUE": name,
            "TALLYSTICK_API_PORT": str(port),
            "TALLYSTICK_WORKER_HEALTH_PORT": str(port_or_pick(0)),
            "TALLYSTICK_EXTRA_OPERATIONS": "three_charges",
            "TALLYSTICK_LOG_LEVEL": "warning",
            **{f"TALLYSTICK_{part.upper()}_URL": url for part, url in self.urls.items()},
            **(environment or {}),
        }
        await self.run((*TALLYSTICK, "migrate"), environment=settings)
        processes: dict[str, int] = {}
        if not single_process:
            worker = await self.start(
                f"{name}-worker", (*TALLYSTICK, "worker"), environment=settings
            )
            processes["worker"] = worker.pid
            await self.answers(
                worker, f"http://127.0.0.1:{settings['TALLYSTICK_WORKER_HEALTH_PORT']}/readyz"
            )
        command = "serve" if single_process else "api"
        api = await self.start(f"{name}-api", (*TALLYSTICK, command), environment=settings)
        processes = {"api and worker" if single_process else "api": api.pid, **processes}
        await self.answers(api, f"http://127.0.0.1:{port}/readyz")
        return Subject(
            name=name,
            port=port,
            path=OPERATION_PATH,
            headers={"Authorization": f"Bearer {await self.token(settings, 'bench')}"},
            processes=processes,
            database_url=settings["TALLYSTICK_DATABASE_URL"],
        )

    async def token(self, settings: Mapping[str, str], tenant: str, *, role: str = "client") -> str:
        """A key for `tenant`."""
        issued = await self.run(
            (*TALLYSTICK, "keys", "issue", "--tenant", tenant, "--role", role, "--output", "json"),
            environment=settings,
        )
        token: str = json.loads(issued)["token"]
        return token

    async def python_subject(
        self,
        name: str,
        program: str,
        *,
        path: str = "/three-charges",
        temporal_address: str = "",
        worker: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Subject:
        """A peer or a floor: one program behind uvicorn, and its worker if it has one."""
        port = port_or_pick(0)
        settings = {
            "BENCH_PORT": str(port),
            "BENCH_PAYMENTS_URL": self.urls["payments"],
            "BENCH_DATABASE_URL": await self.database(name),
            "BENCH_TEMPORAL_ADDRESS": temporal_address,
            **(environment or {}),
        }
        api = await self.start(
            f"{name}-api", (sys.executable, str(SUBJECTS / program)), environment=settings
        )
        processes = {"api" if worker else "service": api.pid}
        if worker is not None:
            child = await self.start(
                f"{name}-worker", (sys.executable, str(SUBJECTS / worker)), environment=settings
            )
            processes["worker"] = child.pid
        await self.answers(api, f"http://127.0.0.1:{port}/openapi.json")
        return Subject(
            name=name,
            port=port,
            path=path,
            processes=processes,
            database_url=settings["BENCH_DATABASE_URL"],
        )

    async def default_temporal(self) -> tuple[str, int]:
        """A development server with nothing but a port, in memory: address and PID."""
        port = port_or_pick(0)
        child = await self.start(
            "temporal-default",
            (
                temporal_program(),
                "server",
                "start-dev",
                "--headless",
                "--port",
                str(port),
                "--log-level",
                "error",
            ),
            environment={},
        )
        address = f"127.0.0.1:{port}"
        async with asyncio.timeout(START_SECONDS):
            while not await is_ready(address, namespace="default"):  # noqa: ASYNC110 - a server
                await asyncio.sleep(0.2)
        return address, child.pid

    async def _start_world(self) -> None:
        announce = self.directory / "providers.json"
        announce.unlink(missing_ok=True)
        child = await self.start(
            "providers",
            (
                sys.executable,
                "-m",
                "providers.simulated",
                f"--ledger={self.directory / 'providers.db'}",
                f"--announce={announce}",
            ),
            environment={},
        )
        async with asyncio.timeout(START_SECONDS):
            while not announce.exists():  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.05)
        addresses: dict[str, str] = json.loads(announce.read_text())
        self.admin_url = addresses["admin"]
        self.urls = {name: url for name, url in addresses.items() if name != "admin"}
        self.world_pid = child.pid

    async def _stop_children(self) -> None:
        await self.stop(*reversed(self._children))


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(SUBJECTS), os.environ.get("PYTHONPATH"))))
