"""The report: a table for a terminal, JSON for programs, and one HTML page for people."""

import html
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console
from rich.table import Table

from support.checker.evidence import Evidence
from support.checker.invariants import INVARIANTS, Violation

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: #18794e; } .bad { color: #cd2b31; font-weight: 600; }
summary { cursor: pointer; } code { font-size: .9em; }
"""


class Outcome(BaseModel):
    """One scenario: what was done to the service, what it did, and what the checker says."""

    model_config = ConfigDict(frozen=True)

    scenario: str
    fault: str
    mode: str
    guarantee: str
    seconds: float
    fired: int = 0
    operations: int = 0
    attempts: int = 0
    unknown: int = 0
    """Attempts without an answer, or with a 5xx."""
    effects: int = 0
    interruptions: int = 0
    """Attempts of tasks and activities beyond the first."""
    resolved: int = 0
    """Effects of which an outcome was unknown, and found out."""
    parked: int = 0
    outcomes: dict[str, int] = Field(default_factory=dict[str, int])
    missing: tuple[str, ...] = ()
    """What had to happen and did not: a failpoint that never fired, nothing suppressed …"""
    violations: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nothing is missing and nothing is violated."""
        return not self.missing and not self.violations


class Report(BaseModel):
    """A whole run of the suite."""

    model_config = ConfigDict(frozen=True)

    seed: int
    began: str
    seconds: float
    outcomes: tuple[Outcome, ...]
    planned: int
    """How many scenarios there were to be run; more than `outcomes` when time ran out."""
    lanes: int = 1
    """How many were played at a time."""

    @property
    def is_good(self) -> bool:
        """Whether all scenarios ran and are good."""
        return len(self.outcomes) == self.planned and all(one.is_good for one in self.outcomes)

    def totals(self) -> dict[str, int]:
        """Sums over all scenarios."""
        return summed(self.outcomes)

    def of_invariants(self) -> dict[int, int]:
        """Violations by invariant."""
        counted: Counter[int] = Counter()
        for one in self.outcomes:
            for violation in one.violations:
                counted[int(violation.split(":", 1)[0])] += 1
        return {number: counted[number] for number in range(1, len(INVARIANTS) + 1)}


def summed(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """The figures of some scenarios together."""
    names = ("fired", "operations", "attempts", "unknown", "effects", "interruptions")
    names += ("resolved", "parked")
    return {
        "scenarios": len(outcomes),
        **{name: sum(getattr(one, name) for one in outcomes) for name in names},
        "missing": sum(len(one.missing) for one in outcomes),
        "violations": sum(len(one.violations) for one in outcomes),
    }


def counted(evidence: Evidence) -> dict[str, int]:
    """The figures of one body of evidence."""
    lost = [a for a in evidence.attempts if a.status is None or a.status >= 500]
    # Looked up, or sent again after it had proved absent.
    doubted = [e for e in evidence.effects if e.sends > 1 or (e.sends and e.reason is not None)]
    return {
        "operations": len(evidence.claims),
        "attempts": len(evidence.attempts),
        "unknown": len(lost),
        "effects": len(evidence.records) + len(evidence.transfers),
        "interruptions": sum(run.interruptions for run in evidence.runs),
        "resolved": sum(e.state in {"confirmed", "rejected", "compensated"} for e in doubted),
        "parked": sum(claim.state == "parked" for claim in evidence.claims),
    }


def lines_of(violations: Iterable[Violation]) -> tuple[str, ...]:
    """Violations as they are stored: `number: about: detail`."""
    return tuple(f"{v.invariant}: {v.about}: {v.detail}" for v in violations)


def print_report(report: Report, console: Console) -> None:
    """For a terminal."""
    table = Table(title=f"faults, seed {report.seed}")
    for name in ("scenario", "fired", "ops", "unknown", "effects", "s", "verdict"):
        table.add_column(name)
    for one in report.outcomes:
        verdict = "good" if one.is_good else "; ".join((*one.missing, *one.violations))
        figures = (one.fired, one.operations, one.unknown, one.effects, round(one.seconds))
        style = "" if one.is_good else "red"
        table.add_row(one.scenario, *(str(n) for n in figures), verdict[:300], style=style)
    console.print(table)
    console.print(
        ", ".join(f"{name}: {n}" for name, n in report.totals().items()),
        f"in {report.seconds / 60:.1f} minutes; replay with SEED={report.seed}",
    )


def write_report(report: Report, directory: Path) -> tuple[Path, Path]:
    """Write `faults.json` and `faults.html`; return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    programs_read, people_read = directory / "faults.json", directory / "faults.html"
    programs_read.write_text(as_json(report))
    people_read.write_text(_page(report))
    return programs_read, people_read


def as_json(report: Report) -> str:
    """The report for programs, a scenario on a line."""
    head = {**report.model_dump(mode="json", exclude={"outcomes"}), "totals": report.totals()}
    members = [f'"{name}": {json.dumps(value)}' for name, value in head.items()]
    scenarios = ",\n  ".join(one.model_dump_json() for one in report.outcomes)
    return "{\n " + ",\n ".join((*members, f'"outcomes": [\n  {scenarios}\n ]')) + "\n}\n"


def _page(report: Report) -> str:
    totals = [(name, str(n)) for name, n in report.totals().items()]
    invariants = [
        (str(number), _sentence(number), str(n)) for number, n in report.of_invariants().items()
    ]
    verdict = "good" if report.is_good else "bad"
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Tallystick: faults injected, effects counted</title><style>{STYLE}</style>
<h1>Faults injected, effects counted</h1>
<p>Began {html.escape(report.began)}, {report.seconds / 60:.1f} minutes, seed {report.seed},
{len(report.outcomes)} of {report.planned} scenarios: <span class="{verdict}">{verdict}</span>.</p>
<h2>Totals</h2>{_table(("figure", "count"), totals)}
<h2>Invariants</h2>{_table(("no.", "what must hold", "violations"), invariants)}
<h2>Scenarios</h2>{_scenarios(report.outcomes)}
</html>"""


def _scenarios(outcomes: Sequence[Outcome]) -> str:
    rows: list[str] = []
    for one in outcomes:
        problems = "".join(f"<li>{html.escape(x)}" for x in (*one.missing, *one.violations))
        verdict = (
            '<span class="good">good</span>'
            if one.is_good
            else f'<details open><summary class="bad">bad</summary><ul>{problems}</ul></details>'
        )
        ended = ", ".join(f"{n} {name}" for name, n in sorted(one.outcomes.items()))
        figures = (one.fired, one.operations, one.attempts, one.unknown, one.effects, one.parked)
        cells = "".join(f'<td class="n">{n}' for n in (*figures, round(one.seconds)))
        rows.append(
            f"<tr><td><code>{html.escape(one.scenario)}</code>{cells}"
            f"<td>{html.escape(ended)}<td>{verdict}"
        )
    head = "<th>scenario<th>fired<th>operations<th>attempts<th>unknown<th>effects<th>parked"
    return f"<table><tr>{head}<th>s<th>how they ended<th>verdict{''.join(rows)}</table>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(name)}" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) for row in rows)
    return f"<table><tr>{top}{body}</table>"


def _sentence(number: int) -> str:
    return (INVARIANTS[number - 1].__doc__ or "").split("\n")[0]
