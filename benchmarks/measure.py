"""Carry out a plan in the load generator, and see what it costs: rates, latencies, processors."""

import asyncio
import json
import statistics
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from load import Plan

LOAD = Path(__file__).parent / "load.py"
SAMPLE_SECONDS = 0.25
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one plan."""

    operations: int
    seconds: float
    per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    statuses: Mapping[str, int]
    cpu_ms: Mapping[str, float] = field(default_factory=dict[str, float])
    """Processor time per operation, by process."""
    peak_mib: Mapping[str, float] = field(default_factory=dict[str, float])
    """Resident memory, by process."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


async def measure(plan: Plan, *, processes: Mapping[str, int] | None = None) -> Measured:
    """Carry out `plan`, watching `processes` (by role, with their children)."""
    watch = Watch(processes or {})
    before = watch.cpu_seconds()
    sampling = asyncio.create_task(watch.sample())
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(LOAD),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate(json.dumps(asdict(plan)).encode())
    sampling.cancel()
    after = watch.cpu_seconds()
    if process.returncode:
        raise RuntimeError(f"the load generator failed on {plan.path}")
    seen: dict[str, Any] = json.loads(output)
    latencies = sorted(seen["latencies"])
    count = len(latencies)
    return Measured(
        operations=count,
        seconds=seen["seconds"],
        per_second=count / seen["seconds"],
        p50_ms=percentile(latencies, 50) * 1000,
        p95_ms=percentile(latencies, 95) * 1000,
        p99_ms=percentile(latencies, 99) * 1000,
        statuses=seen["statuses"],
        cpu_ms={role: (after[role] - before[role]) * 1000 / max(count, 1) for role in before},
        peak_mib={role: peak / MIB for role, peak in watch.peaks.items()},
    )


class Watch:
    """Processor time and peak memory of processes and their children."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        """Watch PIDs by role."""
        self._processes = processes
        self.peaks = dict.fromkeys(processes, 0)

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time so far, by role. A child that ended in between is missed."""
        return {role: _cpu_seconds(pid) for role, pid in self._processes.items()}

    async def sample(self) -> None:
        """Note peaks of memory until cancelled."""
        while True:
            for role, pid in self._processes.items():
                self.peaks[role] = max(self.peaks[role], resident_bytes(pid))
            await asyncio.sleep(SAMPLE_SECONDS)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process (not of its children: Postgres's share theirs)."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).memory_info().rss
    return 0


def _cpu_seconds(pid: int) -> float:
    seconds = 0.0
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds += times.user + times.system
    return seconds


def percentile(ordered: list[float], percent: float) -> float:
    """Of values in order, by nearest rank; 0 for none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


@dataclass(frozen=True, slots=True)
class Spread:
    """What several runs of one thing gave."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        """Median, least and greatest. Raises ValueError for no values."""
        return cls(statistics.median(values), min(values), max(values))

    def text(self, unit: str = "") -> str:
        """For a table."""
        digits = 0 if self.median >= 100 else 1 if self.median >= 10 else 2
        return f"{self.median:.{digits}f}{unit} ({self.low:.{digits}f}-{self.high:.{digits}f})"
