"""What a provider promises about a repeated request, and what we do when an outcome is unknown."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


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
    """The pause between two look-ups at the horizon; earlier ones back off from a tenth of it."""
    blind_resends: int = Field(default=2, ge=0, le=10)
    """BLIND with ACCEPT_DUPLICATES: how often an unknown send is repeated before we go on."""
    patience_seconds: float = Field(default=86_400.0, gt=0)
    """How long an unavailable provider is retried before the operation is parked."""

    @property
    def keyed_resend_seconds(self) -> float:
        """How long after its first send a request may be repeated under the same key."""
        return max(self.key_lifetime_seconds - self.key_margin_seconds, 0.0)
