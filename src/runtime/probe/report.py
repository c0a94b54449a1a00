"""Verdicts for people (a table), for programs (JSON) and for continuous integration (JUnit XML)."""

import json
from xml.etree import ElementTree as ET

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from runtime.probe.verdicts import Findings, Outcome, Verdict

_COLOURS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.WARNED: "yellow",
    Outcome.SKIPPED: "dim",
}


def print_table(findings: Findings, *, console: Console) -> None:
    """One row per rule, then a summary."""
    table = Table(title=f"Idempotency of {findings.url}", title_justify="left")
    table.add_column("rule", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what was seen", overflow="fold", ratio=1)
    for verdict in findings.verdicts:
        colour = _COLOURS[verdict.outcome]
        row = (verdict.rule.id, verdict.rule.severity.value)
        outcome = Text(verdict.outcome.value, style=colour)
        table.add_row(*row, outcome, Text(verdict.reason))
    console.print(Group(table, *_broken(findings), Text(_summary(findings))))


def as_json(findings: Findings) -> str:
    """All of it: `{"url", "holds", "requests", "seconds", "counts", "verdicts": [...]}`."""
    document = {
        "url": findings.url,
        "holds": findings.holds,
        "requests": findings.requests,
        "seconds": round(findings.seconds, 3),
        "counts": {outcome.value: findings.count(outcome) for outcome in Outcome},
        "verdicts": [
            {
                "id": verdict.rule.id,
                "title": verdict.rule.title,
                "source": verdict.rule.source,
                "severity": verdict.rule.severity.value,
                "outcome": verdict.outcome.value,
                "reason": verdict.reason,
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in findings.verdicts
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_junit(findings: Findings) -> bytes:
    """One test case per rule. Warnings pass and are told on the case's standard output."""
    suite = ET.Element(
        "testsuite",
        name="tallystick probe",
        tests=str(len(findings.verdicts)),
        failures=str(findings.count(Outcome.FAILED)),
        errors="0",
        skipped=str(findings.count(Outcome.SKIPPED)),
        time=f"{findings.seconds:.3f}",
    )
    for verdict in findings.verdicts:
        case = ET.SubElement(
            suite,
            "testcase",
            classname="tallystick.probe",
            name=verdict.rule.id,
            time=f"{verdict.seconds:.3f}",
        )
        match verdict.outcome:
            case Outcome.FAILED:
                failure = ET.SubElement(case, "failure", message=verdict.reason)
                failure.text = f"{verdict.rule.title} ({verdict.rule.source})"
            case Outcome.SKIPPED:
                ET.SubElement(case, "skipped", message=verdict.reason)
            case Outcome.PASSED | Outcome.WARNED:
                output = ET.SubElement(case, "system-out")
                output.text = f"{verdict.outcome.value}: {verdict.reason}"
    return ET.tostring(suite, encoding="utf-8", xml_declaration=True)


def _broken(findings: Findings) -> list[Text]:
    broken = [v for v in findings.verdicts if v.outcome is Outcome.FAILED]
    return [Text(_explained(verdict), style="red") for verdict in broken]


def _explained(verdict: Verdict) -> str:
    return f"broken: {verdict.rule.title} ({verdict.rule.source})"


def _summary(findings: Findings) -> str:
    counts = ", ".join(f"{findings.count(outcome)} {outcome.value}" for outcome in Outcome)
    return f"{counts}; {findings.requests} requests in {findings.seconds:.1f} s"
