"""The stories of the demo. Each does something to the running stack and says what held."""

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import Any

import httpx

from operations.orders_place import ORDERS_PLACE
from runtime.embedded.stack import EmbeddedStack

SETTLE_SECONDS = 60
"""More than a dead worker's replacement and a look-up past the horizon need together."""

OPERATION = ORDERS_PLACE.name


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was promised, and whether it held."""

    promise: str
    seen: str
    held: bool


@dataclass(frozen=True, slots=True)
class Story:
    """What was done, what held, and where to look."""

    title: str
    key: str
    checks: tuple[Check, ...]
    run_url: str

    @property
    def held(self) -> bool:
        """Whether everything promised held."""
        return all(check.held for check in self.checks)


class World:
    """The stack as the demo sees it: the API as a client, and the providers' own books."""

    def __init__(self, stack: EmbeddedStack, http: httpx.AsyncClient) -> None:
        """Use the stack's addresses and the key of the tenant acme."""
        self.stack = stack
        self._http = http

    async def submit(self, key: str, *, wait: int) -> httpx.Response:
        """Submit the same order under `key`."""
        return await self._http.post(
            f"{self.stack.api_url}/v1/operations/{OPERATION}",
            json=dict(ORDERS_PLACE.example),
            headers={
                "Authorization": f"Bearer {self.stack.keys['acme']}",
                "Idempotency-Key": key,
                "Prefer": f"wait={wait}",
            },
        )

    async def settle(self, key: str) -> httpx.Response:
        """Submit under `key`, as a client would, until there is a receipt."""
        answer = await self.submit(key, wait=5)
        for _ in range(SETTLE_SECONDS // 5):
            if answer.status_code != 202:
                break
            answer = await self.submit(key, wait=5)
        return answer

    async def read(self, key: str) -> dict[str, Any]:
        """The operation's resource."""
        answer = await self._http.get(
            f"{self.stack.api_url}/v1/operations/{OPERATION}/{key}",
            headers={"Authorization": f"Bearer {self.stack.keys['acme']}"},
        )
        resource: dict[str, Any] = answer.raise_for_status().json()
        return resource

    async def books(self, provider: str) -> list[dict[str, Any]]:
        """Every effect that a provider really committed."""
        answer = await self._http.get(
            f"{self.stack.providers_url}/admin/ledger", params={"provider": provider}
        )
        rows: list[dict[str, Any]] = answer.raise_for_status().json()
        return rows

    async def fault(self, provider: str, operation: str, mode: str, *, seconds: float = 1) -> None:
        """Let a provider misbehave once."""
        fault = {"provider": provider, "operation": operation, "mode": mode, "times": 1}
        answer = await self._http.post(
            f"{self.stack.providers_url}/admin/faults", json={**fault, "seconds": seconds}
        )
        answer.raise_for_status()

    async def wait_for_charges(self, count: int) -> None:
        """Wait until the payment provider's books hold `count` charges. Raises TimeoutError."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while len(await self.books("payments")) < count:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    def kill_worker(self) -> int:
        """kill -9 the worker's process; the supervisor starts another one."""
        pid = self.stack.supervisor.pids["worker"]
        os.kill(pid, signal.SIGKILL)
        return pid


async def placed_once(world: World, key: str) -> Story:
    """An order, and the same order again: the reply to the first might have been lost."""
    first = await world.submit(key, wait=30)
    again = await world.submit(key, wait=30)
    charges = await world.books("payments")
    checks = (
        Check("the order is placed", f"{first.status_code}", first.status_code == 201),
        Check(
            "the retry gets the same receipt, byte for byte",
            f"{again.status_code}, {len(again.content)} bytes, "
            f"Idempotent-Replayed: {again.headers.get('idempotent-replayed')}",
            (first.status_code, first.content) == (again.status_code, again.content)
            and again.headers.get("idempotent-replayed") == "true",
        ),
        Check("the provider charged once", _rows(charges), len(charges) == 1),
    )
    return await _told(world, key, "The same order twice", checks)


async def worker_killed(world: World, key: str) -> Story:
    """The worker dies after the provider has charged, before it has told us."""
    before = len(await world.books("payments"))
    await world.fault("payments", "charge", "slow", seconds=3)
    lost = await world.submit(key, wait=0)
    await world.wait_for_charges(before + 1)
    pid = world.kill_worker()
    settled = await world.settle(key)
    charges = (await world.books("payments"))[before:]
    checks = (
        Check("the client got no receipt in time", f"{lost.status_code}", lost.status_code == 202),
        Check("the worker was killed while it charged", f"kill -9 {pid}", True),
        Check("the same key settles it", f"{settled.status_code}", settled.status_code == 201),
        Check("the provider charged once", _rows(charges), len(charges) == 1),
    )
    return await _told(world, key, "A worker killed half-way", checks)


async def carrier_refuses(world: World, key: str) -> Story:
    """The carrier says no after stock was reserved and the card was charged."""
    payments, stock = len(await world.books("payments")), len(await world.books("warehouse"))
    await world.fault("carrier", "book", "decline")
    answer = await world.settle(key)
    money = (await world.books("payments"))[payments:]
    goods = (await world.books("warehouse"))[stock:]
    net = sum(_signed(row) for row in money)
    checks = (
        Check(
            "the client is told the truth",
            f"{answer.status_code} {answer.json()['type']}",
            answer.status_code == 424,
        ),
        Check(
            "the charge is refunded: net zero",
            f"{_rows(money)}, net {net}",
            [row["operation"] for row in money] == ["charge", "refund"] and net == 0,
        ),
        Check(
            "the stock is released",
            _rows(goods),
            [row["operation"] for row in goods] == ["reserve", "release"],
        ),
    )
    return await _told(world, key, "A carrier that refuses", checks)


async def _told(world: World, key: str, title: str, checks: tuple[Check, ...]) -> Story:
    resource = await world.read(key)
    return Story(title=title, key=key, checks=checks, run_url=resource["links"]["temporal_ui"])


def _signed(row: dict[str, Any]) -> int:
    return row["amount"] if row["operation"] == "charge" else -row["amount"]


def _rows(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['operation']} {row['id']}" for row in rows) or "nothing"
