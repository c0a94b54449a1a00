"""The simulated world as a child process on free ports, with its admin interface at hand."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

START_SECONDS = 15.0
POLL_SECONDS = 0.02


class World:
    """A running world. Its addresses stay the same over a restart."""

    def __init__(self, ledger: Path, *, arguments: Sequence[str] = ()) -> None:
        """Keep the ledger in `ledger`; `arguments` go to `python -m providers.simulated`."""
        self.ledger_path = ledger
        self.urls: Mapping[str, str] = {}
        self._announce = ledger.with_suffix(".announce.json")
        self._arguments = tuple(arguments)
        self._process: asyncio.subprocess.Process | None = None
        self._admin: aiohttp.ClientSession | None = None

    @property
    def pid(self) -> int:
        """Of the child process."""
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        """Start it and wait until it listens."""
        self._admin = aiohttp.ClientSession()
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop it in order."""
        await self.stop()
        assert self._admin is not None
        await self._admin.close()

    async def start(self) -> None:
        """Start the process, on the ports it had before if it ran already."""
        self._announce.unlink(missing_ok=True)
        ports = [f"--{name}-port={urlsplit(url).port}" for name, url in self.urls.items()]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "providers.simulated",
            f"--ledger={self.ledger_path}",
            f"--announce={self._announce}",
            *ports,
            *self._arguments,
        )
        async with asyncio.timeout(START_SECONDS):
            while not self._announce.exists():
                assert self._process.returncode is None, "the world did not start"
                await asyncio.sleep(POLL_SECONDS)
        self.urls = json.loads(self._announce.read_text())

    async def stop(self) -> int:
        """SIGTERM; returns the exit status (of an earlier death, if it is dead)."""
        return await self._end(signal.SIGTERM)

    async def kill9(self) -> None:
        """SIGKILL, and wait until it is gone."""
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """Start again on the same ports and the same ledger."""
        await self.stop()
        await self.start()

    async def faults(
        self,
        provider: str,
        mode: str,
        *,
        operation: str = "*",
        times: int = 1,
        seconds: float = 1.0,
    ) -> Mapping[str, Any]:
        """Arm a fault; returns it as stored."""
        order = {
            "provider": provider,
            "operation": operation,
            "mode": mode,
            "times": times,
            "seconds": seconds,
        }
        status, fault = await self.admin("POST", "/admin/faults", order)
        assert status == 201, fault
        return fault

    async def clear_faults(self) -> None:
        """Disarm everything and reopen every port."""
        await self.admin("DELETE", "/admin/faults")

    async def armed(self) -> Sequence[Mapping[str, Any]]:
        """The faults that are still armed."""
        return (await self.admin("GET", "/admin/faults"))[1]

    async def ledger(self, provider: str, operation: str | None = None) -> list[dict[str, Any]]:
        """What the provider committed, in order; of one operation if named."""
        _, rows = await self.admin("GET", f"/admin/ledger?provider={provider}")
        return [row for row in rows if operation in (None, row["operation"])]

    async def seed(self, provider: str, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Write records directly; returns their identifiers."""
        status, document = await self.admin(
            "POST", "/admin/ledger", {"provider": provider, "records": list(records)}
        )
        assert status == 201, document
        return document["ids"]

    async def wipe(self) -> None:
        """Empty all ledgers and forget all keys."""
        await self.admin("DELETE", "/admin/ledger")

    async def temperament(self, temperament: str) -> None:
        """Change the acquirer's."""
        order = {"provider": "acquirer", "temperament": temperament}
        status, document = await self.admin("POST", "/admin/temperament", order)
        assert status == 200, document

    async def admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request to the admin interface: its status and its document."""
        assert self._admin is not None
        async with self._admin.request(method, self.urls["admin"] + path, json=body) as response:
            return response.status, await response.json()

    async def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(START_SECONDS):
            return await self._process.wait()


@asynccontextmanager
async def running_world(ledger: Path, *, arguments: Sequence[str] = ()) -> AsyncGenerator[World]:
    """A world for the length of a block."""
    async with World(ledger, arguments=arguments) as world:
        yield world
