"""The embedded stack under test: its children take their environment from a control file, every
write to a provider passes a noting proxy, and single children can be armed, killed and frozen."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from operations.failpoints import HANG_VARIABLE, LOG_VARIABLE, VARIABLE
from runtime.embedded.postgres import FAST_SETTINGS
from runtime.embedded.stack import EmbeddedStack
from support.faults.wire import Proxy, Wire

HANG_SECONDS = 8.0
"""Past the heartbeat (4 s), the workflow task (5 s) and a step's activity (1 + 5 s)."""

FIGURES: dict[str, float] = {
    "send_timeout_seconds": 1.0,
    "lookup_horizon_seconds": 4.0,  # 1 s our timeout + 2 s a permit lasts + 1 s late commits
    "lookup_interval_seconds": 0.5,
}
"""The providers' profiles, shortened: the same rules, in seconds that a suite can wait for."""

PROFILES = json.dumps(
    dict.fromkeys(("payments", "acquirer", "warehouse", "carrier"), FIGURES)
    | {"mail": {"send_timeout_seconds": 1.0}}
)


class Rig:
    """The stack, and everything that can be done to it."""

    def __init__(
        self,
        directory: Path,
        *,
        mutants: tuple[str, ...] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing starts before it is entered."""
        self.directory = directory
        self.wire = Wire()
        self.fired_log = directory / "fired-0000.log"
        self._armed = 0
        self._control = directory / "control.json"
        self._mutants = mutants
        self._settings = dict(settings or {})
        self._environment: dict[str, dict[str, str]] = {}
        self._resources = contextlib.AsyncExitStack()
        directory.mkdir(parents=True, exist_ok=True)
        self._write_control()
        child = Path(__file__).with_name("child.py")
        self.stack = EmbeddedStack(
            directory / "data",
            postgres_settings=FAST_SETTINGS,
            program=(sys.executable, str(child), str(self._control)),
        )
        self.database_proxy: Proxy | None = None

    async def __aenter__(self) -> Self:
        """Start the wire, then the stack; returns when everything serves."""
        (self.directory / "data").mkdir(mode=0o755, exist_ok=True)
        names = ("payments", "acquirer", "warehouse", "carrier", "mail")
        targets = {name: f"http://127.0.0.1:{getattr(self.stack.ports, name)}" for name in names}
        addresses = await self.wire.start(targets)
        self.shared = {
            "TALLYSTICK_PROVIDER_PROFILES": PROFILES,
            **self._settings,
            **{f"TALLYSTICK_{name.upper()}_URL": url for name, url in addresses.items()},
        }
        self._environment = {"api": dict(self.shared), "worker": dict(self.shared)}
        self._write_control()
        async with contextlib.AsyncExitStack() as resources:
            resources.push_async_callback(self.wire.stop)
            await resources.enter_async_context(self.stack)
            self.temporal = await Client.connect(
                self.stack.temporal.address, data_converter=pydantic_data_converter
            )
            self._resources = resources.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop everything."""
        await self._resources.aclose()

    async def restart(self, *children: str) -> None:
        """Kill children and start them again, with the environment that the control file holds."""
        await asyncio.gather(*(self._restart_one(child) for child in children))

    def arm(self, child: str, entry: str) -> None:
        """Arm failpoints in `child` from now on. What fires is noted in a new log."""
        self._armed += 1
        self.fired_log = self.directory / f"fired-{self._armed:04d}.log"
        self.set(
            child,
            {
                VARIABLE: entry,
                LOG_VARIABLE: str(self.fired_log),
                HANG_VARIABLE: str(HANG_SECONDS),
            },
        )

    def set(self, child: str, changes: Mapping[str, str]) -> None:
        """Choose what is different in the environment of `child`: failpoints from now on, settings
        from its next start on."""
        self._environment[child] = {**self.shared, **changes}
        self._write_control()

    def fired(self) -> int:
        """How many failpoints have fired since `arm`."""
        return len(self.fired_log.read_text().splitlines()) if self.fired_log.exists() else 0

    async def through_a_proxy(self, *, cut_every: int) -> None:
        """Put a proxy between our programs and Postgres that loses every nth answer."""
        proxy = Proxy(urlsplit(self.stack.postgres.url).port or 0, cut_every=cut_every)
        await proxy.start()
        self.database_proxy = proxy
        split = urlsplit(self.stack.postgres.url)
        url = split._replace(netloc=split.netloc.replace(f":{split.port}", f":{proxy.port}"))
        for child in ("api", "worker"):
            self.set(child, {"TALLYSTICK_DATABASE_URL": url.geturl()})
        await self.restart("api", "worker")

    async def without_a_proxy(self) -> None:
        """Connect to Postgres directly again."""
        assert self.database_proxy is not None
        for child in ("api", "worker"):
            self.set(child, {})
        await self.restart("api", "worker")
        await self.database_proxy.stop()
        self.database_proxy = None

    def kill(self, child: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal a child; returns its PID."""
        pid = self.stack.supervisor.pids[child]
        os.kill(pid, number)
        return pid

    async def back(self, child: str, *, after_pid: int) -> None:
        """Wait until a child serves again."""
        await self.stack.supervisor.await_ready(child, after_pid=after_pid, timeout_seconds=60)

    async def ready(self) -> None:
        """Wait until all children serve."""
        for child in ("postgres", "temporal", "providers", "worker", "api"):
            await self.stack.supervisor.await_ready(child, after_pid=0, timeout_seconds=60)

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the providers' admin interface."""
        async with httpx.AsyncClient(timeout=15, trust_env=False) as http:
            answer = await http.request(method, f"{self.stack.providers_url}{path}", json=body)
            answer.raise_for_status()
            return answer.json() if answer.content else None

    async def fault(
        self, provider: str, mode: str, *, operation: str = "*", times: int = 1, seconds: float = 1
    ) -> None:
        """Have a provider misbehave."""
        order = {
            "provider": provider,
            "operation": operation,
            "mode": mode,
            "times": times,
            "seconds": seconds,
        }
        await self.admin("POST", "/admin/faults", order)

    async def _restart_one(self, child: str) -> None:
        await self.stack.supervisor.hold(child)
        await self.stack.supervisor.release(child)

    def _write_control(self) -> None:
        document = {"environment": self._environment, "mutants": list(self._mutants)}
        fresh = self._control.with_suffix(".new")
        fresh.write_text(json.dumps(document))
        fresh.replace(self._control)
