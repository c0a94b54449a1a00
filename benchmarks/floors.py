"""Floors: what the same work costs at the least. Ours beside FastAPI and asyncpg and nothing else;
a run beside the plain sum of its provider calls."""

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import asyncpg
import httpx
from lab import Lab, Subject
from load import ACCOUNTS, Plan
from measure import Measured, Spread, measure, percentile
from side_by_side import submissions

from ledger.claims import Claims, Intent
from ledger.database import Database

KEYS = 200
CONCURRENCY = 32
CALLS = 150
RUNS_PER_SECOND = 8.0
TRANSFER = '{"from":"from-{n}","to":"to-{n}","amount":{"minor":1,"currency":"EUR"}}'


@dataclass(frozen=True, slots=True)
class Floors:
    """Ratios over the rounds, and the rates behind them."""

    replay: Spread
    replay_per_second: Spread
    read_per_second: Spread
    local: Spread
    local_per_second: Spread
    insert_per_second: Spread
    claim: Spread
    """Claiming ÷ a bare INSERT, both without HTTP: throughput."""
    overhead_ms: float
    """Of a run by itself, in one process, beside its three provider calls."""
    calls_ms: float

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


async def floors(
    lab: Lab, subject: Subject, *, rounds: int, seconds: float, report: Callable[[str], None]
) -> Floors:
    """Measure `subject` and the floors in turns."""
    floor = await lab.python_subject("floor", "floor_service.py", path="/rows")
    await make_accounts(subject)
    replay, read, transfer, insert = _plans(subject, floor, seconds=seconds)
    # Each key's first request: what is replayed, or read, afterwards.
    first = submissions(subject, concurrency=16, seconds=60, count_max=KEYS)
    await measure(_with(first, prefix=replay.prefix))
    await measure(_with(insert, prefix=read.prefix, count_max=KEYS))
    runs: dict[str, list[Measured]] = {name: [] for name in ("replay", "read", "local", "insert")}
    claims: list[float] = []
    for _ in range(rounds):
        for name, plan in (("replay", replay), ("read", read)):
            runs[name].append(await measure(plan))
        for name, plan in (("local", transfer), ("insert", insert)):
            runs[name].append(await measure(_with(plan, prefix=uuid.uuid4().hex)))
        claims.append(await _claim_over_insert(subject.database_url, floor.database_url))
        report(", ".join(f"{name} {taken[-1].per_second:.0f}/s" for name, taken in runs.items()))
    check_statuses(runs)
    await lab.stop(*(lab.child(pid) for pid in floor.processes.values()))
    run_ms = await _single_process_run_ms(lab, seconds=seconds)
    calls_ms = await _three_calls_ms(lab.urls["payments"])
    return Floors(
        replay=_ratio(runs["replay"], runs["read"]),
        replay_per_second=_rates(runs["replay"]),
        read_per_second=_rates(runs["read"]),
        local=_ratio(runs["local"], runs["insert"]),
        local_per_second=_rates(runs["local"]),
        insert_per_second=_rates(runs["insert"]),
        claim=Spread.of(claims),
        overhead_ms=run_ms - calls_ms,
        calls_ms=calls_ms,
    )


async def _single_process_run_ms(lab: Lab, *, seconds: float) -> float:
    """The median time of a run with API and worker in one process, with a pause before each: what
    the run before has left to do, telling Temporal of its end, is not counted to the next."""
    single = await lab.ours("single", single_process=True)
    await measure(submissions(single, concurrency=8, seconds=1.5))
    by_itself = _with(
        submissions(single, concurrency=1, seconds=seconds * 4), rate_per_second=RUNS_PER_SECOND
    )
    run = await measure(by_itself)
    await lab.stop(*(lab.child(pid) for pid in single.processes.values()))
    return run.p50_ms


async def make_accounts(subject: Subject) -> None:
    """Pairs of accounts that may go below zero."""
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{subject.port}", headers=dict(subject.headers), trust_env=False
    ) as http:
        for number in range(ACCOUNTS):
            for side in ("from", "to"):
                answer = await http.put(
                    f"/v1/accounts/{side}-{number}", json={"currency": "EUR", "floor_minor": None}
                )
                answer.raise_for_status()


def check_statuses(runs: dict[str, list[Measured]]) -> None:
    """A benchmark of failures is none. Raises RuntimeError."""
    for name, taken in runs.items():
        for measured in taken:
            if set(measured.statuses) - {"200", "201"}:
                raise RuntimeError(f"{name}: {dict(measured.statuses)}")


def _plans(subject: Subject, floor: Subject, *, seconds: float) -> tuple[Plan, Plan, Plan, Plan]:
    replay = submissions(subject, concurrency=CONCURRENCY, seconds=seconds, count_max=1_000_000)
    read = Plan(
        port=floor.port,
        method="GET",
        path="/rows/{key}",
        headers={},
        body="",
        concurrency=CONCURRENCY,
        count_max=1_000_000,
        seconds_max=seconds,
        prefix=uuid.uuid4().hex,
        keys=KEYS,
    )
    transfer = _with(replay, path="/v1/operations/accounts.transfer", body=TRANSFER)
    insert = _with(
        read,
        method="POST",
        path="/rows",
        headers={"Idempotency-Key": "{key}"},
        body=TRANSFER,
        keys=0,
    )
    return _with(replay, keys=KEYS), read, transfer, insert


def _with(plan: Plan, **changes: Any) -> Plan:
    return Plan(**{**asdict(plan), **changes})


def _rates(taken: list[Measured]) -> Spread:
    return Spread.of([measured.per_second for measured in taken])


def _ratio(ours: list[Measured], floor: list[Measured]) -> Spread:
    return Spread.of([a.per_second / b.per_second for a, b in zip(ours, floor, strict=True)])


async def _claim_over_insert(ours_url: str, floor_url: str) -> float:
    """How many claims are made in the time of an insert."""
    claim_ms = percentile(await claim_latencies(ours_url, count=CALLS), 50)
    connection = await asyncpg.connect(floor_url)
    try:
        insert_ms = percentile(
            await _latencies(
                CALLS,
                lambda _number: connection.execute(
                    "INSERT INTO floor (key, body) VALUES ($1, $2)", uuid.uuid4().hex, b"{}" * 30
                ),
            ),
            50,
        )
    finally:
        await connection.close()
    return insert_ms / claim_ms


async def claim_latencies(url: str, *, count: int) -> list[float]:
    """Seconds of each of `count` first claims, one after the other, in order of length.

    The claims are taken away again: nobody will run them.
    """
    database = await Database.open(url, connections_max=1)
    claims, tenant = Claims(database), f"t{uuid.uuid4().hex[:12]}"
    far = datetime(2099, 1, 1, tzinfo=UTC)  # the relay is to leave them alone
    try:
        return await _latencies(
            count, lambda number: claims.claim(_intent(tenant, number), now=far)
        )
    finally:
        async with database.connection() as connection:
            await connection.execute("DELETE FROM claims WHERE tenant = $1", tenant)
        await database.close()


def _intent(tenant: str, number: int) -> Intent:
    return Intent(
        tenant=tenant,
        operation="bench.three_charges",
        key=f"k-{number}",
        fingerprint=bytes(32),
        request='{"amount":{"currency":"EUR","minor":2400},"card":"tok_visa"}',
        profiles="{}",
    )


async def _three_calls_ms(url: str) -> float:
    """Three charges, one after the other, through httpx: the median."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:

        async def thrice(_number: int) -> None:
            for _ in range(3):
                key = uuid.uuid4().hex
                body = {"reference": key, "amount": 1, "currency": "EUR", "source": "tok_visa"}
                answer = await http.post("/v1/charges", json=body, headers={"Idempotency-Key": key})
                answer.raise_for_status()

        return percentile(await _latencies(CALLS, thrice), 50) * 1000


async def _latencies(count: int, work: Callable[[int], Awaitable[object]]) -> list[float]:
    taken: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        await work(number)
        taken.append(time.perf_counter() - began)
    return sorted(taken)
