"""What a provider promises about a repeated request, and what we do when an outcome is unknown."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Guarantee(StrEnum):
    """What protects a provider against the same request twice."""

    KEYED = "keyed"
    """It deduplicates by our key, for `key_lifetime_seconds`."""
    NATURAL = "natural"
    """Repeating is harmless: a PUT of full state, a conditional write."""
    QUERYABLE = "queryable"
    """It takes no key, but its records can be looked up by our reference."""
    BLIND = "blind"
    """Neither. What was sent once may only be repeated if duplicates are acceptable."""


class OnUnknown(StrEnum):
    """The business's decision for a step whose outcome cannot be found out."""

    PARK = "park"
    """Ask a person. The default, and the only choice where money moves."""
    COMPENSATE = "compensate"
    """Undo what may exist and fail the operation."""
    ACCEPT_DUPLICATES = "accept_duplicates"
    """Send again, a bounded number of times: the step only informs."""


class ProviderProfile(BaseModel):
    """What one provider promises, pinned on the claim when an operation is accepted.

    The profile decides the machinery of every step, so it may not change under a running operation:
    a key's scope is reset in another account or region (hazard 11).
    """

    model_config = ConfigDict(frozen=True)

    provider: str
    guarantee: Guarantee
    account: str = "default"
    region: str = "default"
    can_look_up: bool = True
    """Whether its records can be read by our reference (all QUERYABLE ones, many KEYED ones)."""
    send_timeout_seconds: float = Field(default=5.0, gt=0)
    """How long one request may take on the wire. The activity's own timeout is longer."""
    key_lifetime_seconds: float = Field(default=86_400.0, gt=0)
    """KEYED: how long the provider remembers a key, by its documentation."""
    key_margin_seconds: float = Field(default=3_600.0, ge=0)
    """KEYED: we stop resending this long before the lifetime ends, for clocks and queues."""
    lookup_horizon_seconds: float = Field(default=15.0, ge=0)
    """Counted from the send: our timeout + its slowest processing + its index lag. "Absent" counts
    only after it, and only twice."""
    lookup_interval_seconds: float = Field(default=2.0, gt=0)
    """The pause between the two look-ups past the horizon; earlier ones back off by doubling."""
    blind_resends: int = Field(default=2, ge=0, le=10)
    """BLIND with ACCEPT_DUPLICATES: how often an unknown send is repeated before we go on."""
    pickup_timeout_seconds: float = Field(default=30.0, gt=0)
    """Steps elsewhere: how long a call waits for one of their workers to take it. Until then
    nothing is sent; afterwards `send_timeout_seconds` runs."""
    heartbeat_timeout_seconds: float | None = Field(default=None, gt=0)
    """Steps elsewhere: a worker that has not beaten for so long is dead. None: it does not beat."""
    patience_seconds: float = Field(default=86_400.0, gt=0)
    """How long a provider that tells nothing is asked before the operation is parked."""

    @model_validator(mode="after")
    def _keeps_its_word(self) -> Self:
        """Raises ValueError for promises that contradict each other: they would park everything."""
        if self.guarantee is Guarantee.KEYED and self.keyed_resend_seconds <= 0:
            raise ValueError(
                f"{self.provider}: a margin of {self.key_margin_seconds:g} s leaves nothing of "
                f"a key's lifetime of {self.key_lifetime_seconds:g} s"
            )
        if self.guarantee is Guarantee.QUERYABLE and not self.can_look_up:
            raise ValueError(
                f"{self.provider}: what cannot be looked up is not queryable but blind"
            )
        return self

    @property
    def keyed_resend_seconds(self) -> float:
        """How long after its first send a request may be repeated under the same key."""
        return max(self.key_lifetime_seconds - self.key_margin_seconds, 0.0)

    def remembers_key(self, *, sent_at: datetime | None, at: datetime) -> bool:
        """Whether a request that leaves `at` finds its key, first sent at `sent_at` (hazard 2)."""
        return sent_at is None or at - sent_at < timedelta(seconds=self.keyed_resend_seconds)
