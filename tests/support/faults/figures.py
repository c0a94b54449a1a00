"""Writes the figures of a whole run into `docs/proof.md`, between their marks, and beside it."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from support.checker.report import Outcome, Report, as_json, summed
from support.faults.hunt import Hunted

PAGE = Path("docs/proof.md")

_MODES: dict[str, frozenset[str]] = {
    "parts, providers, operators": frozenset({"infrastructure", "provider", "operator"}),
    "failpoint, kill": frozenset({"kill"}),
    "failpoint, hang": frozenset({"hang"}),
    "failpoint, raise": frozenset({"raise"}),
    "two at once": frozenset({"pair"}),
}
_GUARANTEES = {
    "keyed": "keyed",
    "queryable": "queryable",
    "blind": "blind",
    "mixed": "all of them, side by side",
}
_COLUMNS = {
    "scenarios": "scenarios",
    "operations": "operations",
    "attempts": "attempts",
    "lost answers": "unknown",
    "effects": "effects",
    "interruptions": "interruptions",
    "found out": "resolved",
    "parked": "parked",
    "not seen": "missing",
    "violations": "violations",
}


def publish_report(report: Report, *, page: Path = PAGE) -> None:
    """Write a run's figures, scenario by scenario as JSON and summed up on the page."""
    beside = page.with_suffix("")
    beside.mkdir(exist_ok=True)
    (beside / "faults.json").write_text(as_json(report))
    by_fault = {
        title: [one for one in report.outcomes if one.mode in modes]
        for title, modes in _MODES.items()
    } | {"**all**": list(report.outcomes)}
    by_guarantee = {
        title: [one for one in report.outcomes if one.guarantee == name]
        for name, title in _GUARANTEES.items()
    }
    tables = (_summed("faults", by_fault), _summed("providers", by_guarantee))
    _replace(page, "faults", "\n\n".join((_summary(report), *tables, *_bad(report))))


def publish_hunted(hunted: Sequence[Hunted], *, page: Path = PAGE) -> None:
    """Write which mutants were noticed, and by what."""
    rows = [
        (
            one.mutant.replace("-", " "),
            f"`{one.scenario}`",
            ", ".join(str(number) for number in one.invariants) or "**not noticed**",
        )
        for one in hunted
    ]
    caught = sum(one.is_caught for one in hunted)
    table = _table(("guard taken out", "scenario", "noticed by invariant"), rows)
    _replace(page, "mutants", f"**{caught} of {len(hunted)}** were noticed.\n\n{table}")


def _summary(report: Report) -> str:
    armed = [one for one in report.outcomes if one.fault and one.mode in {"kill", "hang", "raise"}]
    points = len({one.fault for one in armed})
    fired = sum(one.fired > 0 for one in armed)
    totals = report.totals()
    return (
        f"Of {report.began}, `make faults SEED={report.seed}`, {report.lanes} at a time on"
        f" {os.cpu_count()} cores: **{len(report.outcomes)} of {report.planned} scenarios** in"
        f" {report.seconds / 60:.1f} minutes; violations: **{totals['violations']}**;"
        f" not seen: **{totals['missing']}**.\n"
        f"{points} failpoints in three modes: {fired} of {len(armed)} that were armed by themselves"
        " fired. Scenario by scenario: [faults.json](proof/faults.json)."
    )


def _bad(report: Report) -> Iterable[str]:
    lines = [
        f"- `{one.scenario}`: {line}"
        for one in report.outcomes
        for line in (*one.missing, *one.violations)
    ]
    return ("\n".join(lines),) if lines else ()


def _summed(title: str, groups: dict[str, list[Outcome]]) -> str:
    rows: list[tuple[str, ...]] = []
    for name, outcomes in groups.items():
        totals = summed(outcomes)
        rows.append((name, *(str(totals[key]) for key in _COLUMNS.values())))
    return _table((title, *_COLUMNS), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines).replace("| --- ", "|---")


def _replace(page: Path, mark: str, text: str) -> None:
    """Put `text` between `<!-- mark -->` and `<!-- /mark -->`. Raises ValueError without them."""
    between = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    written, count = between.subn(lambda found: f"{found[1]}{text}\n{found[2]}", page.read_text())
    if count != 1:
        raise ValueError(f"{page} has no place for {mark}")
    page.write_text(written)
