"""Side by side: the same service on each subject, in rounds that take turns, so that drift of the
machine hits all alike."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab import BODY, Lab, Subject
from load import Plan
from measure import Measured, Spread, measure

CONCURRENCIES = (1, 32, 128)
OURS, APART = "ours, one process", "ours, API + worker"
DBOS, DBOS_AIOHTTP = "DBOS", "DBOS, httpx on aiohttp"
TEMPORAL, TEMPORAL_DEFAULT = "bare Temporal, our server flags", "bare Temporal, default server"

Results = dict[tuple[str, int], list[Measured]]


@dataclass(frozen=True, slots=True)
class Peers:
    """Every subject, and the parts that they share."""

    subjects: tuple[Subject, ...]
    shared: Mapping[str, Mapping[str, int]]
    """By subject: PIDs of the servers that work for it."""


async def start_peers(lab: Lab, apart: Subject) -> Peers:
    """Start them all beside ours in two processes; an idle one costs next to nothing."""
    address, default_pid = await lab.default_temporal()
    worker = "temporal_worker.py"
    subjects = (
        await lab.ours(OURS, single_process=True),
        apart,
        await lab.python_subject(DBOS, "dbos_service.py"),
        await lab.python_subject(
            DBOS_AIOHTTP, "dbos_service.py", environment={"BENCH_TRANSPORT": "aiohttp"}
        ),
        await lab.python_subject(
            TEMPORAL, "temporal_service.py", temporal_address=lab.temporal.address, worker=worker
        ),
        await lab.python_subject(
            TEMPORAL_DEFAULT, "temporal_service.py", temporal_address=address, worker=worker
        ),
    )
    database = {"postgres": lab.postgres.pid}
    ours = {**database, "temporal": lab.temporal.pid}
    providers = {"payments": lab.world_pid}
    return Peers(
        subjects,
        {
            OURS: {**ours, **providers},
            APART: {**ours, **providers},
            DBOS: {**database, **providers},
            DBOS_AIOHTTP: {**database, **providers},
            TEMPORAL: {"temporal": lab.temporal.pid, **providers},
            TEMPORAL_DEFAULT: {"temporal": default_pid, **providers},
        },
    )


async def compare(
    peers: Peers, *, rounds: int, seconds: float, report: Callable[[str], None]
) -> Results:
    """Measure each subject at each concurrency, `rounds` times, in turns."""
    results: Results = {}
    for subject in peers.subjects:
        await measure(submissions(subject, concurrency=8, seconds=1.5))
    for number in range(rounds):
        for concurrency in CONCURRENCIES:
            for subject in peers.subjects:
                measured = await measure(
                    submissions(subject, concurrency=concurrency, seconds=seconds),
                    processes={**subject.processes, **peers.shared[subject.name]},
                )
                results.setdefault((subject.name, concurrency), []).append(measured)
                report(
                    f"round {number + 1}, {concurrency:>3} at once, {subject.name}: "
                    f"{measured.per_second:.1f}/s, p50 {measured.p50_ms:.0f} ms"
                )
    return results


def submissions(
    subject: Subject, *, concurrency: int, seconds: float, count_max: int = 20_000
) -> Plan:
    """New operations, each under its own key."""
    return Plan(
        port=subject.port,
        method="POST",
        path=subject.path,
        headers={**subject.headers, "Idempotency-Key": "{key}"},
        body=BODY,
        concurrency=concurrency,
        count_max=count_max,
        seconds_max=seconds,
        prefix=uuid.uuid4().hex,
    )


def spread(
    results: Results, name: str, concurrency: int, figure: Callable[[Measured], float]
) -> Spread:
    """One figure over the rounds."""
    return Spread.of([figure(measured) for measured in results[name, concurrency]])


def ratio(
    results: Results, concurrency: int, figure: Callable[[Measured], float], over: str
) -> Spread:
    """Ours ÷ a peer's, round by round: drift between the rounds cancels out."""
    ours, theirs = results[OURS, concurrency], results[over, concurrency]
    return Spread.of([figure(a) / max(figure(b), 1e-9) for a, b in zip(ours, theirs, strict=True)])


def total_cpu_ms(measured: Measured) -> float:
    """Processor time per operation, everything together but the load generator."""
    return sum(measured.cpu_ms.values())
