"""`make faults` and `make mutants`.

python -m support.faults [--seed N] [--only PATTERN] [--minutes M] [--pairs N] [--report DIR]
python -m support.faults --mutants
"""

import argparse
import asyncio
import secrets
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from support.checker.report import Outcome, Report, print_report, write_report
from support.directories import open_directory
from support.faults import neighbours, plan
from support.faults.play import Player
from support.faults.rig import Rig

_console = Console(width=150, highlight=False)


async def run(scenarios: list[plan.Scenario], *, minutes: float, seed: int) -> Report:
    """Play `scenarios` on one rig until all are played or the time is over."""
    began, outcomes = time.monotonic(), list[Outcome]()
    with open_directory() as directory:
        async with Rig(directory, settings=neighbours.settings()) as rig:
            player = Player(rig)
            await player.prepare()
            for number, scenario in enumerate(scenarios, start=1):
                if time.monotonic() - began > minutes * 60:
                    break
                outcome = await player.play(scenario)
                outcomes.append(outcome)
                _tell(number, len(scenarios), outcome)
    return Report(
        seed=seed,
        began=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        seconds=time.monotonic() - began,
        outcomes=tuple(outcomes),
        planned=len(scenarios),
    )


def _tell(number: int, count: int, outcome: Outcome) -> None:
    verdict = "good" if outcome.is_good else "BAD"
    _console.print(f"{number}/{count} {outcome.scenario}: {verdict} ({outcome.seconds:.0f} s)")
    for line in (*outcome.missing, *outcome.violations):
        _console.print(f"    {line}", markup=False)


def main() -> int:
    """Run what the command line asks for; 1 when something is missing or violated."""
    parser = argparse.ArgumentParser(prog="python -m support.faults")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="*", help="a shell pattern of scenario names")
    parser.add_argument("--minutes", type=float, default=44.0)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--report", type=Path, default=Path(".tallystick/faults"))
    parser.add_argument("--list", action="store_true", help="name the scenarios, run nothing")
    parser.add_argument("--mutants", action="store_true", help="plant each mutant in turn")
    chosen = parser.parse_args()
    if chosen.mutants:
        from support.faults.hunt import hunt

        return asyncio.run(hunt(chosen.only, _console))
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    scenarios = plan.matching(plan.whole(seed, pairs=chosen.pairs), chosen.only)
    _console.print(f"{len(scenarios)} scenarios; replay with SEED={seed}")
    if chosen.list:
        for scenario in scenarios:
            _console.print(scenario.name, markup=False)
        return 0
    report = asyncio.run(run(scenarios, minutes=chosen.minutes, seed=seed))
    print_report(report, _console)
    for path in write_report(report, chosen.report):
        _console.print(f"wrote {path}")
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
