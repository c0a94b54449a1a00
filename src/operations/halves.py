"""The two halves that reconciliation compares, as plain values: their records and our effects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from operations.keys import Purpose
from operations.reconciliation import FindingKind, Remedy
from operations.states import ClaimState, EffectState, Outcome


@dataclass(frozen=True, slots=True)
class TheirRecord:
    """One record of the provider's books."""

    id: str
    action: str
    reference: str | None
    amount_minor: int | None
    currency: str | None
    target: str | None
    """What it takes back, if it is an undo."""
    state: str
    created_at: datetime
    judged: bool = True
    """Whether it lies in the window; a record beside it only explains others."""

    @property
    def age_order(self) -> tuple[datetime, str]:
        """Oldest first."""
        return (self.created_at, self.id)

    def as_evidence(self) -> dict[str, Any]:
        """What a person needs to find it."""
        return {
            "id": self.id,
            "action": self.action,
            "reference": self.reference,
            "amount_minor": self.amount_minor,
            "currency": self.currency,
            "target": self.target,
            "state": self.state,
            "created_at": self.created_at.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class OurEffect:
    """One row of `effects`, with how its operation stands."""

    claim_id: int
    tenant: str
    operation: str
    operation_key: str
    claim_state: ClaimState
    outcome: Outcome | None
    step: str
    purpose: Purpose
    ordinal: int
    key: str
    action: str
    state: EffectState
    amount_minor: int | None
    currency: str | None
    provider_reference: str | None
    undoes: str | None
    tombstone: bool
    at: datetime
    """When its first request left, or when it was written down."""

    @property
    def is_over(self) -> bool:
        """Whether no run of its operation can act any more."""
        return not self.claim_state.is_open

    def as_evidence(self) -> dict[str, Any]:
        """What a person needs to find it."""
        return {
            "tenant": self.tenant,
            "operation": self.operation,
            "key": self.operation_key,
            "step": self.step,
            "purpose": self.purpose.value,
            "reference": self.key,
            "state": self.state.value,
            "amount_minor": self.amount_minor,
            "currency": self.currency,
            "provider_reference": self.provider_reference,
            "operation_state": self.claim_state.value,
            "outcome": None if self.outcome is None else self.outcome.value,
        }


@dataclass(frozen=True, slots=True)
class Capture:
    """What was taken, and what had been given back of it before the records of a view."""

    amount_minor: int
    given_back_minor: int = 0
    claim_id: int | None = None
    """The operation of ours that took it."""


@dataclass(frozen=True, slots=True)
class View:
    """Records in whole groups of one reference, and everything that may explain them."""

    records: tuple[TheirRecord, ...]
    effects: tuple[OurEffect, ...] = ()
    """Every effect that a record points at, by our reference or by the provider's identifier."""
    undos: tuple[TheirRecord, ...] = ()
    """Every record that takes back one of `records`, or the same as one of them."""
    captures: Mapping[str, Capture] = field(default_factory=dict[str, Capture])
    """By the provider's identifier, for what `records` take back."""
    undoable: frozenset[str] = frozenset()
    """Actions that this provider can take back, as the operations declare."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one record, or about one effect of ours."""

    kind: FindingKind
    subject: str
    """The provider's identifier of the record, or our reference of an effect without one."""
    occurred_at: datetime
    remedy: Remedy = Remedy.NONE
    record_id: str | None = None
    effect_key: str | None = None
    claim_id: int | None = None
    amount_minor: int | None = None
    currency: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict[str, Any])
