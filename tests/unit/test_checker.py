"""The checker finds nothing in clean evidence, and each kind of violation in doctored evidence."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from support.checker.evidence import (
    Attempt,
    Balance,
    ClaimRow,
    Delivery,
    EffectRow,
    Evidence,
    Expected,
    Finding,
    Record,
    Request,
    Run,
    Seed,
    Transfer,
)
from support.checker.invariants import INVARIANTS, check
from support.checker.report import Outcome, Report, counted, lines_of, print_report, write_report

RECEIPT = '{"charge_id":"ch_1"}'


def _attempt(**changes: object) -> Attempt:
    seen = {
        "tenant": "acme",
        "operation": "payments.charge",
        "key": "k1",
        "content": "a",
        "sent_at": 10.0,
        "ended_at": 11.0,
        "status": 201,
        "state": "done",
        "answer": RECEIPT,
    }
    return Attempt.model_validate(seen | changes)


def _claim(number: int, key: str, **changes: object) -> ClaimRow:
    row = {
        "id": number,
        "tenant": "acme",
        "operation": "payments.charge",
        "key": key,
        "workflow_id": f"payments.charge/acme/{key}",
        "state": "done",
        "outcome": "succeeded",
        "receipt_status": 201,
        "receipt_body": RECEIPT,
        "created_at": 10.0,
        "has_business_row": True,
    }
    return ClaimRow.model_validate(row | changes)


def _effect(claim_id: int, key: str, **changes: object) -> EffectRow:
    row = {
        "claim_id": claim_id,
        "step": "charge",
        "purpose": "action",
        "ordinal": 0,
        "provider": "acquirer",
        "guarantee": "queryable",
        "action": "charge",
        "key": key,
        "state": "confirmed",
        "provider_reference": f"ch_{claim_id}",
        "undoes": None,
        "sends": 1,
        "created_at": 10.1,
        "sent_at": 10.1,
        "tombstoned_at": None,
        "amount_minor": 2400,
        "refunded_minor": 0,
    }
    return EffectRow.model_validate(row | changes)


def _expected(claim_id: int, key: str, purpose: str = "action") -> Expected:
    return Expected(
        claim_id=claim_id,
        step="charge",
        purpose=purpose,
        provider="acquirer",
        guarantee="queryable",
        key=key,
        copies_max=1,
        required=True,
    )


def _record(
    identifier: str, reference: str, operation: str = "charge", amount: int = 2400
) -> Record:
    return Record(
        provider="acquirer",
        id=identifier,
        operation=operation,
        reference=reference,
        amount=amount,
        state="succeeded",
        created_at=10.2,
    )


def _request(reference: str, at: float = 10.2, body: str = "b", key: str | None = None) -> Request:
    return Request(provider="acquirer", at=at, reference=reference, header_key=key, body=body)


def _run(key: str, **changes: object) -> Run:
    run = {
        "workflow_id": f"payments.charge/acme/{key}",
        "run_id": key,
        "status": "completed",
        "started_at": 10.0,
        "ended_at": 11.0,
        "interruptions": 0,
    }
    return Run.model_validate(run | changes)


CLEAN = Evidence(
    attempts=(
        _attempt(status=None, state=None, answer=""),
        _attempt(sent_at=12.0, ended_at=13.0, replayed=True),
        _attempt(content="b", status=409, sent_at=14.0, ended_at=15.0, answer="{}"),
    ),
    claims=(
        _claim(1, "k1"),
        _claim(2, "k2", outcome="compensated", receipt_status=424, has_business_row=False),
        _claim(3, "k3", operation="accounts.transfer"),
    ),
    effects=(
        _effect(1, "e1"),
        _effect(2, "e2", state="compensated", tombstoned_at=12.0),
        _effect(2, "u2", purpose="undo", undoes="ch_2", action="refund"),
    ),
    expected=(_expected(1, "e1"), _expected(2, "e2"), _expected(2, "u2", "undo")),
    records=(_record("ch_1", "e1"), _record("ch_2", "e2"), _record("re_1", "u2", "refund")),
    requests=(_request("e1"), _request("e2"), _request("u2", at=13.0)),
    runs=(_run("k1"), _run("k2")),
    transfers=(Transfer(claim_id=3, entries=(-100, 100), currency="EUR"),),
    balances=(Balance(tenant="acme", account="cash", balance_minor=-100, entries_minor=-100),),
    deliveries=(
        Delivery(entity="ch_1", order=("a", "b", "a"), final_state="paid", effects=1),
        Delivery(entity="ch_1", order=("b", "a", "b"), final_state="paid", effects=1),
    ),
    reconciled=True,
    seeds=(Seed(provider="acquirer", kind="duplicate", subject="ch_9"),),
    findings=(Finding(provider="acquirer", kind="duplicate", subject="ch_9"),),
)

Doctor = Callable[[Evidence], Evidence]

DOCTORED: tuple[tuple[int, str, Doctor], ...] = (
    (
        1,
        "a claim that never ends",
        lambda e: e.but(claims=(_claim(1, "k1", state="accepted"), *e.claims[1:])),
    ),
    (1, "a lost claim", lambda e: e.but(attempts=(_attempt(key="k9"),))),
    (
        1,
        "a receipt without its business row",
        lambda e: e.but(claims=(_claim(1, "k1", has_business_row=False), *e.claims[1:])),
    ),
    (2, "a second charge", lambda e: e.but(records=(*e.records, _record("ch_9", "e1")))),
    (2, "success without an effect", lambda e: e.but(records=e.records[1:])),
    (2, "an effect of nobody", lambda e: e.but(records=(*e.records, _record("ch_9", "e9")))),
    (
        2,
        "a run after a completed one",
        lambda e: e.but(runs=(*e.runs, _run("k1", run_id="again", started_at=20.0))),
    ),
    (3, "an undo that did not happen", lambda e: e.but(records=e.records[:2])),
    (4, "another answer", lambda e: e.but(attempts=(*e.attempts, _attempt(answer="{}")))),
    (
        4,
        "other content accepted",
        lambda e: e.but(attempts=(*e.attempts, _attempt(content="c", status=202, state="x"))),
    ),
    (
        5,
        "one effect of two tenants",
        lambda e: e.but(
            claims=(*e.claims, _claim(4, "k1", tenant="globex")),
            effects=(*e.effects, _effect(4, "e4", provider_reference="ch_1")),
        ),
    ),
    (
        6,
        "too much refunded",
        lambda e: e.but(records=(*e.records[:2], _record("re_1", "u2", "refund", 9900))),
    ),
    (6, "too much in our books", lambda e: e.but(effects=(_effect(1, "e1", refunded_minor=9900),))),
    (7, "sent without a claim", lambda e: e.but(requests=(_request("nobody"),))),
    (7, "sent before its claim", lambda e: e.but(requests=(_request("e1", at=9.0),))),
    (7, "sent without its row", lambda e: e.but(effects=e.effects[1:])),
    (8, "other bytes", lambda e: e.but(requests=(*e.requests, _request("e1", body="c")))),
    (8, "another key", lambda e: e.but(requests=(*e.requests, _request("e1", key="x")))),
    (9, "sent after its tombstone", lambda e: e.but(requests=(_request("e2", at=20.0),))),
    (
        10,
        "entries that do not sum to zero",
        lambda e: e.but(transfers=(Transfer(claim_id=3, entries=(-100, 99), currency="EUR"),)),
    ),
    (10, "a transfer without entries", lambda e: e.but(transfers=())),
    (
        10,
        "a wrong balance",
        lambda e: e.but(
            balances=(Balance(tenant="acme", account="a", balance_minor=1, entries_minor=0),)
        ),
    ),
    (11, "a seeded duplicate that was missed", lambda e: e.but(findings=())),
    (11, "a finding on clean books", lambda e: e.but(seeds=())),
    (12, "not settled", lambda e: e.but(settled_within_bound=False)),
    (
        12,
        "parked where records can be read",
        lambda e: e.but(
            claims=(
                _claim(1, "k1", state="parked", outcome=None, has_business_row=False),
                *e.claims[1:],
            ),
            effects=(_effect(1, "e1", state="parked"), *e.effects[1:]),
        ),
    ),
    (
        13,
        "an order that matters",
        lambda e: e.but(
            deliveries=(
                *e.deliveries,
                Delivery(entity="ch_1", order=("b",), final_state="expired", effects=1),
            )
        ),
    ),
    (
        13,
        "applied twice",
        lambda e: e.but(
            deliveries=(Delivery(entity="x", order=("a", "a"), final_state="paid", effects=2),)
        ),
    ),
    (14, "a history that does not replay", lambda e: e.but(runs=(_run("k1", replay_failure="x"),))),
)


def test_clean_evidence_has_no_violation() -> None:
    assert check(CLEAN) == ()


@pytest.mark.parametrize(
    ("invariant", "doctor"),
    [pytest.param(number, doctor, id=f"{number}-{what}") for number, what, doctor in DOCTORED],
)
def test_each_violation_is_found(invariant: int, doctor: Doctor) -> None:
    assert invariant in {violation.invariant for violation in check(doctor(CLEAN))}


def test_every_invariant_is_doctored() -> None:
    assert {number for number, _, _ in DOCTORED} == set(range(1, len(INVARIANTS) + 1))


def test_evidence_can_be_written_and_read_back() -> None:
    assert Evidence.model_validate_json(CLEAN.model_dump_json()) == CLEAN


def test_the_report_shows_what_was_violated_to_people_and_to_programs(tmp_path: Path) -> None:
    bad = CLEAN.but(records=(*CLEAN.records, _record("<b>", "e1")))
    outcome = Outcome.model_validate(
        {
            "scenario": "send.replied:kill",
            "fault": "send.replied",
            "mode": "kill",
            "guarantee": "queryable",
            "seconds": 1.0,
            "fired": 1,
            "violations": lines_of(check(bad)),
            **counted(bad),
        }
    )
    report = Report(seed=7, began="now", seconds=1.0, outcomes=(outcome,), planned=1)

    as_json, as_html = write_report(report, tmp_path)
    console = Console(record=True, width=200)
    print_report(report, console)

    assert not report.is_good
    assert report.of_invariants()[2] == 1
    assert Report.model_validate_json(as_json.read_text()).outcomes == (outcome,)
    assert "charge happened 2 times" in as_html.read_text()
    assert "charge happened 2 times" in console.export_text()
