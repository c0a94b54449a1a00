"""The closed sets and the settings of the simulated world."""

from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class ProviderName(StrEnum):
    """The simulated partners."""

    PAYMENTS = "payments"
    ACQUIRER = "acquirer"
    WAREHOUSE = "warehouse"
    CARRIER = "carrier"
    MAIL = "mail"


class Temperament(StrEnum):
    """How far the acquirer's own records can be trusted."""

    CONSISTENT = "consistent"
    """A committed record can be read at once."""
    LAGGING = "lagging"
    """A record becomes readable `ACQUIRER_LAG_SECONDS` after its commit."""
    BLIND = "blind"
    """Look-ups and lists answer 501."""


class FaultMode(StrEnum):
    """What can go wrong. For reads, the modes that speak of a commit only lose the answer."""

    DECLINE = "decline"
    """Answers the provider's documented definite no. On reads it does nothing."""
    REFUSE_CONNECTION = "refuse_connection"
    """Closes the provider's port at once, cuts its connections, and reopens after `seconds`."""
    DROP_BEFORE_COMMIT = "drop_before_commit"
    """Reads the request, commits nothing, resets the connection."""
    COMMIT_THEN_DROP = "commit_then_drop"
    """Commits, then resets the connection."""
    COMMIT_THEN_500 = "commit_then_500"
    """Commits, then answers 500. A KEYED provider stores the true answer under the key."""
    SLOW = "slow"
    """Commits at once, answers after `seconds`."""
    LATE_COMMIT = "late_commit"
    """Resets at once, commits `seconds` later. The key is `in_progress` in between. What is still
    to be committed when the process ends is lost."""
    LOOKUP_LAG = "lookup_lag"
    """Records made by the next `times` requests stay out of look-ups and lists for `seconds`."""
    RATE_LIMIT = "rate_limit"
    """Answers 429 with `Retry-After: seconds`, rounded up. Not applied, the key stays unused."""
    KEY_FORGOTTEN = "key_forgotten"
    """The next `times` requests with an already stored key find it forgotten."""


READS = frozenset({"look_up", "list"})
"""The operations of every readable provider that commit nothing."""

ACQUIRER_LAG_SECONDS = 2.0
"""Long enough that an immediate look-up misses, short enough for tests, inside every horizon."""

Port = int


class WorldConfig(BaseModel):
    """Where the world listens and keeps its ledger. Port 0 picks a free one."""

    model_config = ConfigDict(frozen=True)

    ledger: Path
    """An SQLite file, made when absent."""
    host: str = "127.0.0.1"
    admin_port: Port = Field(default=0, ge=0, le=65535)
    payments_port: Port = Field(default=0, ge=0, le=65535)
    acquirer_port: Port = Field(default=0, ge=0, le=65535)
    warehouse_port: Port = Field(default=0, ge=0, le=65535)
    carrier_port: Port = Field(default=0, ge=0, le=65535)
    mail_port: Port = Field(default=0, ge=0, le=65535)
    temperament: Temperament = Temperament.CONSISTENT
    """The acquirer's."""
    key_lifetime_seconds: float = Field(default=86_400.0, gt=0)
    """How long KEYED providers remember a key: a day, as is common among card processors."""
    bearer_token: str | None = None
    """Checked by the providers (not by the admin interface) when set."""
    announce: Path | None = None
    """A file that gets the bound addresses as JSON once everything listens."""

    def port_of(self, provider: ProviderName) -> int:
        """The configured port of `provider`."""
        return {
            ProviderName.PAYMENTS: self.payments_port,
            ProviderName.ACQUIRER: self.acquirer_port,
            ProviderName.WAREHOUSE: self.warehouse_port,
            ProviderName.CARRIER: self.carrier_port,
            ProviderName.MAIL: self.mail_port,
        }[provider]
