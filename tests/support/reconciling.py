"""Asking for reconciliations, and books with defects of every kind."""

from datetime import datetime, timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from ledger.reconciliation_runs import RunRequest
from operations.reconciliation import Trigger
from runtime import wiring
from support.books import Books
from support.saga_bench import SagaBench
from support.service import RunningService
from support.world import World

PATH = "/v1/reconciliation"
NOT_FINDINGS = {"matched", "records"}

SEEDED = {
    "amount_mismatch": 3,
    "provider_only": 3,
    "local_only": 3,
    "duplicate": 4,
    "late": 4,
    "refund_excess": 3,
}
"""What there is to be found of each kind after `seed_defects`."""


async def reconcile(
    service: RunningService, key: str, body: dict[str, Any] | None = None, *, at: str = "payments"
) -> dict[str, Any]:
    """Reconcile a provider to the end; returns the run's document."""
    answer = await service.operator.post(
        f"{PATH}/{at}/runs",
        json=body or {},
        headers={"Idempotency-Key": key, "Prefer": "wait=60"},
    )
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    assert document["state"] == "done", document
    return document


async def begin_reconciliation(bench: SagaBench, key: str) -> WorkflowHandle[Any, Any]:
    """Have the payments reconciled, without an API; the workflow of the run."""
    run = await bench.ledger.reconciliation.runs.request(
        RunRequest(
            provider="payments",
            requested_by=bench.tenant,
            key=key,
            fingerprint=b"",
            trigger=Trigger.PERSON,
            workflow_id=f"reconciliation.payments/{bench.tenant}/{key}",
        ),
        now=wiring.now(),
    )
    await wiring.reconciler_of(bench.settings, bench.temporal, bench.providers).start(run)
    return bench.temporal.get_workflow_handle(run.workflow_id)


def found(document: dict[str, Any]) -> dict[str, int]:
    """How many findings of each kind a run has."""
    return {k: n for k, n in document["counts"].items() if n and k not in NOT_FINDINGS}


async def seed_defects(books: Books, world: World, *, since: datetime) -> None:
    """980 clean charges, and twenty defects of every kind."""
    later = timedelta(seconds=9)
    clean = books.charges(980, since=since)
    wrong = books.charges(3, since=since, prefix="wrong")
    lost = books.charges(3, since=since, prefix="lost")
    doubled = books.charges(4, since=since, prefix="doubled")
    undone: dict[str, Any] = {"state": "absent", "outcome": "compensated", "tombstone": True}
    late = books.charges(3, since=since, prefix="late", **undone)
    given_up = books.charges(
        1, since=since, prefix="given-up", state="unknown", outcome="abandoned"
    )
    refunded = books.charges(3, since=since, prefix="refunded")
    records = [charge.record() for charge in (*clean, *doubled, *late, *given_up)]
    records += [charge.record(amount=charge.amount + 1) for charge in wrong]
    # They look exactly like a real payment of ours, and are three others.
    records += [clean[0].record(id=f"ch_other{n}", reference=None, key=None) for n in range(3)]
    for place, charge in enumerate(doubled):
        again: dict[str, Any] = {"id": f"{charge.id}2", "key": None}
        again["created_at"] = (charge.at + later).isoformat()
        records.append(charge.record(**again, **({"amount": 1} if place == 3 else {})))
    for charge in refunded:
        records.append(charge.record(state="refunded"))
        refund = {"id": f"re_{charge.id}", "operation": "refund", "reference": None, "key": None}
        excess = {"target": charge.id, "amount": charge.amount + 5}
        records.append(charge.record(**refund, **excess))
    await books.write([*clean, *wrong, *lost, *doubled, *late, *given_up, *refunded])
    await world.seed("payments", records)
