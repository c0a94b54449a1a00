"""The operation as a resource: what its state, its steps and its links look like in JSON."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from api.service import Service
from ledger.claims import Claim
from ledger.reading import Account
from ledger.verdicts import Recorded
from operations.contracts import EffectRecord
from operations.declaration import Operation, SagaOperation, Step
from operations.keys import Purpose, format_key_header, workflow_id
from operations.receipts import operation_path
from operations.states import ClaimState, EffectState

_RETRY_AFTER_SECONDS = {
    ClaimState.ACCEPTED: 1,
    ClaimState.COMPENSATING: 2,
    ClaimState.PARKED: 60,
}
"""Running operations end within moments; an undo takes longer; a person takes minutes."""

_NOTHING_HAPPENED = frozenset({EffectState.PLANNED, EffectState.REJECTED})


def etag(claim: Claim) -> str:
    """A strong ETag: every change of the claim or its effects counts the revision up."""
    return f'"{claim.id:x}-{claim.revision:x}"'


def retry_after_seconds(claim: Claim) -> int:
    """When it is worth asking again."""
    return _RETRY_AFTER_SECONDS.get(claim.state, 0)


def resource(account: Account, *, service: Service) -> dict[str, Any]:
    """The operation resource of the contract."""
    claim, effects = account.claim, account.effects
    operation = service.operations[claim.operation]
    path = operation_path(operation=claim.operation, key=claim.key)
    run = workflow_id(operation=claim.operation, tenant=claim.tenant, key=claim.key)
    is_saga = isinstance(operation, SagaOperation)
    return {
        "operation": claim.operation,
        "key": claim.key,
        "state": claim.state.value,
        "outcome": None if claim.outcome is None else claim.outcome.value,
        "steps": steps(claim, effects, operation=operation),
        "result": result(claim),
        "decisions": [_decision(found) for found in account.decisions],
        "safe_new_key": safe_new_key(claim, effects),
        "workflow_id": run if is_saga else None,
        "created_at": instant(claim.created_at),
        "updated_at": instant(claim.updated_at),
        "expires_at": None if claim.expires_at is None else instant(claim.expires_at),
        "links": {
            "self": path,
            "receipt": f"{path}/receipt",
            "events": f"{path}/events",
            "temporal_ui": _ui_link(run, service) if is_saga else None,
        },
    }


def steps(
    claim: Claim, effects: tuple[EffectRecord, ...], *, operation: Operation
) -> list[dict[str, Any]]:
    """Every declared step, with what is known of its effect and of its undo."""
    if not isinstance(operation, SagaOperation) or claim.state is ClaimState.EXPIRED:
        return []
    guarantees = _guarantees(claim)
    return [
        _step(step, effects, guarantee=guarantees.get(step.provider)) for step in operation.steps
    ]


def result(claim: Claim) -> dict[str, Any] | None:
    """The receipt's status and body, the body as JSON where it is JSON."""
    if claim.receipt is None:
        return None
    media_type = dict(claim.receipt.headers).get("content-type", "")
    body: Any = None
    if "json" in media_type and claim.receipt.body:
        body = json.loads(claim.receipt.body)
    elif claim.receipt.body:
        body = claim.receipt.body.decode(errors="replace")
    return {"status": claim.receipt.status, "body": body}


def safe_new_key(claim: Claim, effects: tuple[EffectRecord, ...]) -> bool:
    """Whether nothing happened and nothing can: only then is a new key free of danger."""
    if claim.state is not ClaimState.DONE or claim.outcome is None or claim.outcome == "succeeded":
        return False
    return all(effect.state in _NOTHING_HAPPENED and effect.sends <= 1 for effect in effects)


def answer_headers(claim: Claim) -> dict[str, str]:
    """What every answer about an operation says."""
    headers = {
        "idempotency-key": format_key_header(claim.key),
        "operation-state": claim.state.value,
        "cache-control": "no-store",
    }
    if claim.expires_at is not None:
        headers["idempotency-expires"] = instant(claim.expires_at)
    return headers


def instant(moment: datetime) -> str:
    """A point in time as RFC 3339, in UTC, to the millisecond."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _step(
    step: Step, effects: tuple[EffectRecord, ...], *, guarantee: str | None
) -> dict[str, Any]:
    action = latest(effects, step.name, Purpose.ACTION)
    undo = latest(effects, step.name, Purpose.UNDO)
    return {
        "name": step.name,
        "provider": step.provider,
        "guarantee": guarantee,
        "state": (EffectState.PLANNED if action is None else action.state).value,
        "provider_reference": None if action is None else action.provider_reference,
        "attempts": 0 if action is None else action.sends,
        "undo_state": None if undo is None else undo.state.value,
        "reason": None if action is None else action.reason,
    }


def latest(effects: Sequence[EffectRecord], step: str, purpose: Purpose) -> EffectRecord | None:
    """The step's latest effect of this kind, if there is one."""
    found = [effect for effect in effects if effect.step == step and effect.purpose is purpose]
    return max(found, key=lambda effect: effect.ordinal) if found else None


def _decision(recorded: Recorded) -> dict[str, Any]:
    return {
        "step": recorded.step,
        "purpose": recorded.purpose.value,
        "verdict": recorded.verdict,
        "provider_reference": recorded.provider_reference,
        "evidence": recorded.evidence,
        "decided_by": recorded.decided_by,
        "decided_at": instant(recorded.decided_at),
    }


def _guarantees(claim: Claim) -> dict[str, str]:
    if claim.profiles is None:
        return {}
    pinned: dict[str, dict[str, Any]] = json.loads(claim.profiles)
    return {provider: profile["guarantee"] for provider, profile in pinned.items()}


def _ui_link(run: str, service: Service) -> str | None:
    base = service.settings.temporal_ui_url
    if base is None:
        return None
    namespace = quote(service.settings.temporal_namespace, safe="")
    return f"{base.rstrip('/')}/namespaces/{namespace}/workflows/{quote(run, safe='')}"
