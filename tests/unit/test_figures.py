"""The figures of a whole run stand on the page between their marks, and nothing else changes."""

from pathlib import Path

import pytest

from support.checker.report import Outcome, Report
from support.faults.figures import PAGE, publish_hunted, publish_report
from support.faults.hunt import Hunted

MUTANTS = "Between.\n<!-- mutants -->\n<!-- /mutants -->\n"
OLD = f"Before.\n<!-- faults -->\nold\n<!-- /faults -->\n{MUTANTS}"


def _outcome(scenario: str, mode: str, **changes: object) -> Outcome:
    fault, _, _ = scenario.partition(":")
    seen = {"scenario": scenario, "fault": fault, "mode": mode, "guarantee": "keyed", "seconds": 2}
    return Outcome.model_validate(seen | {"fired": 1, "operations": 16} | changes)


def _report(*outcomes: Outcome) -> Report:
    return Report(seed=7, began="now", seconds=60, outcomes=outcomes, planned=2, lanes=4)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with both places."""
    page = tmp_path / "proof.md"
    page.write_text(OLD)
    return page


def test_a_run_is_summed_up_by_kinds_of_faults_and_of_providers(page: Path) -> None:
    bad = _outcome("claim.committed:hang", "hang", violations=("2: acme/k: twice",))
    report = _report(_outcome("claim.committed:kill", "kill"), bad)
    publish_report(report, page=page)
    written = page.read_text()
    assert written.startswith("Before.\n<!-- faults -->\nOf now, `make faults SEED=7`, 4 at a time")
    assert written.endswith(MUTANTS)
    assert "**2 of 2 scenarios** in 1.0 minutes; violations: **1**; not seen: **0**." in written
    assert "\n1 failpoints in three modes: 2 of 2 that were armed by themselves fired." in written
    assert "| failpoint, hang | 1 | 16 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 |" in written
    assert "| keyed | 2 | 32 |" in written
    assert "- `claim.committed:hang`: 2: acme/k: twice" in written
    published = Report.model_validate_json((page.parent / "proof/faults.json").read_text())
    assert published == report


def test_what_was_not_noticed_of_a_mutant_is_said(page: Path) -> None:
    caught = Hunted("no-guard", "worker-kill", ("2: acme/k: twice", "7: acme/k: no row"), ())
    missed = Hunted("no-lock", "api-kill", (), ("nothing was fired",))
    publish_hunted([caught, missed], page=page)
    written = page.read_text()
    assert "**1 of 2** were noticed." in written
    assert "| no guard | `worker-kill` | 2, 7 |" in written
    assert "| no lock | `api-kill` | **not noticed** |" in written
    assert "old" in written


def test_a_page_without_its_places_is_left_alone(page: Path) -> None:
    page.write_text("Before.\n")
    with pytest.raises(ValueError, match="no place for faults"):
        publish_report(_report(), page=page)
    assert page.read_text() == "Before.\n"


def test_the_page_of_the_documentation_has_its_places() -> None:
    text = (Path(__file__).parents[2] / PAGE).read_text()
    marks = ("<!-- faults -->", "<!-- /faults -->", "<!-- mutants -->", "<!-- /mutants -->")
    assert [text.count(mark) for mark in marks] == [1, 1, 1, 1]
