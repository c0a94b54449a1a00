"""What workflows and activities say to each other, by name. Payloads only ever gain fields.

A name in this module is on the wire and in recorded histories: renaming one breaks running
operations. Each new field needs a default.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from operations.guarantees import Guarantee, ProviderProfile
from operations.keys import Purpose
from operations.states import ClaimState, EffectState, Outcome, Verdict

PERFORM_STEP = "step.perform"
LOOK_UP_STEP = "step.look_up"
RECORD_PROGRESS = "ledger.record"
RECALL_OPERATION = "ledger.recall"
COMPLETE_OPERATION = "ledger.complete"
BEGIN_SEND = "ledger.begin_send"
TAKE_BACK_SEND = "ledger.take_back_send"
LOOK_UP_SUFFIX = ".look_up"
"""After the name of a step's activity elsewhere: the activity that looks its effect up."""

RESOLVE_UPDATE = "resolve"
CANCEL_UPDATE = "cancel"


class Payload(BaseModel):
    """A value that crosses between workflow and activity."""

    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")


class Run(Payload):
    """What a workflow needs to know of its operation: exactly what the claim row holds."""

    claim_id: int
    tenant: str
    operation: str
    key: str
    accepted_at: datetime
    request_json: str
    """The canonical request: frozen, so that numbers stay what they were."""
    profiles: dict[str, ProviderProfile]
    """What each provider promised when the operation was accepted, pinned."""
    recovered: bool = False
    """An earlier run of this operation ended without ending the operation."""
    tells_trouble_only: bool = False
    """Whether Temporal's lists are told nothing of a run in which all goes well. (Runs that were
    started before there was the choice tell every state.)"""


class RunEnd(Payload):
    """What the workflow returns: how the operation ended."""

    outcome: Outcome
    status: int
    fenced: bool = False
    """Whether it has not ended: an earlier history has begun to undo what was done."""


class EffectRecord(Payload):
    """One effect as the workflow knows it: a row of the ledger's `effects`."""

    step: str
    purpose: Purpose = Purpose.ACTION
    ordinal: int = 0
    """0, but for the undo of a duplicate: those are counted from 1."""
    provider: str
    account: str
    region: str
    guarantee: Guarantee
    action: str
    key: str
    """The derived key: the same for every send of this effect."""
    state: EffectState
    request: dict[str, Any] = Field(default_factory=dict[str, Any])
    """The business fields of the request; `reference` (the derived key) is among them."""
    frozen_body: str | None = None
    """The bytes of the first send (as text: they are JSON, a form, or a message)."""
    provider_reference: str | None = None
    undoes: str | None = None
    """The provider's reference of what this effect takes back, for an undo or a refund."""
    sends: int = 0
    sent_at: datetime | None = None
    """When the first request for this effect left, or may have left."""
    last_sent_at: datetime | None = None
    reason: str | None = None
    tombstone: bool = False
    """No send may leave any more."""


class StepCall(Payload):
    """One call to a provider. Also the contract of a step that lives in another team's worker."""

    claim_id: int
    workflow_id: str
    tenant: str
    effect: EffectRecord
    profile: ProviderProfile
    recorded: bool = True
    """Whether the effect row is committed before the request leaves."""
    suspect: bool = False
    """Whether this effect may have been sent before without a row: then a new row is no proof."""
    first_run_id: str = ""
    """The run the operation began with. Performing in another one means the run was reset."""
    also: tuple[EffectRecord, ...] = ()
    """Earlier effects that are not in the ledger yet, to be written in the same transaction."""


class Kind(StrEnum):
    """What a call to a provider told us."""

    CONFIRMED = "confirmed"
    DECLINED = "declined"
    UNAVAILABLE = "unavailable"
    """Nothing happened."""
    UNKNOWN = "unknown"
    MISMATCH = "mismatch"
    """The provider holds other content under our key."""
    NOT_FOUND = "not_found"
    """A look-up saw nothing, which may mean "not yet"."""
    UNREADABLE = "unreadable"
    """A look-up could not be made."""
    FENCED = "fenced"
    """Not sent: the effect has a tombstone, or the operation has ended already."""


class StepAnswer(Payload):
    """What is known after a send or a look-up."""

    kind: Kind
    at: datetime
    """When the worker knew it."""
    provider_reference: str | None = None
    duplicates: tuple[str, ...] = ()
    """Further effects found under the same reference, oldest first."""
    found: dict[str, Any] = Field(default_factory=dict[str, Any])
    """What the provider's books say of it (`amount_minor`, `currency`): what its undo needs when
    the request is not known."""
    code: str | None = None
    reason: str | None = None
    retry_after_seconds: float | None = None
    sent_at: datetime | None = None
    """When the first request for this effect left."""
    frozen_body: str | None = None
    rolled_back: bool = False
    """Whether the ledger refused the send, and so wrote nothing of what came with it."""
    reset: bool = False
    """Whether the run that asked is not the one the operation began with."""


class SendPermit(Payload):
    """Leave to have one request sent elsewhere; or why nothing may leave."""

    answer: StepAnswer | None = None
    sends: int = 0
    sent_at: datetime | None = None
    frozen_body: str = ""
    reset: bool = False
    """Whether the run that asked is not the one the operation began with."""


class Decision(Payload):
    """An operator's verdict, or what a provider's record proved, about one step."""

    step: str
    purpose: Purpose = Purpose.ACTION
    verdict: Verdict
    provider_reference: str | None = None
    evidence: str = ""
    decided_by: str = ""
    decided_at: datetime | None = None
    """When the run took it."""
    about: str = ""
    """The derived key of the effect that was judged: a verdict about an earlier one is refused."""


class CancelRequest(Payload):
    """A wish to cancel, and whose it is."""

    requested_by: str = ""
    reason: str = ""
    requested_at: datetime | None = None
    """When the run took it."""


class Progress(Payload):
    """What `ledger.record` writes: effects, and where the operation stands."""

    claim_id: int
    tenant: str
    state: ClaimState
    effects: tuple[EffectRecord, ...] = ()
    decision: Decision | None = None
    cancel: CancelRequest | None = None
    first_run_id: str = ""
    """The run the operation began with; "" from a run that is older than this field."""


class Recorded(Payload):
    """What `ledger.record` answers."""

    reset: bool = False
    """Whether the run that asked is not the one the operation began with."""


class Recollection(Payload):
    """What `ledger.recall` reads: all that earlier runs of the operation have written."""

    state: ClaimState
    outcome: Outcome | None = None
    status: int | None = None
    effects: tuple[EffectRecord, ...] = ()
    cancel: CancelRequest | None = None
    """The first wish to cancel that a run has taken."""
    abandoned: tuple[Decision, ...] = ()
    """The verdicts that gave up on a step, where they were a person's last about it."""


class StoredReceipt(Payload):
    """The exact answer: status, allow-listed headers in order, and the body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = Field(repr=False)


class Completion(Payload):
    """What `ledger.complete` writes, in one transaction."""

    claim_id: int
    tenant: str
    operation: str
    workflow_id: str
    outcome: Outcome
    receipt: StoredReceipt
    effects: tuple[EffectRecord, ...] = ()
    answer: dict[str, Any] | None = None
    """The business's own row, when the operation succeeded."""
    retention_days: int
    first_run_id: str = ""
    """The run the operation began with; "" from a run that is older than this field."""
