"""What was measured, as tables for people, JSON for programs, and plots for the docs."""

import json
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from measure import Measured, Spread
from rich.table import Table
from side_by_side import (
    APART,
    CONCURRENCIES,
    DBOS,
    DBOS_AIOHTTP,
    TEMPORAL,
    TEMPORAL_DEFAULT,
    Results,
    ratio,
    spread,
    total_cpu_ms,
)

PACKAGES = ("temporalio", "dbos", "asyncpg", "fastapi", "uvicorn", "httpx", "aiohttp", "pydantic")
_BEGIN, _END = "<!-- figures: written by make bench -->", "<!-- end of figures -->"
_PEERS_PLOT = "![Throughput and latency of every subject](bench-peers.svg)"
_SIZES_PLOT = "![Medians over the number of claims](bench-sizes.svg)"
FIGURES: Mapping[str, Callable[[Measured], float]] = {
    "per_second": lambda m: m.per_second,
    "p50_ms": lambda m: m.p50_ms,
    "p95_ms": lambda m: m.p95_ms,
    "p99_ms": lambda m: m.p99_ms,
    "cpu_ms": total_cpu_ms,
}


def header(*, full: bool) -> dict[str, Any]:
    """When and on what, without names."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "profile": "full" if full else "quick",
        "machine": {
            "cores": psutil.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "architecture": platform.machine(),
            "load_before": round(psutil.getloadavg()[0], 1),
            "yardstick_ms": round(_yardstick_ms(), 1),
        },
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _yardstick_ms() -> float:
    """A million additions in a loop, the best of five: what this machine is worth just now."""
    best = float("inf")
    for _ in range(5):
        began, total = time.perf_counter(), 0
        for number in range(1_000_000):
            total += number
        best = min(best, time.perf_counter() - began)
    return best * 1000


def plain(value: Any) -> dict[str, Any]:
    """A result as JSON."""
    return asdict(value)


def peers_section(results: Results) -> dict[str, Any]:
    """Medians, spreads and ratios of the side-by-side runs."""
    subjects: dict[str, Any] = {}
    for name, concurrency in results:
        taken = results[name, concurrency]
        figures = {
            figure: asdict(spread(results, name, concurrency, read))
            for figure, read in FIGURES.items()
        }
        subjects.setdefault(name, {})[str(concurrency)] = {
            **figures,
            "cpu_ms_by_process": _medians(taken, lambda m: m.cpu_ms),
            "peak_mib": _medians(taken, lambda m: m.peak_mib),
            "operations": sum(m.operations for m in taken),
            "statuses": _added(m.statuses for m in taken),
        }
    ratios = {
        peer: {
            str(concurrency): {
                figure: asdict(ratio(results, concurrency, read, peer))
                for figure, read in FIGURES.items()
            }
            for concurrency in CONCURRENCIES
        }
        for peer in (DBOS, DBOS_AIOHTTP, TEMPORAL, TEMPORAL_DEFAULT, APART)
    }
    return {"subjects": subjects, "ratios": ratios}


def tables(document: Mapping[str, Any]) -> list[Table]:
    """For the terminal."""
    found: list[Table] = []
    if "subjects" in document:
        found += [_subjects_table(document), _cpu_table(document)]
    found.append(_targets_table(document))
    return found


def _subjects_table(document: Mapping[str, Any]) -> Table:
    table = Table(title="The same work on every side: median (least-greatest) over the rounds")
    for column in ("subject", "at once", "operations/s", "p50 ms", "p95 ms", "p99 ms", "CPU ms/op"):
        table.add_column(column, justify="left" if column == "subject" else "right")
    for name, levels in document["subjects"].items():
        for concurrency, figures in levels.items():
            table.add_row(
                name, concurrency, *(Spread(**figures[figure]).text() for figure in FIGURES)
            )
    return table


def _cpu_table(document: Mapping[str, Any]) -> Table:
    table = Table(title="Processor time per operation, and peak memory, at 32 at once")
    for column in ("subject", "CPU ms by process", "peak MiB"):
        table.add_column(column)
    for name, levels in document["subjects"].items():
        figures = levels["32"]
        table.add_row(name, _listed(figures["cpu_ms_by_process"]), _listed(figures["peak_mib"]))
    return table


def targets(document: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    """What was promised, and what was measured: (what, target, measured, met)."""
    rows: list[tuple[str, str, str, bool]] = []

    def row(what: str, measured: Spread, *, least: float = 0.0, most: float = 0.0) -> None:
        met = measured.median >= least if least else measured.median <= most
        target = f">= {least:g}" if least else f"<= {most:g}"
        rows.append((what, target, measured.text(), met))

    if "ratios" in document:
        ratios = document["ratios"]
        row(
            "operations/s at 32 at once, ours / DBOS",
            Spread(**ratios[DBOS]["32"]["per_second"]),
            least=1.2,
        )
        row("p50 at 1 at once, ours / DBOS", Spread(**ratios[DBOS]["1"]["p50_ms"]), most=1.0)
        for peer in (TEMPORAL, TEMPORAL_DEFAULT):
            row(
                f"operations/s at 32 at once, ours / {peer}",
                Spread(**ratios[peer]["32"]["per_second"]),
                least=2.0,
            )
    if "floors" in document:
        floors = document["floors"]
        row("replay / bare read, throughput", Spread(**floors["replay"]), least=0.8)
        row("local operation / bare insert, throughput", Spread(**floors["local"]), least=0.6)
        own = floors["overhead_ms"]
        rows.append(("a run of three calls, our own p50 ms", "<= 15", f"{own:.1f}", own <= 15))
    if "growth" in document:
        rows += _growth_targets(document["growth"])
    return rows


def _growth_targets(growth: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    claim = Spread(**growth["claims_in_turns"])
    slower = _slower(growth["fairness"])
    peak = growth["in_flight"]["peak_mib"]
    return [
        (
            "claim p50, a million rows / ten thousand",
            "<= 1.15",
            claim.text(),
            claim.median <= 1.15,
        ),
        ("others' p99 beside a flood / without", "<= 2", f"{slower:.2f}", slower <= 2),
        ("API's peak MiB, 1000 runs in flight", "<= 150", f"{peak['api']:.0f}", peak["api"] <= 150),
        (
            "worker's peak MiB, 1000 runs in flight",
            "<= 250",
            f"{peak['worker']:.0f}",
            peak["worker"] <= 250,
        ),
    ]


def _slower(fairness: Mapping[str, float]) -> float:
    return fairness["flooded_p99_ms"] / fairness["quiet_p99_ms"]


def _targets_table(document: Mapping[str, Any]) -> Table:
    table = Table(title="Targets")
    for column in ("what", "target", "measured", ""):
        table.add_column(column)
    for what, target, measured, met in targets(document):
        table.add_row(what, target, measured, "[green]met[/green]" if met else "[red]missed[/red]")
    if "floors" in document:
        floors = document["floors"]
        table.add_row(
            "a run beside its three calls",
            "",
            f"{floors['calls_ms']:.1f} ms + {floors['overhead_ms']:.1f} ms of our own",
        )
        table.add_row("claim / bare INSERT, without HTTP", "", Spread(**floors["claim"]).text())
    return table


def publish(document: Mapping[str, Any], docs: Path) -> None:
    """Write the summary, the plots, and the tables of docs/performance.md."""
    summary = {
        **document,
        "targets": [
            {"what": what, "target": target, "measured": measured, "met": met}
            for what, target, measured, met in targets(document)
        ],
    }
    (docs / "bench.json").write_text(json.dumps(_rounded(summary), indent=2) + "\n")
    page = docs / "performance.md"
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n\n{figures(document)}\n{_END}{after}")
    from plots import plot_peers, plot_sizes  # noqa: PLC0415 - matplotlib is slow to import

    plot_peers(document, docs / "bench-peers.svg")
    plot_sizes(document, docs / "bench-sizes.svg")


def figures(document: Mapping[str, Any]) -> str:
    """The tables of docs/performance.md, in Markdown."""
    machine = document["machine"]
    lines = [
        f"Measured on {document['date']}, profile {document['profile']}: {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['architecture']}, Python {document['python']}; "
        f"load average before the run {machine['load_before']}; a million additions in a loop took "
        f"{machine['yardstick_ms']:.0f} ms. "
        + ", ".join(f"{name} {number}" for name, number in document["packages"].items())
        + ". Median (least-greatest) over the rounds.",
        "",
        "| what | target | measured | |",
        "|---|---|---|---|",
        *(
            f"| {what} | {target} | {measured} | {'met' if met else '**missed**'} |"
            for what, target, measured, met in targets(document)
        ),
        "",
        "| subject | at once | operations/s | p50 ms | p95 ms | p99 ms | CPU ms per operation |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, levels in document["subjects"].items():
        for concurrency, found in levels.items():
            cells = " | ".join(Spread(**found[figure]).text() for figure in FIGURES)
            lines.append(f"| {name} | {concurrency} | {cells} |")
    lines += ["", "| at 32 at once | CPU ms by process | peak MiB |", "|---|---|---|"]
    for name, levels in document["subjects"].items():
        found = levels["32"]
        lines.append(
            f"| {name} | {_listed(found['cpu_ms_by_process'])} | {_listed(found['peak_mib'])} |"
        )
    return "\n".join([*lines, "", _PEERS_PLOT, "", *_growth_lines(document), "", _SIZES_PLOT, ""])


def _growth_lines(document: Mapping[str, Any]) -> list[str]:
    floors, growth, counted = document["floors"], document["growth"], document["costs"]
    lines = [
        (
            "| claims in the table | claim ms | replay ms | first page ms "
            "| a page 2000 rows on ms | expiring 100 ms | reconciling 10 s of work, ms |"
        ),
        "|---|---|---|---|---|---|---|",
        *(
            f"| {size['rows']:,} | {size['claim_ms']:.2f} | {size['replay_ms']:.2f} "
            f"| {size['list_ms']:.2f} | {size['deep_list_ms']:.2f} | {size['expire_ms']:.2f} "
            f"| {size['reconcile_ms']:.0f} |"
            for size in growth["sizes"]
        ),
        "",
    ]
    flight, waited, soaked = growth["in_flight"], growth["waiters"], growth["soak"]
    fair = growth["fairness"]
    memory = "; ".join(
        f"{role} {values[0]} at a tenth, {values[-1]} at the end"
        for role, values in soaked["mib"].items()
    )
    return [
        *lines,
        (
            f"- One operation of three steps costs the servers {counted['commits']:.1f} commits, "
            f"{counted['rows_inserted']:.1f} rows inserted, {counted['rows_updated']:.1f} updated, "
            f"{counted['wal_kib']:.1f} KiB of write-ahead log, and a history of "
            f"{counted['history_events']} events and {counted['history_kib']:.1f} KiB."
        ),
        (
            f"- A run by itself took {floors['overhead_ms']:.1f} ms more than its three "
            f"provider calls, which took {floors['calls_ms']:.1f} ms through httpx."
        ),
        (
            f"- {flight['runs']} runs in flight: accepted in {flight['accepted_seconds']:.0f} s, "
            f"all settled after {flight['settled_seconds']:.1f} s, peak MiB "
            f"{_listed(flight['peak_mib'])}."
        ),
        (
            f"- {waited['operations']} waiters on one key: answers {waited['statuses']}, "
            f"p99 {waited['p99_ms']:.0f} ms (the operation itself took 4 s)."
        ),
        f"- Soak, {soaked['operations']} operations: resident MiB, {memory}.",
        (
            "- Seven tenants beside an eighth's flood of 60 a second: "
            f"p50 {fair['flooded_p50_ms']:.0f} and p99 {fair['flooded_p99_ms']:.0f} ms; "
            f"without it, {fair['quiet_p50_ms']:.0f} and {fair['quiet_p99_ms']:.0f} ms."
        ),
    ]


def _medians(
    taken: list[Measured], read: Callable[[Measured], Mapping[str, float]]
) -> dict[str, float]:
    return {role: Spread.of([read(m)[role] for m in taken]).median for role in read(taken[0])}


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for some in counts:
        for name, count in some.items():
            total[name] = total.get(name, 0) + count
    return total


def _listed(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{role} {value:.1f}" for role, value in figures.items())


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
    return value
