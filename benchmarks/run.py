"""`make bench`: everything side by side, targets and measurements in one table, JSON, plots.

`--full` takes longer and gives narrower spreads; `--only peers,floors,growth` chooses.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import report
from costs import costs
from floors import floors
from growth import at_sizes, claims_in_turns, fairness, in_flight, soak, waiters
from lab import Lab, Subject
from rich.console import Console
from side_by_side import APART, compare, start_peers

SUITES = ("peers", "floors", "growth")
RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"

FEW_CLAIMS = "ours, few claims"

console = Console()


def say(line: str) -> None:
    """Show progress."""
    console.print(f"[dim]{line}[/dim]", highlight=False)


async def run(directory: Path, *, full: bool, suites: tuple[str, ...]) -> dict[str, Any]:
    """Measure, and return all of it as one document."""
    began = time.monotonic()
    document = report.header(full=full)
    async with Lab(directory) as lab:
        ours = await lab.ours(APART, single_process=False)
        if "peers" in suites:
            document |= await _peers(lab, ours, full=full)
        if "floors" in suites:
            rounds, seconds = (7, 5.0) if full else (3, 2.0)
            found = await floors(lab, ours, rounds=rounds, seconds=seconds, report=say)
            document["floors"] = found.document()
            document["costs"] = report.plain(await costs(lab, ours))
            say(str(document["costs"]))
        if "growth" in suites:
            document["growth"] = await _growth(lab, ours, full=full)
    document["minutes"] = round((time.monotonic() - began) / 60, 1)
    return document


async def _peers(lab: Lab, ours: Subject, *, full: bool) -> dict[str, Any]:
    say("starting the peers")
    peers = await start_peers(lab, ours)
    rounds, seconds = (7, 6.0) if full else (3, 3.0)
    results = await compare(peers, rounds=rounds, seconds=seconds, report=say)
    for subject in peers.subjects:
        if subject is not ours:
            await lab.stop(*(lab.child(pid) for pid in subject.processes.values()))
    return report.peers_section(results)


async def _growth(lab: Lab, ours: Subject, *, full: bool) -> dict[str, Any]:
    document: dict[str, Any] = {}
    document["soak"] = report.plain(await soak(ours, seconds=600 if full else 40, report=say))
    worked_until = datetime.now(UTC)
    document["in_flight"] = report.plain(await in_flight(lab, ours, report=say))
    seconds = 60 if full else 20
    document["fairness"] = report.plain(await fairness(lab, ours, seconds=seconds, report=say))
    # Last: memory that a thousand connections took is not given back.
    document["waiters"] = (await waiters(lab, ours, report=say)).document()
    sizes = (10_000, 100_000, 1_000_000)
    document["sizes"] = [
        report.plain(found)
        for found in await at_sizes(lab, ours, sizes=sizes, until=worked_until, report=say)
    ]
    few = await lab.ours(FEW_CLAIMS, single_process=False)
    await lab.stop(*(lab.child(pid) for pid in few.processes.values()))
    document["claims_in_turns"] = report.plain(
        await claims_in_turns(ours, few, rows=sizes[0], rounds=5, report=say)
    )
    return document


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default=",".join(SUITES))
    parser.add_argument("--publish", action="store_true", help="write docs/bench.json and plots")
    arguments = parser.parse_args()
    suites = tuple(arguments.only.split(","))
    if set(suites) - set(SUITES):
        sys.exit(f"--only takes some of {', '.join(SUITES)}")
    if arguments.publish and set(suites) != set(SUITES):
        sys.exit("--publish needs all of them")
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as directory:
        Path(directory).chmod(0o755)  # Postgres runs as a user of its own
        document = asyncio.run(run(Path(directory), full=arguments.full, suites=suites))
    RESULTS.mkdir(exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    (RESULTS / f"{stamp}.json").write_text(json.dumps(document, indent=2))
    for table in report.tables(document):
        console.print(table)
    if arguments.publish:
        report.publish(document, DOCS)
        say("written: docs/bench.json and the plots")


if __name__ == "__main__":
    main()
