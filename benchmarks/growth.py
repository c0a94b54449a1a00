"""Growth: what more rows, more runs, more waiters and more tenants cost."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
from floors import claim_latencies
from lab import Lab, Subject
from load import Plan
from measure import MIB, Measured, Spread, Watch, measure, percentile, resident_bytes
from side_by_side import submissions

from ledger.database import Database
from ledger.housekeeping import Housekeepings

SAMPLES = 400
TENANTS = 8
IN_FLIGHT = 1000
SLOW_SECONDS = 2.0
WAITERS = 1000
EXPIRED, EXPIRE_BATCHES = 100, 9
RECONCILED_SECONDS, RECONCILED_TIMES = 10, 3
WARM_SECONDS = 1.5
KEYS_SECONDS = 6.0
"""Keys are read again every few seconds."""
SETTLE_SECONDS_MAX = 180.0

Report = Callable[[str], None]

_FILL = """
INSERT INTO claims (tenant, operation, key, fingerprint, request, profiles, state, outcome,
                    receipt_status, receipt_headers, receipt_body,
                    created_at, updated_at, expires_at)
SELECT $1, 'bench.three_charges', 'row-' || n, decode(repeat('00', 32), 'hex'),
       '{"amount":{"currency":"EUR","minor":2400},"card":"tok_visa"}', '{}',
       'done', 'succeeded', 201,
       '[["content-type","application/json"]]', convert_to('{"charge_ids":["ch_1"]}', 'UTF8'),
       now() - interval '1 day' - interval '1 second' * n, now(), now() + interval '30 days'
FROM generate_series($2::bigint, $3::bigint) AS n
"""
_FILL_EFFECTS = """
INSERT INTO effects (claim_id, step, purpose, ordinal, tenant, provider, account, region, guarantee,
                     action, key, state, request, amount_minor, currency, provider_reference, sends,
                     sent_at, last_sent_at, created_at, updated_at)
SELECT id, 'first', 'action', 0, tenant, 'payments', 'default', 'default', 'keyed',
       'charge', 'key-' || id, 'confirmed', '{}', 2400, 'EUR', 'ch_row_' || id, 1,
       created_at, created_at, created_at, created_at
FROM claims WHERE tenant = $1 AND key LIKE 'row-%'
ON CONFLICT DO NOTHING
"""

_OPEN = "SELECT count(*) FROM claims WHERE check_at IS NOT NULL"


@dataclass(frozen=True, slots=True)
class AtSize:
    """Medians with so many claims in the table, in milliseconds."""

    rows: int
    claim_ms: float
    replay_ms: float
    list_ms: float
    deep_list_ms: float
    """A page far behind the newest, by cursor."""
    expire_ms: float
    """One batch of `EXPIRED` claims whose retention is over: their bodies are cleared."""
    reconcile_ms: float
    """A run over one and the same window of the provider's records."""


async def at_sizes(
    lab: Lab, subject: Subject, *, sizes: tuple[int, ...], until: datetime, report: Report
) -> list[AtSize]:
    """Fill the tables step by step, and measure at each size: claims, and an effect of each.

    Claims are made without HTTP (their runs are not the subject); reads go through the API. What
    is reconciled are the last seconds of work before `until`.
    """
    tenant, filled, found = "bench", 0, list[AtSize]()
    operator = await lab.token(
        {"TALLYSTICK_DATABASE_URL": subject.database_url}, tenant, role="operator"
    )
    await asyncio.sleep(KEYS_SECONDS)
    connection = await asyncpg.connect(subject.database_url, command_timeout=600)
    try:
        for rows in sizes:
            await connection.execute(_FILL, tenant, filled + 1, rows, timeout=600)
            await connection.execute(_FILL_EFFECTS, tenant, timeout=600)
            await connection.execute("VACUUM ANALYZE claims, effects", timeout=600)
            filled = rows
            reconcile_ms = await _reconcile_ms(subject, operator, until=until)
            found.append(await _at_size(subject, rows, reconcile_ms=reconcile_ms))
            report(str(found[-1]))
    finally:
        await connection.close()
    return found


async def claims_in_turns(
    subject: Subject, small: Subject, *, rows: int, rounds: int, report: Report
) -> Spread:
    """The median claim in the table of `subject`, filled before, ÷ that in one of `rows`: in turns,
    for the machine's pace changes while a table is filled."""
    connection = await asyncpg.connect(small.database_url)
    try:
        await connection.execute(_FILL, "bench", 1, rows)
        await connection.execute("VACUUM ANALYZE claims")
    finally:
        await connection.close()
    ratios: list[float] = []
    for number in range(rounds + 1):
        full = await claim_latencies(subject.database_url, count=SAMPLES // 2)
        few = await claim_latencies(small.database_url, count=SAMPLES // 2)
        if number:  # the first round warms the pages
            ratios.append(percentile(full, 50) / percentile(few, 50))
    report(f"claims in turns: {ratios}")
    return Spread.of(ratios)


async def _at_size(subject: Subject, rows: int, *, reconcile_ms: float) -> AtSize:
    await claim_latencies(subject.database_url, count=SAMPLES // 2)  # warms the new pages
    claims = await claim_latencies(subject.database_url, count=SAMPLES)
    async with _http(subject) as http:
        replays = await _times(
            SAMPLES // 2, lambda: http.get(f"{subject.path}/row-{rows // 2}/receipt")
        )
        first = await _times(SAMPLES // 4, lambda: http.get("/v1/operations?limit=50"))
        cursor = await _cursor_after(http, pages=20)
        deep = await _times(
            SAMPLES // 4,
            lambda: http.get("/v1/operations", params={"limit": 50, "cursor": cursor}),
        )
    return AtSize(
        rows=rows,
        claim_ms=percentile(claims, 50) * 1000,
        replay_ms=percentile(replays, 50) * 1000,
        list_ms=percentile(first, 50) * 1000,
        deep_list_ms=percentile(deep, 50) * 1000,
        expire_ms=await _expire_ms(subject),
        reconcile_ms=reconcile_ms,
    )


async def _reconcile_ms(subject: Subject, operator: str, *, until: datetime) -> float:
    """The median run, from its request to its end."""
    since = until - timedelta(seconds=RECONCILED_SECONDS)
    window = {"since": since.isoformat(), "until": until.isoformat()}
    headers = {"Authorization": f"Bearer {operator}"}
    taken: list[float] = []
    async with _http(subject) as http:
        for _ in range(RECONCILED_TIMES):
            began = time.perf_counter()
            answer = await http.post(
                "/v1/reconciliation/payments/runs",
                json=window,
                headers={**headers, "Idempotency-Key": uuid.uuid4().hex, "Prefer": "wait=60"},
                timeout=90,
            )
            if answer.raise_for_status().json()["ended_at"] is None:
                raise RuntimeError("The reconciliation took too long")
            taken.append(time.perf_counter() - began)
    return percentile(sorted(taken), 50) * 1000


async def _expire_ms(subject: Subject) -> float:
    """The median batch, a year from now: all that is done is over by then."""
    database = await Database.open(subject.database_url, connections_max=1)
    housekeeping, then = Housekeepings(database), datetime.now(UTC) + timedelta(days=366)
    taken: list[float] = []
    try:
        for _ in range(EXPIRE_BATCHES):
            began = time.perf_counter()
            if await housekeeping.expire(now=then, limit=EXPIRED) != EXPIRED:
                raise RuntimeError("There was less to expire than was measured")
            taken.append(time.perf_counter() - began)
    finally:
        await database.close()
    return percentile(sorted(taken), 50) * 1000


async def _cursor_after(http: httpx.AsyncClient, *, pages: int) -> str:
    cursor: str = ""
    for _ in range(pages):
        params = {"limit": "100", **({"cursor": cursor} if cursor else {})}
        page = (await http.get("/v1/operations", params=params)).json()
        cursor = page["next_cursor"] or cursor
    return cursor


async def _times(count: int, get: Callable[[], Awaitable[httpx.Response]]) -> list[float]:
    taken: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        (await get()).raise_for_status()
        taken.append(time.perf_counter() - began)
    return sorted(taken)


@dataclass(frozen=True, slots=True)
class InFlight:
    """A thousand runs at once."""

    runs: int
    accepted_seconds: float
    settled_seconds: float
    peak_mib: Mapping[str, float]


async def in_flight(lab: Lab, subject: Subject, *, report: Report) -> InFlight:
    """Accept `IN_FLIGHT` operations while the provider is slow, and wait until all are done."""
    watch = Watch(subject.processes)
    sampling = asyncio.create_task(watch.sample())
    await _fault(lab, "slow", times=IN_FLIGHT, seconds=SLOW_SECONDS)
    plan = submissions(subject, concurrency=64, seconds=120, count_max=IN_FLIGHT)
    plan = _with(plan, headers={**plan.headers, "Prefer": "respond-async"})
    began = time.monotonic()
    accepted = await measure(plan)
    accepted_seconds = time.monotonic() - began
    await _until_settled(subject)
    sampling.cancel()
    found = InFlight(
        runs=accepted.operations,
        accepted_seconds=accepted_seconds,
        settled_seconds=time.monotonic() - began,
        peak_mib={role: peak / MIB for role, peak in watch.peaks.items()},
    )
    report(str(found))
    return found


async def _until_settled(subject: Subject) -> None:
    connection = await asyncpg.connect(subject.database_url)
    try:
        async with asyncio.timeout(SETTLE_SECONDS_MAX):
            while await connection.fetchval(_OPEN):  # noqa: ASYNC110 - other processes work
                await asyncio.sleep(0.25)
    finally:
        await connection.close()


async def waiters(lab: Lab, subject: Subject, *, report: Report) -> Measured:
    """`WAITERS` requests under one key while its operation is slow: all get the one receipt."""
    await _fault(lab, "slow", times=1, seconds=4.0)
    plan = submissions(subject, concurrency=WAITERS, seconds=60, count_max=WAITERS)
    measured = await measure(_with(plan, keys=1), processes=subject.processes)
    report(f"{WAITERS} waiters: {dict(measured.statuses)}, p99 {measured.p99_ms:.0f} ms")
    return measured


@dataclass(frozen=True, slots=True)
class Fairness:
    """The others' latency with and without one tenant's flood."""

    quiet_p50_ms: float
    quiet_p99_ms: float
    flooded_p50_ms: float
    flooded_p99_ms: float


async def fairness(lab: Lab, subject: Subject, *, seconds: float, report: Report) -> Fairness:
    """Seven tenants at an easy pace; then the same beside an eighth that sends all it can.

    The flood does not wait for its runs: they pile up in front of the workers.
    """
    settings = {"TALLYSTICK_DATABASE_URL": subject.database_url}
    tokens = [await lab.token(settings, f"tenant-{number}") for number in range(TENANTS)]
    await asyncio.sleep(KEYS_SECONDS)
    calm = submissions(subject, concurrency=16, seconds=seconds)
    calm = _with(
        calm,
        headers={**calm.headers, "Authorization": "Bearer {token}"},
        tokens=tokens[1:],
        rate_per_second=4.0,
    )
    flood = _with(
        submissions(subject, concurrency=16, seconds=seconds, count_max=600),
        headers={
            "Authorization": f"Bearer {tokens[0]}",
            "Idempotency-Key": "{key}",
            "Prefer": "respond-async",
        },
        rate_per_second=60.0,
    )
    await measure(submissions(subject, concurrency=8, seconds=WARM_SECONDS))
    quiet = await measure(_with(calm, prefix=uuid.uuid4().hex))
    flooded, _ = await asyncio.gather(measure(calm), measure(flood))
    await _until_settled(subject)
    for calmly in (quiet, flooded):
        if set(calmly.statuses) != {"201"}:
            raise RuntimeError(f"The others were answered {dict(calmly.statuses)}")
    found = Fairness(quiet.p50_ms, quiet.p99_ms, flooded.p50_ms, flooded.p99_ms)
    report(str(found))
    return found


@dataclass(frozen=True, slots=True)
class Soak:
    """Resident memory in the course of steady work, in MiB."""

    operations: int
    mib: Mapping[str, list[float]]


async def soak(subject: Subject, *, seconds: float, report: Report) -> Soak:
    """Work steadily, and note memory at ten moments."""
    mib: dict[str, list[float]] = {role: [] for role in subject.processes}
    operations = 0
    for _ in range(10):
        measured = await measure(submissions(subject, concurrency=8, seconds=seconds / 10))
        operations += measured.operations
        for role, pid in subject.processes.items():
            mib[role].append(round(resident_bytes(pid) / MIB, 1))
    report(f"soak: {operations} operations, {mib}")
    return Soak(operations, mib)


def _http(subject: Subject) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{subject.port}",
        headers=dict(subject.headers),
        trust_env=False,
        timeout=30,
    )


def _with(plan: Plan, **changes: Any) -> Plan:
    return Plan(**{**asdict(plan), **changes})


async def _fault(lab: Lab, mode: str, *, times: int, seconds: float) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(
            f"{lab.admin_url}/admin/faults",
            json={
                "provider": "payments",
                "operation": "charge",
                "mode": mode,
                "times": times,
                "seconds": seconds,
            },
        )
        answer.raise_for_status()
