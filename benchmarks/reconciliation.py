"""Reconcile a hundred thousand records on real parts: time, peak memory, and claims beside it.

    .venv/bin/python benchmarks/reconciliation.py [RECORDS]

Starts the embedded stack with the API and the worker as processes of their own, writes both halves,
and reconciles them over HTTP. What is measured is the worker's memory, page by page, and how long a
claim (a submission that is answered at once) takes before and while it runs.
"""

import asyncio
import json
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.books import Books, Charged
from support.directories import open_directory

SEED_RECORDS = 5_000
SAMPLE_SECONDS = 0.2
CLAIM_PAUSE_SECONDS = 0.05
BASELINE_SECONDS = 10.0


async def main(records: int) -> None:
    """Measure, and print a line a figure."""
    with open_directory() as directory:
        stack = await asyncio.create_subprocess_exec(
            *(str(Path(sys.executable).parent / "tallystick"), "dev", "--data-dir", str(directory)),
            *("--api-port", "0", "--temporal-port", "0", "--ui-port", "0", "--providers-port", "0"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await _measure(await _ready(directory / "dev.json"), records)
        finally:
            stack.terminate()
            await stack.wait()


async def _ready(announced: Path) -> dict[str, Any]:
    for _ in range(600):
        if await asyncio.to_thread(announced.exists):
            return json.loads(await asyncio.to_thread(announced.read_text))
        await asyncio.sleep(0.2)
    raise TimeoutError("The stack did not start")


async def _measure(dev: dict[str, Any], records: int) -> None:
    now = datetime.now(UTC)
    since = now - timedelta(seconds=records + 600)
    books = Books(dev["database"], "acme")
    async with httpx.AsyncClient(timeout=300, trust_env=False) as client:
        for start in range(0, records, SEED_RECORDS):
            number = min(SEED_RECORDS, records - start)
            at = since + timedelta(seconds=start)
            charges = books.charges(number, since=at, prefix=f"b{start}")
            await books.write(charges)
            await _seed(client, dev["providers"], charges)
        calm = await _claims(client, dev, seconds=BASELINE_SECONDS)
        body = {"since": since.isoformat(), "until": now.isoformat()}
        stop = asyncio.Event()
        memory = asyncio.create_task(_memory(dev["pids"]["worker"], stop))
        beside = asyncio.create_task(_claims(client, dev, until=stop))
        began = time.monotonic()
        run = await _reconcile(client, dev, body)
        seconds = time.monotonic() - began
        stop.set()
        samples, busy = await memory, await beside
    counts = run["counts"]
    median_busy, median_calm = statistics.median(busy), statistics.median(calm)
    print(f"records reconciled    {counts['records']:>10,}, {counts['matched']:,} of them matched")
    print(f"time                  {seconds:>10.1f} s")
    print(
        f"worker memory         {samples[0]:>10.0f} MiB before, {max(samples):.0f} MiB at its peak"
    )
    print(f"claims beside it, p99 {_p99(busy):>10.1f} ms, {_p99(calm):.1f} ms without it")
    print(f"claims, median        {median_busy:>10.1f} ms, {median_calm:.1f} ms without it")


async def _seed(client: httpx.AsyncClient, admin: str, charges: list[Charged]) -> None:
    order = {"provider": "payments", "records": [charge.record() for charge in charges]}
    (await client.post(f"{admin}/admin/ledger", json=order)).raise_for_status()


async def _reconcile(
    client: httpx.AsyncClient, dev: dict[str, Any], body: dict[str, Any]
) -> dict[str, Any]:
    operator = {"Authorization": f"Bearer {dev['keys']['operator']}"}
    answer = await client.post(
        f"{dev['api']}/v1/reconciliation/payments/runs",
        json=body,
        headers={**operator, "Idempotency-Key": "bench", "Prefer": "wait=60"},
    )
    run = answer.raise_for_status().json()
    while run["ended_at"] is None:
        await asyncio.sleep(0.5)
        run = (await client.get(dev["api"] + run["links"]["self"], headers=operator)).json()
    return run


async def _claims(
    client: httpx.AsyncClient,
    dev: dict[str, Any],
    *,
    seconds: float = 0.0,
    until: asyncio.Event | None = None,
) -> list[float]:
    """Milliseconds of one claim after the other: what a client waits that asks for 202."""
    taken: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline if until is None else not until.is_set():
        began = time.monotonic()
        await client.post(
            f"{dev['api']}/v1/operations/payments.charge",
            json={"amount": {"minor": 5, "currency": "EUR"}, "card": "tok_visa"},
            headers={
                "Authorization": f"Bearer {dev['keys']['acme']}",
                "Idempotency-Key": f"claim-{began}",
                "Prefer": "respond-async",
            },
        )
        taken.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(CLAIM_PAUSE_SECONDS)
    return taken


async def _memory(pid: int, stop: asyncio.Event) -> list[float]:
    """Resident MiB of the worker, a sample every fifth of a second."""
    process = psutil.Process(pid)
    samples = [process.memory_info().rss / 2**20]
    while not stop.is_set():
        await asyncio.sleep(SAMPLE_SECONDS)
        samples.append(process.memory_info().rss / 2**20)
    return samples


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
