"""Gathers the evidence of one scenario: from Postgres, the providers' books and Temporal."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from operations.declaration import SagaOperation, Step
from operations.guarantees import OnUnknown
from operations.keys import Purpose, derived_key, workflow_id
from operations.registry import OPERATIONS
from support.checker.evidence import (
    Balance,
    ClaimRow,
    Delivery,
    EffectRow,
    Evidence,
    Expected,
    Finding,
    Record,
    Run,
    Transfer,
)
from workflows.registry import OPERATION_WORKFLOWS

PROVIDERS = ("payments", "acquirer", "warehouse", "carrier", "mail")
ORDINALS = 3
"""Derived keys are looked for up to this ordinal: retries after a refusal, and duplicates."""

_CLAIMS = """
SELECT c.id, c.tenant, c.operation, c.key, c.state, c.outcome, c.receipt_status, c.receipt_body,
       c.profiles, extract(epoch FROM c.created_at)::float8 AS created_at,
       (b.claim_id IS NOT NULL OR t.claim_id IS NOT NULL) AS has_business_row
FROM claims c LEFT JOIN business_rows b ON b.claim_id = c.id
     LEFT JOIN transfers t ON t.claim_id = c.id
WHERE c.key LIKE $1 ORDER BY c.id
"""
_EFFECTS = """
SELECT claim_id, step, purpose, ordinal, provider, guarantee, action, key, state,
       provider_reference, undoes, sends, extract(epoch FROM sent_at)::float8 AS sent_at,
       extract(epoch FROM created_at)::float8 AS created_at,
       extract(epoch FROM tombstoned_at)::float8 AS tombstoned_at, amount_minor, refunded_minor,
       reason
FROM effects WHERE claim_id = any($1)
"""
_TRANSFERS = """
SELECT claim_id, array_agg(amount_minor ORDER BY amount_minor) AS entries, min(currency) AS currency
FROM entries WHERE claim_id = any($1) GROUP BY claim_id
"""
_BALANCES = """
SELECT a.tenant, a.id AS account, a.balance_minor,
       coalesce((SELECT sum(e.amount_minor) FROM entries e
                 WHERE e.tenant = a.tenant AND e.account = a.id), 0)::bigint AS entries_minor
FROM accounts a
"""


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection of the harness's own."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def from_ledger(url: str, *, prefix: str) -> Evidence:
    """What Postgres says of all claims whose key begins with `prefix`."""
    async with connected(url) as connection:
        claims = await connection.fetch(_CLAIMS, f"{prefix}%")
        ids = [row["id"] for row in claims]
        effects = await connection.fetch(_EFFECTS, ids)
        transfers = await connection.fetch(_TRANSFERS, ids)
        balances = await connection.fetch(_BALANCES)
    return Evidence(
        claims=tuple(_claim(row) for row in claims),
        effects=tuple(EffectRow(**dict(row)) for row in effects),
        expected=tuple(found for row in claims for found in _expected(row)),
        transfers=tuple(
            Transfer(
                claim_id=row["claim_id"], entries=tuple(row["entries"]), currency=row["currency"]
            )
            for row in transfers
        ),
        balances=tuple(Balance(**dict(row)) for row in balances),
    )


async def undelivered(url: str) -> list[str]:
    """Events for endpoints that have not been delivered, and proofs that no run was told."""
    async with connected(url) as connection:
        events = await connection.fetchval("SELECT count(*) FROM outbox WHERE delivered_at IS NULL")
        proofs = await connection.fetchval("SELECT count(*) FROM inbox WHERE check_at IS NOT NULL")
    return [f"{events} events, {proofs} messages"] if events or proofs else []


async def entities(url: str) -> dict[str, str]:
    """The states that webhooks have told of, by the provider's IDs."""
    async with connected(url) as connection:
        rows = await connection.fetch("SELECT entity, state FROM entities")
    return {row["entity"]: row["state"] for row in rows}


async def deliveries(url: str, records: Sequence[Record]) -> tuple[Delivery, ...]:
    """What webhooks have made of each entity, beside what its provider says of it."""
    async with connected(url) as connection:
        rows = await connection.fetch(
            "SELECT e.provider, e.entity, e.state, (SELECT coalesce(max(n), 0) FROM"
            " (SELECT count(*) AS n FROM inbox i WHERE i.provider = e.provider"
            " AND i.entity = e.entity GROUP BY i.rank) AS counted) AS times FROM entities e"
        )
    known = {record.id: record for record in records}
    found: list[Delivery] = []
    for row in rows:
        record = known.get(row["entity"])
        if record is not None:
            told = Delivery(
                entity=record.id, order=("told",), final_state=row["state"], effects=row["times"]
            )
            said = Delivery(entity=record.id, order=("said",), final_state=record.state, effects=1)
            found += [told, said]
    return tuple(found)


async def findings(url: str, subjects: Sequence[str]) -> tuple[Finding, ...]:
    """What reconciliation found about `subjects`, or about anything when there are none."""
    async with connected(url) as connection:
        rows = await connection.fetch(
            "SELECT provider, kind, subject FROM reconciliation_findings WHERE subject = any($1)",
            list(subjects),
        )
    return tuple(Finding(**dict(row)) for row in rows)


async def open_claims(url: str, *, prefix: str) -> list[str]:
    """The claims that have not come to rest."""
    async with connected(url) as connection:
        rows = await connection.fetch(
            "SELECT operation, key, state FROM claims"
            " WHERE key LIKE $1 AND state NOT IN ('done', 'parked', 'expired')",
            f"{prefix}%",
        )
    return [f"{row['operation']}/{row['key']} is {row['state']}" for row in rows]


async def from_providers(admin_url: str) -> tuple[Record, ...]:
    """Everything that the providers have really committed."""
    records: list[Record] = []
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        for provider in PROVIDERS:
            answer = await http.get(f"{admin_url}/admin/ledger", params={"provider": provider})
            for row in answer.json():
                reference = str(row["reference"] or "").removeprefix("<").partition("@")[0]
                records.append(
                    Record(
                        provider=provider,
                        id=row["id"],
                        operation=row["operation"],
                        reference=reference or None,
                        amount=row["amount"],
                        state=row["state"],
                        created_at=0.0,
                    )
                )
    return tuple(records)


async def from_temporal(client: Client, claims: Sequence[ClaimRow], *, replay: bool) -> list[Run]:
    """Every run of `claims`, with its history replayed when asked for."""
    runs: list[Run] = []
    replayer = Replayer(
        workflows=list(OPERATION_WORKFLOWS),
        data_converter=pydantic_data_converter,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    for claim in claims:
        if not isinstance(OPERATIONS[claim.operation], SagaOperation):
            continue
        query = f'WorkflowId = "{claim.workflow_id}"'
        async for found in client.list_workflows(query):
            handle = client.get_workflow_handle(found.id, run_id=found.run_id)
            history = await handle.fetch_history()
            closed = found.status is not None and found.status.name != "RUNNING"
            runs.append(
                Run(
                    workflow_id=found.id,
                    run_id=found.run_id,
                    status=found.status.name.lower() if found.status is not None else "",
                    started_at=found.start_time.timestamp(),
                    ended_at=found.close_time.timestamp() if found.close_time else None,
                    interruptions=_interruptions(history),
                    replay_failure=await _replay(replayer, history) if replay and closed else None,
                )
            )
    return runs


async def _replay(replayer: Replayer, history: WorkflowHistory) -> str | None:
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    failure = result.replay_failure
    return None if failure is None else f"{type(failure).__name__}: {failure}"[:300]


def _interruptions(history: WorkflowHistory) -> int:
    """How often something in a run had to be tried again."""
    count = 0
    for event in history.events:
        if event.event_type in {
            EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
            EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
        }:
            count += 1
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            count += event.activity_task_started_event_attributes.attempt - 1
        elif event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED:
            count += _local_attempts(event.marker_recorded_event_attributes) - 1
    return count


def _local_attempts(marker: Any) -> int:
    """How many attempts a local activity took, from the SDK's own marker."""
    for payload in marker.details["data"].payloads if "data" in marker.details else ():
        return int(json.loads(payload.data).get("attempt", 1))
    return 1


def _claim(row: asyncpg.Record) -> ClaimRow:
    body = row["receipt_body"]
    return ClaimRow(
        id=row["id"],
        tenant=row["tenant"],
        operation=row["operation"],
        key=row["key"],
        workflow_id=workflow_id(operation=row["operation"], tenant=row["tenant"], key=row["key"]),
        state=row["state"],
        outcome=row["outcome"],
        receipt_status=row["receipt_status"],
        receipt_body=None if body is None else bytes(body).decode(),
        created_at=row["created_at"],
        has_business_row=row["has_business_row"],
    )


def _expected(row: asyncpg.Record) -> list[Expected]:
    """Every effect that a claim may cause, by its derived key."""
    operation = OPERATIONS[row["operation"]]
    if not isinstance(operation, SagaOperation):
        return []
    run = workflow_id(operation=row["operation"], tenant=row["tenant"], key=row["key"])
    profiles = json.loads(row["profiles"])
    return [
        Expected(
            claim_id=row["id"],
            step=step.name,
            purpose=purpose.value,
            provider=step.provider,
            guarantee=profiles[step.provider]["guarantee"],
            key=derived_key(workflow_id=run, step=step.name, ordinal=ordinal, purpose=purpose),
            copies_max=_copies_max(step, profiles[step.provider]),
            required=step.required,
        )
        for step in operation.steps
        for purpose in Purpose
        for ordinal in range(ORDINALS)
    ]


def _copies_max(step: Step, profile: dict[str, Any]) -> int:
    accepts = step.on_unknown is OnUnknown.ACCEPT_DUPLICATES and profile["guarantee"] == "blind"
    return 1 + profile["blind_resends"] if accepts else 1
