"""What the checker reads: what the client saw, what the providers did, what the ledger says, what
Temporal recorded. Times are seconds since 1970; everything can be written as JSON and read back."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Fact(BaseModel):
    """One line of evidence."""

    model_config = ConfigDict(frozen=True)


class Attempt(Fact):
    """One request of a client, and what came back."""

    tenant: str
    operation: str
    key: str
    content: str
    """Names the body: attempts with equal `content` sent the same bytes."""
    sent_at: float
    ended_at: float
    status: int | None
    """None: no answer. That is unknown, never failed."""
    state: str | None = None
    replayed: bool = False
    answer: str = ""

    @property
    def intent(self) -> tuple[str, str, str]:
        """What the key is unique within, and the key."""
        return self.tenant, self.operation, self.key

    @property
    def is_receipt(self) -> bool:
        """Whether this is the operation's own answer rather than a refusal or a 202."""
        return self.status is not None and self.state == "done" and self.status != 409


class ClaimRow(Fact):
    """A row of `claims`."""

    id: int
    tenant: str
    operation: str
    key: str
    workflow_id: str
    state: str
    outcome: str | None
    receipt_status: int | None
    receipt_body: str | None
    created_at: float
    has_business_row: bool

    @property
    def intent(self) -> tuple[str, str, str]:
        """As an attempt's."""
        return self.tenant, self.operation, self.key


class EffectRow(Fact):
    """A row of `effects`."""

    claim_id: int
    step: str
    purpose: str
    ordinal: int
    provider: str
    guarantee: str
    action: str
    key: str
    state: str
    provider_reference: str | None
    undoes: str | None
    sends: int
    created_at: float
    sent_at: float | None
    tombstoned_at: float | None
    amount_minor: int | None
    refunded_minor: int
    reason: str | None = None


class Expected(Fact):
    """An effect that an intent may cause, by its derived key."""

    claim_id: int
    step: str
    purpose: str
    provider: str
    guarantee: str
    key: str
    copies_max: int
    """How many of it may stand: 1, or more where the step accepts duplicates."""
    required: bool


class Record(Fact):
    """An entry of a provider's own ledger."""

    provider: str
    id: str
    operation: str
    reference: str | None
    amount: int | None
    state: str
    created_at: float


class Request(Fact):
    """A write that was seen on the wire to a provider."""

    provider: str
    at: float
    reference: str
    header_key: str | None
    body: str
    """A digest of the bytes."""


class Run(Fact):
    """A run that Temporal recorded."""

    workflow_id: str
    run_id: str
    status: str
    started_at: float
    ended_at: float | None
    interruptions: int
    """Attempts beyond the first, of tasks and activities."""
    replay_failure: str | None = None


class Transfer(Fact):
    """A double entry: what it moved, as its entries say."""

    claim_id: int
    entries: tuple[int, ...]
    currency: str


class Balance(Fact):
    """An account: its balance, and what its entries sum to."""

    tenant: str
    account: str
    balance_minor: int
    entries_minor: int


class Finding(Fact):
    """What reconciliation found."""

    provider: str
    kind: str
    subject: str


class Delivery(Fact):
    """A webhook's entity after its messages came in some order."""

    entity: str
    order: tuple[str, ...]
    final_state: str
    effects: int
    """How often its effect was applied."""


class Seed(Fact):
    """What was planted for reconciliation to find."""

    provider: str
    kind: str
    subject: str


class Evidence(Fact):
    """All of it, for one scenario or for a whole run."""

    attempts: tuple[Attempt, ...] = ()
    claims: tuple[ClaimRow, ...] = ()
    effects: tuple[EffectRow, ...] = ()
    expected: tuple[Expected, ...] = ()
    records: tuple[Record, ...] = ()
    requests: tuple[Request, ...] = ()
    runs: tuple[Run, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    balances: tuple[Balance, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    reconciled: bool = False
    """Whether reconciliation ran over all of this."""
    seeds: tuple[Seed, ...] = ()
    findings: tuple[Finding, ...] = ()
    settled_within_bound: bool = True
    unsettled: tuple[str, ...] = ()

    def but(self, **changes: Any) -> "Evidence":
        """The same with some parts exchanged."""
        return self.model_copy(update=changes)
