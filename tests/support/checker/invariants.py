"""The fourteen invariants of `docs/proof.md`, each a function from evidence to violations."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from support.checker.books import Books
from support.checker.evidence import Evidence

PERMIT_SECONDS = 2.5
"""A request that was permitted just before its tombstone was committed may leave this much later:
the two seconds that a permit lasts, and the way through the proxy."""

FINAL_STATES = frozenset({"done", "parked", "expired"})
UNDONE_OUTCOMES = frozenset({"compensated", "cancelled", "declined"})


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be."""

    invariant: int
    about: str
    """The intent, effect or account it is about."""
    detail: str


Found = Iterator[tuple[str, str]]
"""What it is about, and what is wrong with it."""


def acknowledged_operations_end(books: Books) -> Found:
    """Every acknowledged operation ends, or is parked; success is a receipt and a business row."""
    for attempt in books.evidence.attempts:
        if attempt.status in {200, 201, 202} and attempt.intent not in books.by_intent:
            yield "/".join(attempt.intent), "it was acknowledged, and there is no claim"
    for claim in books.evidence.claims:
        if claim.state not in FINAL_STATES:
            yield books.name(claim.id), f"it is still {claim.state}"
        if (claim.outcome == "succeeded") != claim.has_business_row:
            yield books.name(claim.id), f"{claim.outcome}, business row: {claim.has_business_row}"


def one_net_effect(books: Books) -> Found:
    """At most one net effect per intent; exactly one where it succeeded; never a second run."""
    for (claim_id, step), allowed in books.steps().items():
        net = books.net(claim_id, step)
        claim = books.claims[claim_id]
        if net > allowed.copies_max:
            yield books.name(claim_id), f"{step} happened {net} times at {allowed.provider}"
        if claim.outcome == "succeeded" and allowed.required and net < 1:
            yield books.name(claim_id), f"succeeded, but {step} did not happen"
    for record in books.evidence.records:
        if record.reference not in books.expected:
            yield f"{record.provider} {record.id}", "an effect that no claim asked for"
    by_workflow = defaultdict[str, list[str]](list)
    for run in sorted(books.evidence.runs, key=lambda run: run.started_at):
        if "completed" in by_workflow[run.workflow_id]:
            yield run.workflow_id, "it ran again after it had completed"
        by_workflow[run.workflow_id].append(run.status)


def undone_means_zero(books: Books) -> Found:
    """What ended compensated, cancelled or declined left nothing at any provider."""
    for (claim_id, step), allowed in books.steps().items():
        claim = books.claims[claim_id]
        undoable = allowed.copies_max == 1
        if claim.outcome in UNDONE_OUTCOMES and undoable and books.net(claim_id, step) != 0:
            yield (
                books.name(claim_id),
                f"{claim.outcome}, but {step} stands at {allowed.provider}",
            )


def same_answer_for_ever(books: Books) -> Found:
    """Same key and content: the stored receipt, byte for byte. Other content: 409."""
    first: dict[tuple[str, str, str], str] = {}
    for attempt in sorted(books.evidence.attempts, key=lambda attempt: attempt.ended_at):
        if attempt.status in {200, 201, 202} or attempt.is_receipt:
            first.setdefault(attempt.intent, attempt.content)
    for attempt in books.evidence.attempts:
        about, original = "/".join(attempt.intent), first.get(attempt.intent)
        claim = books.by_intent.get(attempt.intent)
        if original is None or claim is None or attempt.status in {None, 500, 502, 503, 504}:
            continue
        if attempt.content != original:
            if attempt.status != 409:
                yield about, f"other content was answered {attempt.status}"
        elif attempt.status == 409 and attempt.state is not None:
            yield about, "the same content was called other content"
        elif attempt.is_receipt and (attempt.status, attempt.answer) != (
            claim.receipt_status,
            claim.receipt_body,
        ):
            yield about, f"an answer ({attempt.status}) differs from the stored receipt"


def tenants_share_nothing(books: Books) -> Found:
    """Two tenants that use one key have two operations, and two effects."""
    owners = defaultdict[str, set[str]](set)
    for effect in books.evidence.effects:
        if effect.provider_reference and effect.purpose == "action":
            tenant = books.claims[effect.claim_id].tenant
            owners[f"{effect.provider} {effect.provider_reference}"].add(tenant)
    for reference, tenants in owners.items():
        if len(tenants) > 1:
            yield reference, f"one effect of {len(tenants)} tenants"
    for attempt in books.evidence.attempts:
        if attempt.is_receipt and attempt.intent not in books.by_intent:
            yield "/".join(attempt.intent), "a receipt for a key that this tenant never claimed"


def refunds_within_captures(books: Books) -> Found:
    """Refunds never exceed captures: not in the provider's books, not in ours."""
    captured = {record.id: record.amount or 0 for record in books.evidence.records}
    given = Counter[str]()
    undoes = {effect.key: effect.undoes for effect in books.evidence.effects}
    for record in books.evidence.records:
        target = undoes.get(record.reference or "")
        if target is not None and record.operation == "refund":
            given[target] += record.amount or 0
    for target, amount in given.items():
        if target in captured and amount > captured[target]:
            yield target, f"{amount} refunded of {captured[target]}"
    for effect in books.evidence.effects:
        if effect.refunded_minor > (effect.amount_minor or 0):
            yield f"{books.name(effect.claim_id)} {effect.step}", "our books refund too much"


def no_call_without_a_row(books: Books) -> Found:
    """No provider call without a committed claim; where repeats are unsafe, none without a row."""
    rows = {effect.key: effect for effect in books.evidence.effects}
    for request in books.evidence.requests:
        expected = books.expected.get(request.reference)
        if expected is None:
            yield f"{request.provider} {request.reference}", "a request that no claim asked for"
            continue
        if books.claims[expected.claim_id].created_at > request.at:
            yield books.name(expected.claim_id), "a request left before there was a claim"
        row = rows.get(request.reference)
        if expected.guarantee in {"queryable", "blind"} and (
            row is None or row.created_at > request.at
        ):
            yield books.name(expected.claim_id), f"{expected.step} was sent without its row"


def same_key_same_bytes(books: Books) -> Found:
    """All sends of one effect carry the same key and the same bytes."""
    seen = defaultdict[str, set[tuple[str | None, str]]](set)
    for request in books.evidence.requests:
        seen[request.reference].add((request.header_key, request.body))
    for reference, forms in seen.items():
        if len(forms) > 1:
            yield reference, f"sent in {len(forms)} different forms"
        if any(key not in {None, reference} for key, _ in forms):
            yield reference, "sent under a key that is not its own"


def no_send_after_the_tombstone(books: Books) -> Found:
    """No send after its tombstone."""
    rows = {effect.key: effect for effect in books.evidence.effects}
    for request in books.evidence.requests:
        row = rows.get(request.reference)
        if row is None or row.tombstoned_at is None or row.purpose != "action":
            continue
        late_seconds = request.at - row.tombstoned_at
        if late_seconds > PERMIT_SECONDS:
            yield f"{books.name(row.claim_id)} {row.step}", f"sent {late_seconds:.1f} s after it"


def double_entry(books: Books) -> Found:
    """Every transfer sums to zero, every balance to its entries, one transfer per success."""
    transfers = Counter(transfer.claim_id for transfer in books.evidence.transfers)
    for transfer in books.evidence.transfers:
        if sum(transfer.entries) != 0 or len(transfer.entries) != 2:
            yield f"transfer {transfer.claim_id}", f"entries {transfer.entries}"
    for balance in books.evidence.balances:
        if balance.balance_minor != balance.entries_minor:
            yield (
                f"{balance.tenant}/{balance.account}",
                (f"balance {balance.balance_minor}, entries {balance.entries_minor}"),
            )
    for claim in books.evidence.claims:
        if claim.operation == "accounts.transfer":
            wanted = 1 if claim.outcome == "succeeded" else 0
            if transfers[claim.id] != wanted:
                yield books.name(claim.id), f"{claim.outcome}, {transfers[claim.id]} transfers"


def reconciliation_finds_what_is_there(books: Books) -> Found:
    """Nothing on clean books, and everything that was seeded."""
    if not books.evidence.reconciled:
        return
    seeded = {(seed.provider, seed.kind, seed.subject) for seed in books.evidence.seeds}
    found = {(f.provider, f.kind, f.subject) for f in books.evidence.findings}
    for provider, kind, subject in sorted(seeded - found):
        yield f"{provider} {subject}", f"a seeded {kind} was not found"
    for provider, kind, subject in sorted(found - seeded):
        if kind != "matched":
            yield f"{provider} {subject}", f"{kind} on clean books"


def settles_or_parks_by_the_table(books: Books) -> Found:
    """After the faults everything settles within a bound; what is parked is so by the table."""
    if not books.evidence.settled_within_bound:
        yield ", ".join(books.evidence.unsettled) or "everything", "not settled within the bound"
    parked = {effect.claim_id: effect for effect in books.evidence.effects}
    for effect in books.evidence.effects:
        if effect.state == "parked":
            parked[effect.claim_id] = effect
            if effect.guarantee != "blind":
                yield (
                    f"{books.name(effect.claim_id)} {effect.step}",
                    f"parked at a {effect.guarantee} provider: {effect.reason}",
                )
    for claim in books.evidence.claims:
        effect = parked.get(claim.id)
        if claim.state == "parked" and (effect is None or effect.state != "parked"):
            yield books.name(claim.id), "parked, but no effect waits for anybody"


def webhooks_in_any_order(books: Books) -> Found:
    """Webhooks three times and shuffled: one final state, applied once."""
    finals = defaultdict[str, set[str]](set)
    for delivery in books.evidence.deliveries:
        finals[delivery.entity].add(delivery.final_state)
        if delivery.effects > 1:
            yield delivery.entity, f"applied {delivery.effects} times"
    for entity, states in finals.items():
        if len(states) > 1:
            yield entity, f"ends as {sorted(states)} depending on the order"


def histories_replay(books: Books) -> Found:
    """Every recorded history replays."""
    for run in books.evidence.runs:
        if run.replay_failure is not None:
            yield run.workflow_id, run.replay_failure


INVARIANTS: tuple[Callable[[Books], Found], ...] = (
    acknowledged_operations_end,
    one_net_effect,
    undone_means_zero,
    same_answer_for_ever,
    tenants_share_nothing,
    refunds_within_captures,
    no_call_without_a_row,
    same_key_same_bytes,
    no_send_after_the_tombstone,
    double_entry,
    reconciliation_finds_what_is_there,
    settles_or_parks_by_the_table,
    webhooks_in_any_order,
    histories_replay,
)
"""By number, from 1."""


def check(evidence: Evidence) -> tuple[Violation, ...]:
    """Everything in `evidence` that must never be."""
    books = Books(evidence)
    return tuple(
        Violation(number, about, detail)
        for number, invariant in enumerate(INVARIANTS, start=1)
        for about, detail in invariant(books)
    )
