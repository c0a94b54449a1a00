"""`tallystick probe` passes a right service, and names the one defect of a wrong one."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import typer
import uvicorn
from typer.testing import CliRunner

from runtime.probe import rules
from runtime.probe.bodies import Bodies
from runtime.probe.command import BROKEN, CANNOT_RUN, probe
from runtime.probe.configuration import (
    Configuration,
    ConfigurationInvalidError,
    example,
    load,
    parse,
)
from runtime.probe.run import probe_service
from runtime.probe.verdicts import Findings, Outcome, Severity
from support.probe_target import Defect, ProbeTargets

FILE = """
[target]
path = "/charges"
operation_seconds = 1.0
settle_seconds = 0.0
headers = { Authorization = "Bearer ${ACME}", Content-Type = "application/json" }
[body]
template = '{"amount": 2400, "currency": "EUR", "description": "{{nonce}}", "card": "visa"}'
failing = '{"amount": 2400, "currency": "EUR", "description": "{{nonce}}", "card": "declined"}'
changed = "/currency"
changed_to = "USD"
number = "/amount"
meaningful_query = "dry_run=true"
[other_tenant]
headers = { Authorization = "Bearer globex-key" }
[status]
path = "/charges/{{key}}"
[effects]
url = "/charges"
field = "description"
[limits]
race_requests = 4
race_rounds = 1
disconnects = 3
rules_at_once = 16
"""
ENVIRONMENT = {"ACME": "acme-key"}

CAUGHT_BY: dict[Defect, set[str]] = {
    Defect.THIRD_SIMULTANEOUS_REQUEST_RUNS: {"race"},
    Defect.LATE_DUPLICATE_GETS_ITS_OWN_ANSWER: {"in-progress"},
    Defect.NO_RETRY_AFTER: {"in-progress-retry-after"},
    Defect.DISCONNECT_DROPS_THE_RECORD: {"disconnect"},
    Defect.FORGETS_AFTER_TWO_REPLAYS: {"replay"},
    Defect.REPLAYED_STATUS_IS_200: {"replay"},
    Defect.REPLAYED_BYTES_ARE_ENCODED_ANEW: {"replay"},
    Defect.REPLAY_LOSES_LOCATION: {"replay"},
    Defect.REPLAY_IS_NOT_MARKED: {"replay-marked"},
    Defect.TENANTS_SHARE_KEYS: {"tenant-isolation"},
    Defect.REPLAYS_WITHOUT_CREDENTIALS: {"replay-authorised"},
    Defect.STATUS_IS_NOT_FOUND: {"status-readable"},
    Defect.STATUS_IS_FOR_EVERYBODY: {"status-isolation"},
    Defect.CURRENCY_IS_NOT_COMPARED: {"changed-body"},
    Defect.OTHER_CURRENCY_RUNS: {"changed-body"},
    Defect.REFUSAL_REPLACES_THE_RECORD: {"original-after-refusal"},
    Defect.ERRORS_MATCH_ANY_CONTENT: {"changed-body-after-error"},
    Defect.VALIDATION_ERRORS_ARE_STORED: {"retry-after-validation-error"},
    Defect.MEMBER_ORDER_MATTERS: {"member-order"},
    Defect.WHITE_SPACE_MATTERS: {"white-space"},
    Defect.NUMBER_FORM_RUNS_AGAIN: {"number-forms"},
    Defect.NUMBERS_ARE_FLOATS: {"large-numbers"},
    Defect.DUPLICATE_MEMBERS_ARE_ACCEPTED: {"duplicate-members"},
    Defect.QUERY_IS_IGNORED: {"query-string"},
    Defect.KEY_IS_OPTIONAL: {"missing-key"},
    Defect.MISSING_KEY_IS_422: {"missing-key"},
    Defect.EMPTY_KEY_IS_A_KEY: {"empty-key"},
    Defect.QUOTES_BELONG_TO_THE_KEY: {"key-quoting"},
    Defect.PARAMETERS_BELONG_TO_THE_KEY: {"key-parameters"},
    Defect.CASE_IS_FOLDED: {"key-case"},
    Defect.KEYS_ARE_SHORT: {"key-length-255"},
    Defect.KEYS_ARE_TRUNCATED: {"key-length-256", "key-length-10000"},
    Defect.ODD_BYTES_ARE_REPLACED: {"key-bytes"},
    Defect.LINES_ARE_JOINED: {"key-repeated"},
    Defect.ERRORS_ARE_PLAIN_JSON: {"problem-documents"},
}
# These show only when requests overlap as intended, so nothing else may run beside them.
TIMED = {
    Defect.THIRD_SIMULTANEOUS_REQUEST_RUNS,
    Defect.LATE_DUPLICATE_GETS_ITS_OWN_ANSWER,
    Defect.NO_RETRY_AFTER,
    Defect.DISCONNECT_DROPS_THE_RECORD,
}
ONLY_A_WARNING = {
    Defect.MEMBER_ORDER_MATTERS,
    Defect.WHITE_SPACE_MATTERS,
    Defect.DUPLICATE_MEMBERS_ARE_ACCEPTED,
    Defect.MISSING_KEY_IS_422,
    Defect.KEYS_ARE_SHORT,
}


def configuration(**limits: int) -> Configuration:
    """The configuration of the probe target, with some limits changed."""
    loaded = parse(FILE, environment=ENVIRONMENT, name="test")
    return loaded.model_copy(update={"limits": loaded.limits.model_copy(update=limits)})


@pytest.fixture(name="targets", scope="module")
async def serve_targets() -> AsyncGenerator[str]:
    """Where all targets are served, by uvicorn in this loop: …/right, …/<defect>."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    server = uvicorn.Server(uvicorn.Config(ProbeTargets(), lifespan="off", log_level="critical"))
    task = asyncio.create_task(server._serve([listener]))
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    await task


async def found(url: str, settings: Configuration | None = None) -> Findings:
    """What the probe finds at `url`."""
    chosen = settings or configuration()
    return await probe_service(url, chosen, rules=rules.ALL, progress=lambda _: None)


@pytest.fixture(name="untimed", scope="module")
async def find_untimed_defects(targets: str) -> dict[Defect, Findings]:
    """What is found in the targets whose defect shows at any speed: several at once."""
    gate = asyncio.Semaphore(4)

    async def probed(defect: Defect) -> Findings:
        async with gate:
            return await found(f"{targets}/{defect}")

    defects = [defect for defect in Defect if defect not in TIMED]
    return dict(zip(defects, await asyncio.gather(*map(probed, defects)), strict=True))


async def test_right_service_passes_every_rule(targets: str) -> None:
    findings = await found(f"{targets}/right")
    outcomes = {verdict.rule.id: verdict.outcome for verdict in findings.verdicts}
    reasons = [verdict.reason for verdict in findings.verdicts]
    assert set(outcomes.values()) == {Outcome.PASSED}, (outcomes, reasons)
    assert list(outcomes) == [rule.id for rule in rules.ALL]
    assert findings.holds


@pytest.mark.parametrize("defect", Defect)
async def test_defect_is_caught_by_the_rule_that_names_it(
    targets: str, untimed: dict[Defect, Findings], defect: Defect
) -> None:
    findings = untimed.get(defect) or await found(f"{targets}/{defect}")
    bad = {
        verdict.rule.id: verdict
        for verdict in findings.verdicts
        if verdict.outcome in (Outcome.FAILED, Outcome.WARNED)
    }
    assert set(bad) == CAUGHT_BY[defect], {name: verdict.reason for name, verdict in bad.items()}
    for verdict in bad.values():
        is_warning = defect in ONLY_A_WARNING or verdict.rule.severity is Severity.SHOULD
        assert verdict.outcome is (Outcome.WARNED if is_warning else Outcome.FAILED)
        assert verdict.reason


def test_every_rule_has_a_defect_that_breaks_it() -> None:
    assert {name for names in CAUGHT_BY.values() for name in names} == {
        rule.id for rule in rules.ALL
    }
    assert set(CAUGHT_BY) == set(Defect)


async def test_traffic_never_exceeds_its_bound(targets: str) -> None:
    findings = await found(f"{targets}/right", configuration(requests=50))
    assert findings.requests <= 50
    assert findings.count(Outcome.SKIPPED) > 0


async def test_rate_limit_is_not_taken_for_a_refused_key(targets: str) -> None:
    findings = await found(f"{targets}/limited")
    limited = [v.outcome for v in findings.verdicts if "429" in v.reason]
    assert set(limited) == {Outcome.SKIPPED}
    assert {v.outcome for v in findings.verdicts} == {Outcome.PASSED, Outcome.SKIPPED}


async def test_command_reports_in_all_forms_and_by_exit_status(
    targets: str, tmp_path: Path
) -> None:
    file, junit = tmp_path / "probe.toml", tmp_path / "probe.xml"
    file.write_text(FILE)
    command = [f"{targets}/{Defect.KEY_IS_OPTIONAL}", "--config", str(file), "--rule", "replay"]
    holding = await asyncio.to_thread(Ended, *command)
    command += ["--rule", "missing-key", "--junit", str(junit)]
    table = await asyncio.to_thread(Ended, *command)
    document = await asyncio.to_thread(Ended, *command, "--output", "json")
    assert (holding.status, table.status, document.status) == (0, BROKEN, BROKEN)
    assert "served without a key" in table.output
    verdicts = json.loads(document.output)["verdicts"]
    assert {v["id"]: v["outcome"] for v in verdicts} == {"replay": "pass", "missing-key": "fail"}
    suite = ET.fromstring(junit.read_bytes())
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert suite.find("testcase[@name='missing-key']/failure") is not None


@pytest.mark.parametrize(
    ("place", "replaced", "why"),
    [
        ("right", ("acme-key", "nobody"), "answered 401"),
        ("right", ('"description"\n', '"id"\n'), "2 ordinary requests were counted as 0"),
        ("right", ('"/charges"\nfield', '"/charges/none"\nfield'), "effects cannot be counted"),
        ("right", ("[target]", "[goal]"), "target: Field required"),
        ("closed", ("", ""), "cannot connect"),
    ],
)
async def test_what_cannot_be_tried_exits_with_2_and_says_why(
    targets: str, tmp_path: Path, place: str, replaced: tuple[str, str], why: str
) -> None:
    file = tmp_path / "probe.toml"
    file.write_text(FILE.replace("${ACME}", "acme-key").replace(*replaced))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"http://127.0.0.1:{listener.getsockname()[1]}"
    url = closed if place == "closed" else f"{targets}/{place}"
    ended = await asyncio.to_thread(Ended, url, "--config", str(file))
    assert ended.status == CANNOT_RUN
    assert why in ended.errors


def test_example_is_a_configuration(tmp_path: Path) -> None:
    printed = Ended("--example")
    assert printed.status == 0
    (tmp_path / "example.toml").write_text(printed.output)
    loaded = load(tmp_path / "example.toml", environment={"API_KEY": "secret"})
    assert loaded.target.headers["Authorization"] == "Bearer secret"
    with pytest.raises(ConfigurationInvalidError, match="API_KEY is not set"):
        parse(example(), environment={}, name="example")


def test_documents_name_every_rule_and_configure_our_own_api() -> None:
    root = Path(__file__).parents[2]
    text = (root / "docs/probe.md").read_text(encoding="utf-8")
    assert [rule.id for rule in rules.ALL if f"| `{rule.id}` | {rule.severity} |" not in text] == []
    variables = {"KEY": "one", "OTHER_KEY": "two", "PROVIDERS": "http://127.0.0.1:9"}
    environment = {f"TALLYSTICK_PROBE_{name}": value for name, value in variables.items()}
    ours = load(root / "docs/probe/tallystick.toml", environment=environment)
    assert ours.effects is not None
    assert ours.effects.url == "http://127.0.0.1:9/admin/ledger?provider=payments"


def test_spellings_of_one_body_differ_in_bytes_and_not_in_content() -> None:
    bodies = Bodies(configuration().body, nonce="n")
    spellings = {bodies.plain, bodies.reordered, bodies.spaced, bodies.respelled or b""}
    assert len(spellings) == 4
    assert all(json.loads(text) == json.loads(bodies.plain) for text in spellings)
    assert json.loads(bodies.changed) != json.loads(bodies.plain)
    assert bodies.duplicated.count(b'"currency"') == 2
    assert (bodies.large(0) or b"").replace(b"0992", b"0993") == bodies.large(1)


class Ended:
    """One command that has ended: its status and both of its outputs."""

    def __init__(self, *arguments: str) -> None:
        app = typer.Typer()
        app.command()(probe)
        result = CliRunner().invoke(app, list(arguments), env=ENVIRONMENT)
        self.status, self.output, self.errors = result.exit_code, result.stdout, result.stderr
