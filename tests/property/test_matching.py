"""What must hold of matching, for every pair of books."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from operations.halves import Capture, OurEffect, TheirRecord, View
from operations.keys import Purpose
from operations.matching import match, propose, unclaimed
from operations.reconciliation import FindingKind, Remedy
from operations.states import ClaimState, EffectState, Outcome

T0 = datetime(2026, 1, 1, tzinfo=UTC)
UNDOABLE = frozenset({"charge"})
seconds = st.integers(0, 3600).map(lambda s: T0 + timedelta(seconds=s))
amounts = st.integers(1, 3).map(lambda n: n * 100)


def effect(key: str, **changes: object) -> OurEffect:
    """A confirmed charge of a done operation, under `key`."""
    known = OurEffect(
        claim_id=1,
        tenant="acme",
        operation="payments.charge",
        operation_key=key,
        claim_state=ClaimState.DONE,
        outcome=Outcome.SUCCEEDED,
        step="charge",
        purpose=Purpose.ACTION,
        ordinal=0,
        key=key,
        action="charge",
        state=EffectState.CONFIRMED,
        amount_minor=100,
        currency="EUR",
        provider_reference=f"ch_{key}",
        undoes=None,
        tombstone=False,
        at=T0,
    )
    return replace(known, **changes)  # pyright: ignore[reportArgumentType]


def record(identifier: str, reference: str | None, **changes: object) -> TheirRecord:
    """A charge in the provider's books."""
    known = TheirRecord(
        id=identifier,
        action="charge",
        reference=reference,
        amount_minor=100,
        currency="EUR",
        target=None,
        state="succeeded",
        created_at=T0,
    )
    return replace(known, **changes)  # pyright: ignore[reportArgumentType]


@st.composite
def books(draw: st.DrawFn) -> View:
    """Any books: records with our references, foreign ones and none, and effects in any state."""
    keys = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=6))
    effects = tuple(
        effect(
            key,
            state=draw(st.sampled_from(EffectState)),
            claim_state=draw(st.sampled_from([ClaimState.DONE, ClaimState.PARKED])),
            outcome=draw(st.sampled_from(Outcome)),
            amount_minor=draw(amounts),
            provider_reference=draw(st.sampled_from([None, f"r{keys.index(key)}"])),
            at=draw(seconds),
        )
        for key in keys
    )
    records = tuple(
        record(
            f"r{number}",
            draw(st.sampled_from([*"abcdefxyz", None])),
            amount_minor=draw(amounts),
            state=draw(st.sampled_from(["succeeded", "refunded"])),
            created_at=draw(seconds),
            judged=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 8)))
    )
    undos = tuple(
        record(
            f"u{number}",
            None,
            action="refund",
            target=f"r{draw(st.integers(0, 8))}",
            amount_minor=draw(amounts),
            created_at=draw(seconds),
        )
        for number in range(draw(st.integers(0, 4)))
    )
    return View(records=records, effects=effects, undos=undos, undoable=UNDOABLE)


@given(books(), st.randoms(use_true_random=False))
def test_the_order_of_the_books_changes_nothing(view: View, random: object) -> None:
    records, effects, undos = list(view.records), list(view.effects), list(view.undos)
    for part in (records, effects, undos):
        random.shuffle(part)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    shuffled = replace(view, records=tuple(records), effects=tuple(effects), undos=tuple(undos))
    assert match(shuffled) == match(view)


@given(books())
def test_every_judged_record_gets_exactly_one_finding_and_no_other_gets_any(view: View) -> None:
    judged = sorted(record.id for record in view.records if record.judged)
    assert sorted(finding.subject for finding in match(view)) == judged


@given(books())
def test_nothing_is_done_without_our_own_reference_on_the_record(view: View) -> None:
    references = {record.id: record.reference for record in view.records}
    for finding in match(view):
        if finding.remedy is not Remedy.NONE:
            assert finding.kind in {FindingKind.LATE, FindingKind.DUPLICATE}
            assert references[finding.subject] == finding.effect_key


@given(books())
def test_what_an_open_operation_did_is_never_taken_back(view: View) -> None:
    open_keys = {effect.key for effect in view.effects if not effect.is_over}
    for finding in match(view):
        assert not (finding.remedy is Remedy.UNDO and finding.effect_key in open_keys)


@given(st.lists(st.tuples(amounts, seconds), max_size=20))
def test_a_clean_world_has_nothing_but_matches(charges: list[tuple[int, datetime]]) -> None:
    effects = tuple(
        effect(f"k{n}", amount_minor=amount, at=at) for n, (amount, at) in enumerate(charges)
    )
    records = tuple(
        record(f"ch_k{n}", f"k{n}", amount_minor=amount, created_at=at)
        for n, (amount, at) in enumerate(charges)
    )
    found = match(View(records=records, effects=effects, undoable=UNDOABLE))
    assert len(found) == len(charges)
    assert {finding.kind for finding in found} <= {FindingKind.MATCHED}


@given(amounts, seconds)
def test_two_real_payments_that_look_alike_are_never_merged(amount: int, at: datetime) -> None:
    ours = effect("a", amount_minor=amount, at=at)
    same = {"amount_minor": amount, "created_at": at}
    view = View(
        records=(record("ch_a", "a", **same), record("ch_b", None, **same)),
        effects=(ours,),
        undoable=UNDOABLE,
    )
    found = {finding.subject: finding for finding in match(view)}
    assert found["ch_a"].kind is FindingKind.MATCHED
    assert found["ch_b"].kind is FindingKind.PROVIDER_ONLY
    assert found["ch_b"].remedy is Remedy.NONE


def test_amount_and_time_only_propose() -> None:
    unknown = effect("a", state=EffectState.UNKNOWN, provider_reference=None)
    (leftover,) = match(View(records=(record("ch_x", None),), undoable=UNDOABLE))
    proposed = propose(leftover, [unknown, effect("b"), replace(unknown, amount_minor=200)])
    assert [p["reference"] for p in proposed.evidence["proposals"]] == ["a"]
    assert (proposed.kind, proposed.remedy) == (FindingKind.PROVIDER_ONLY, Remedy.NONE)
    far = replace(unknown, at=T0 + timedelta(hours=2))
    assert propose(leftover, [far]) == leftover


def test_a_proven_duplicate_is_undone_and_an_undone_one_is_no_finding() -> None:
    view = View(
        records=(record("ch_a", "a"), record("ch_2", "a")),
        effects=(effect("a"),),
        undoable=UNDOABLE,
    )
    found = {finding.subject: finding for finding in match(view)}
    assert (found["ch_2"].kind, found["ch_2"].remedy) == (FindingKind.DUPLICATE, Remedy.UNDO)
    undo = record("re_1", None, action="refund", target="ch_2")
    again = match(replace(view, undos=(undo,)))
    assert {finding.kind for finding in again} == {FindingKind.MATCHED}


def test_refunds_are_counted_from_the_oldest_on() -> None:
    refunds = tuple(
        record(
            f"re_{n}",
            None,
            action="refund",
            target="ch_a",
            amount_minor=60,
            created_at=T0 + timedelta(seconds=n),
        )
        for n in range(3)
    )
    view = View(records=refunds, undos=refunds, captures={"ch_a": Capture(100, 0)})
    excess = [f.subject for f in match(view) if f.kind is FindingKind.REFUND_EXCESS]
    assert excess == ["re_1", "re_2"]


def test_only_what_we_hold_for_done_is_missing() -> None:
    states = {state: effect(state.value, state=state) for state in EffectState}
    missing = {finding.effect_key for finding in unclaimed(states.values())}
    assert missing == {"confirmed", "compensated"}
    assert unclaimed([effect("x", state=EffectState.COMPENSATED, provider_reference=None)]) == ()
