"""Comparing a provider's records with our effects. Pure, and the same in whatever order they come.

A record belongs to an effect by our reference first, by the provider's identifier second. Amount
and time never join anything: they only propose, in the evidence of what is left over. Merging two
real payments because they look alike would hide one of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from operations.halves import Capture, Finding, OurEffect, TheirRecord, View
from operations.reconciliation import FindingKind, Remedy
from operations.states import EffectState, Outcome

PROPOSALS_MAX = 5
"""More candidates than this help nobody to decide."""

PROPOSAL_WITHIN = timedelta(hours=1)
"""Further apart than this, an equal amount is a coincidence."""

UNDONE_STATES = frozenset({"refunded", "released", "cancelled", "canceled", "reversed", "voided"})
"""How providers call a record that has been taken back in full."""

_UNDECIDED = frozenset({EffectState.SENT, EffectState.UNKNOWN, EffectState.PARKED})
_UNDONE_OUTCOMES = frozenset({Outcome.DECLINED, Outcome.COMPENSATED, Outcome.CANCELLED})


def match(view: View) -> tuple[Finding, ...]:
    """One finding for each judged record, `matched` included, and one more for each refund of ours
    that gives back too much. In the order of (subject, kind)."""
    joined, leftover = _join(view)
    excess = _refund_excess(view)
    told = {finding.subject for finding in excess}
    found = [_provider_only(record) for record in leftover if record.id not in told]
    for effect, records in joined:
        found += _compare(effect, records, view)
    found += excess
    judged = {record.id for record in view.records if record.judged}
    return tuple(
        sorted((f for f in found if f.record_id in judged), key=lambda f: (f.subject, f.kind))
    )


def unclaimed(effects: Iterable[OurEffect]) -> tuple[Finding, ...]:
    """Findings for effects of the window that no record of the provider belongs to.

    Only what we hold for done is missing. What is unknown, refused, absent or planned may rightly
    not be there, and so may what was undone without ever having been seen.
    """
    return tuple(
        Finding(
            kind=FindingKind.LOCAL_ONLY,
            subject=effect.key,
            occurred_at=effect.at,
            effect_key=effect.key,
            claim_id=effect.claim_id,
            amount_minor=effect.amount_minor,
            currency=effect.currency,
            evidence={
                "why": "We hold it for confirmed, and the provider's books do not show it.",
                "ours": effect.as_evidence(),
            },
        )
        for effect in sorted(effects, key=lambda effect: effect.key)
        if expects_record(effect)
    )


def expects_record(effect: OurEffect) -> bool:
    """Whether the provider must have a record of `effect`."""
    undone_unseen = effect.state is EffectState.COMPENSATED and effect.provider_reference is None
    standing = effect.state in {EffectState.CONFIRMED, EffectState.COMPENSATED}
    return standing and not undone_unseen


def propose(finding: Finding, candidates: Iterable[OurEffect]) -> Finding:
    """Add undecided effects that look like a leftover record to its evidence: for a person."""
    if finding.kind is not FindingKind.PROVIDER_ONLY or finding.amount_minor is None:
        return finding
    money = (finding.amount_minor, finding.currency)
    alike = [
        (abs(effect.at - finding.occurred_at), effect.key, effect)
        for effect in candidates
        if effect.state in _UNDECIDED
        and (effect.amount_minor, effect.currency) == money
        and effect.action == finding.evidence["theirs"]["action"]
    ]
    near = sorted(entry for entry in alike if entry[0] <= PROPOSAL_WITHIN)[:PROPOSALS_MAX]
    if not near:
        return finding
    proposals = [
        {**effect.as_evidence(), "seconds_apart": round(apart.total_seconds(), 1)}
        for apart, _, effect in near
    ]
    return _with(finding, {"proposals": proposals})


def _join(
    view: View,
) -> tuple[list[tuple[OurEffect, list[TheirRecord]]], list[TheirRecord]]:
    """Which records belong to which effect, and which belong to none."""
    by_key = {(effect.key, effect.action): effect for effect in view.effects}
    by_id: dict[tuple[str, str], OurEffect] = {}
    for effect in sorted(view.effects, key=lambda e: (e.at, e.key), reverse=True):
        if effect.provider_reference is not None:
            by_id[effect.provider_reference, effect.action] = effect
    joined: dict[str, tuple[OurEffect, list[TheirRecord]]] = {}
    leftover: list[TheirRecord] = []
    for record in sorted(view.records, key=lambda r: r.age_order):
        effect = by_key.get((record.reference or "", record.action))
        effect = effect or by_id.get((record.id, record.action))
        if effect is None:
            leftover.append(record)
        else:
            joined.setdefault(effect.key, (effect, []))[1].append(record)
    return list(joined.values()), leftover


def _compare(effect: OurEffect, records: list[TheirRecord], view: View) -> list[Finding]:
    """What the records that belong to one effect say of it: one is it, all others are too many."""
    known = [record for record in records if record.id == effect.provider_reference]
    if known:
        kept: TheirRecord | None = known[0]
    elif expects_record(effect):
        kept = None
    else:
        kept = records[0]
    found: list[Finding] = []
    for record in records:
        if record is kept:
            found.append(_kept(effect, record, view))
        else:
            found.append(_extra(effect, record, view, kept=kept))
    return found


def _kept(effect: OurEffect, record: TheirRecord, view: View) -> Finding:
    standing = effect.state is EffectState.CONFIRMED or (
        effect.state is EffectState.COMPENSATED and effect.provider_reference == record.id
    )
    if not standing and _is_undone(record, view):
        return _finding(FindingKind.MATCHED, effect, record)
    if _differ(effect, record):
        return _finding(
            FindingKind.AMOUNT_MISMATCH,
            effect,
            record,
            why="Amount or currency differ from what we asked for.",
        )
    if standing:
        return _finding(FindingKind.MATCHED, effect, record)
    partly_undone = bool(_undos_of(record, view))
    remedy = Remedy.NONE
    if not partly_undone:
        remedy = _late_remedy(effect, record, undoable=view.undoable)
    return _finding(
        FindingKind.LATE,
        effect,
        record,
        remedy=remedy,
        why=f"The provider has it, and our books say {effect.state.value}.",
    )


def _extra(
    effect: OurEffect, record: TheirRecord, view: View, *, kept: TheirRecord | None
) -> Finding:
    if _is_undone(record, view):
        return _finding(FindingKind.MATCHED, effect, record)
    proven = (
        kept is not None
        and expects_record(effect)
        and effect.is_over
        and effect.undoes is None
        and record.action in view.undoable
        and record.reference == effect.key
        and (record.amount_minor, record.currency) == (kept.amount_minor, kept.currency)
        and not _undos_of(record, view)
    )
    finding = _finding(
        FindingKind.DUPLICATE,
        effect,
        record,
        remedy=Remedy.UNDO if proven else Remedy.NONE,
        why="It stands a second time under one reference of ours.",
    )
    first = kept.id if kept is not None else effect.provider_reference
    return _with(finding, {"kept": first})


def _late_remedy(effect: OurEffect, record: TheirRecord, *, undoable: frozenset[str]) -> Remedy:
    """What may be done by itself about a success that our books do not have."""
    if record.reference != effect.key:
        return Remedy.NONE
    if not effect.is_over:
        return Remedy.RESOLVE if effect.state in _UNDECIDED else Remedy.NONE
    unwanted = effect.outcome in _UNDONE_OUTCOMES or effect.state is EffectState.ABSENT
    definite = effect.state in {EffectState.PLANNED, EffectState.REJECTED}
    if effect.outcome is Outcome.SUCCEEDED and effect.state in _UNDECIDED:
        return Remedy.RESOLVE
    takes_money_back = effect.undoes is None and record.action in undoable
    abandoned = effect.outcome is Outcome.ABANDONED
    if unwanted and takes_money_back and not definite and not abandoned:
        return Remedy.UNDO
    return Remedy.NONE


def _provider_only(record: TheirRecord) -> Finding:
    return Finding(
        kind=FindingKind.PROVIDER_ONLY,
        subject=record.id,
        occurred_at=record.created_at,
        record_id=record.id,
        amount_minor=record.amount_minor,
        currency=record.currency,
        evidence={
            "why": "No effect in our ledger is meant by it.",
            "theirs": record.as_evidence(),
        },
    )


def _refund_excess(view: View) -> list[Finding]:
    """Each record that gives back what was not left to give back, counted from the oldest."""
    by_target: dict[str, dict[str, TheirRecord]] = {}
    for record in (*view.undos, *view.records):
        if record.target is not None and record.amount_minor is not None:
            by_target.setdefault(record.target, {})[record.id] = record
    found: list[Finding] = []
    for target, refunds in by_target.items():
        capture = view.captures.get(target)
        if capture is None:
            continue
        total = capture.given_back_minor
        for record in sorted(refunds.values(), key=lambda r: r.age_order):
            total += record.amount_minor or 0
            if total > capture.amount_minor:
                found.append(_excess(record, capture, total_minor=total))
    return found


def _excess(record: TheirRecord, capture: Capture, *, total_minor: int) -> Finding:
    return Finding(
        kind=FindingKind.REFUND_EXCESS,
        subject=record.id,
        occurred_at=record.created_at,
        record_id=record.id,
        claim_id=capture.claim_id,
        amount_minor=record.amount_minor,
        currency=record.currency,
        evidence={
            "why": "With it, more has been given back than was taken.",
            "theirs": record.as_evidence(),
            "captured_minor": capture.amount_minor,
            "given_back_minor": total_minor,
        },
    )


def _is_undone(record: TheirRecord, view: View) -> bool:
    if record.state in UNDONE_STATES:
        return True
    undos = _undos_of(record, view)
    if record.amount_minor is None:
        return bool(undos)
    return sum(undo.amount_minor or 0 for undo in undos) >= record.amount_minor


def _undos_of(record: TheirRecord, view: View) -> list[TheirRecord]:
    return [undo for undo in view.undos if undo.target == record.id]


def _differ(effect: OurEffect, record: TheirRecord) -> bool:
    """Whether both know an amount and not the same one. An undo may be the first undo's record."""
    if effect.amount_minor is None or record.amount_minor is None:
        return False
    ours = (effect.amount_minor, effect.currency)
    return ours != (record.amount_minor, record.currency)


def _finding(
    kind: FindingKind,
    effect: OurEffect,
    record: TheirRecord,
    *,
    remedy: Remedy = Remedy.NONE,
    why: str = "",
) -> Finding:
    joined_by = "reference" if record.reference == effect.key else "provider_id"
    return Finding(
        kind=kind,
        subject=record.id,
        occurred_at=record.created_at,
        remedy=remedy,
        record_id=record.id,
        effect_key=effect.key,
        claim_id=effect.claim_id,
        amount_minor=record.amount_minor,
        currency=record.currency,
        evidence={
            "why": why,
            "joined_by": joined_by,
            "theirs": record.as_evidence(),
            "ours": effect.as_evidence(),
        },
    )


def _with(finding: Finding, more: Mapping[str, Any]) -> Finding:
    return replace(finding, evidence={**finding.evidence, **more})
