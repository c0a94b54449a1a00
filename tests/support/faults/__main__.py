"""`make faults` and `make mutants`.

python -m support.faults [--seed N] [--only PATTERN] [--times N] [--jobs N] [--publish] …
python -m support.faults --mutants [--only PATTERN] [--jobs N] [--publish]
"""

import argparse
import asyncio
import secrets
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from support.checker.report import Outcome, Report, print_report, write_report
from support.faults import figures, mutants, plan
from support.faults.hunt import hunt, print_hunted
from support.faults.lanes import Lanes, lanes_of_this_machine

EVERYTHING = "*"

_console = Console(width=150, highlight=False)


@dataclass(frozen=True)
class Choice:
    """What the command line asks for."""

    seed: int
    only: str
    times: int
    jobs: int
    minutes: float
    pairs: int
    report: Path
    publish: bool

    def scenarios(self) -> list[plan.Scenario]:
        """What is to be played."""
        chosen = plan.matching(plan.whole(self.seed, pairs=self.pairs), self.only)
        return plan.repeated(chosen, times=self.times)

    def planted(self) -> list[str]:
        """The mutants that are to be planted."""
        return [name for name in mutants.names() if plan.fits(name, self.only)]


def play(choice: Choice) -> bool:
    """Play the scenarios, print and write the report; whether it is good."""
    began, clock = datetime.now(UTC), time.monotonic()
    lanes = Lanes(
        scenarios=choice.scenarios(),
        count=choice.jobs,
        seconds_max=choice.minutes * 60,
        tell=_tell,
        keep_bad_in=choice.report / "bad",
    )
    report = Report(
        seed=choice.seed,
        outcomes=asyncio.run(lanes.play()),
        began=f"{began:%Y-%m-%d %H:%M} UTC",
        seconds=time.monotonic() - clock,
        planned=len(lanes.scenarios),
        lanes=choice.jobs,
    )
    print_report(report, _console)
    for path in write_report(report, choice.report):
        _console.print(f"wrote {path}")
    if choice.publish:
        figures.publish_report(report)
    return report.is_good


def plant(choice: Choice) -> bool:
    """Plant each mutant; whether all were noticed."""
    hunted = asyncio.run(hunt(choice.planted(), lanes=choice.jobs, console=_console))
    print_hunted(hunted, _console)
    if choice.publish:
        figures.publish_hunted(hunted)
    return all(one.is_caught for one in hunted)


def _tell(outcome: Outcome, lanes: Lanes) -> None:
    done, count = len(lanes.outcomes), len(lanes.scenarios)
    verdict = "good" if outcome.is_good else "BAD"
    minutes, seconds = divmod(round(lanes.seconds_left()), 60)
    left = f"{minutes}:{seconds:02d} left"
    line = f"{done}/{count} {outcome.scenario}: {verdict} ({outcome.seconds:.0f} s), {left}"
    _console.print(line, markup=False)
    for trouble in (*outcome.missing, *outcome.violations):
        _console.print(f"    {trouble}", markup=False)


def main() -> int:
    """Run what the command line asks for; 1 when something is missing, violated or not noticed."""
    parser = argparse.ArgumentParser(prog="python -m support.faults")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--only", default=EVERYTHING, help="shell patterns of names, joined by |")
    parser.add_argument("--times", type=int, default=1, help="how often each is played")
    parser.add_argument("--jobs", type=int, default=lanes_of_this_machine(), help="at a time")
    parser.add_argument("--minutes", type=float, default=44.0)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--report", type=Path, default=Path(".tallystick/faults"))
    parser.add_argument("--publish", action="store_true", help=f"write figures to {figures.PAGE}")
    parser.add_argument("--list", action="store_true", help="name the scenarios, run nothing")
    parser.add_argument("--mutants", action="store_true", help="plant each mutant in turn")
    given = vars(parser.parse_args())
    names_only, plants = given.pop("list"), given.pop("mutants")
    choice = Choice(**given)
    if choice.publish and (choice.only != EVERYTHING or choice.times != 1):
        parser.error("only a whole run is published")
    scenarios = choice.scenarios()
    if not (choice.planted() if plants else scenarios):
        parser.error(f"nothing is called {choice.only}")
    if plants:
        return 0 if plant(choice) else 1
    _console.print(f"{len(scenarios)} scenarios, {choice.jobs} at a time; SEED={choice.seed}")
    if names_only:
        for scenario in scenarios:
            _console.print(scenario.name, markup=False)
        return 0
    return 0 if play(choice) else 1


if __name__ == "__main__":
    sys.exit(main())
