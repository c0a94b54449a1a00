"""The load generator: a process of its own, on loopback, bounded in requests and in time.

Reads a plan as JSON from standard input, writes what it saw as JSON to standard output. HTTP is
spoken by hand on kept-alive connections: a client library would take a good part of two cores.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field

import uvloop

ANSWER_SECONDS_MAX = 30.0
RECONNECT_SECONDS = 0.05
ACCOUNTS = 64
"""`{n}` in a body becomes a number below this, in turn: rows that are not one hot row."""

LOST = (OSError, EOFError, TimeoutError)
"""A connection that breaks is counted among the statuses, by its name, and another one is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to send. `{key}` in path and headers becomes each request's own key."""

    port: int
    method: str
    path: str
    headers: dict[str, str]
    body: str
    concurrency: int
    count_max: int
    seconds_max: float
    prefix: str
    """Of fresh keys: `prefix-n`. With `keys` > 0 they repeat: `prefix-0` to `prefix-(keys - 1)`."""
    keys: int = 0
    tokens: tuple[str, ...] = ()
    """`{token}` in a header becomes one of these, in turn: several tenants at once."""
    rate_per_second: float = 0.0
    """Open loop: at most this many a second start, over all connections. 0 is a closed loop."""


@dataclass(slots=True)
class Seen:
    """What came of it. Latencies in seconds."""

    latencies: list[float] = field(default_factory=list[float])
    statuses: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0


class Load:
    """One plan being carried out."""

    def __init__(self, plan: Plan) -> None:
        """Nothing is sent yet."""
        self._plan = plan
        self._sent = 0
        self._seen = Seen()

    async def run(self) -> Seen:
        """Send until the count or the time is used up, and wait for what is under way."""
        started = time.perf_counter()
        deadline = started + self._plan.seconds_max
        async with asyncio.TaskGroup() as group:
            for _ in range(self._plan.concurrency):
                group.create_task(self._one_connection(started, deadline))
        self._seen.seconds = time.perf_counter() - started
        return self._seen

    async def _one_connection(self, started: float, deadline: float) -> None:
        while self._sent < self._plan.count_max and time.perf_counter() < deadline:
            try:
                await self._keep_sending(started, deadline)
            except LOST as error:
                self._count(type(error).__name__)
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _keep_sending(self, started: float, deadline: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._plan.port)
        try:
            while self._sent < self._plan.count_max and time.perf_counter() < deadline:
                number = self._sent
                self._sent += 1
                await self._await_turn(number, started)
                began = time.perf_counter()
                writer.write(self._request(number))
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    status = await _read_answer(reader)
                self._seen.latencies.append(time.perf_counter() - began)
                self._count(status)
        finally:
            writer.close()

    def _count(self, status: str) -> None:
        self._seen.statuses[status] = self._seen.statuses.get(status, 0) + 1

    async def _await_turn(self, number: int, started: float) -> None:
        if self._plan.rate_per_second:
            due = started + number / self._plan.rate_per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))

    def _request(self, number: int) -> bytes:
        plan = self._plan
        key = f"{plan.prefix}-{number % plan.keys if plan.keys else number}"
        token = plan.tokens[number % len(plan.tokens)] if plan.tokens else ""
        body = plan.body.replace("{n}", str(number % ACCOUNTS)).encode()
        lines = [
            f"{plan.method} {plan.path.replace('{key}', key)} HTTP/1.1",
            "Host: 127.0.0.1",
            *(
                f"{name}: {value.replace('{key}', key).replace('{token}', token)}"
                for name, value in plan.headers.items()
            ),
        ]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + body


async def _read_answer(reader: asyncio.StreamReader) -> str:
    head = await reader.readuntil(b"\r\n\r\n")
    status = head[9:12].decode()
    lower = head.lower()
    at = lower.find(b"content-length:")
    if at < 0:
        raise ValueError("an answer without a length")
    length = int(lower[at + 15 : lower.index(b"\r", at)])
    if length:
        await reader.readexactly(length)
    return status


def main() -> None:
    """Carry out the plan."""
    plan = Plan(**json.load(sys.stdin))
    json.dump(asdict(uvloop.run(Load(plan).run())), sys.stdout)


if __name__ == "__main__":
    main()
