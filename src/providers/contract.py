"""What every provider client offers, real or simulated. One contract test holds them all to it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from operations.guarantees import ProviderProfile


class ProviderRecord(BaseModel):
    """One effect as the provider's own books have it."""

    model_config = ConfigDict(frozen=True)

    id: str
    """The provider's identifier."""
    action: str
    """What was done: `charge`, `refund`, `reserve`, `release`, `book`, `cancel`, `send`."""
    reference: str | None
    """Our derived key, as the provider recorded it."""
    amount_minor: int | None = None
    currency: str | None = None
    target: str | None = None
    """For an undo: the provider's identifier of what it undoes."""
    state: str
    """The provider's own word, such as `succeeded`, `reserved`, `cancelled`."""
    created_at: datetime


class RecordPage(BaseModel):
    """A bounded page of records, oldest first."""

    model_config = ConfigDict(frozen=True)

    records: tuple[ProviderRecord, ...]
    next_cursor: str | None
    """Where the next page starts; None on the last one."""


class Provider(Protocol):
    """A client of one provider account. Safe to share between tasks; close it when done."""

    @property
    def profile(self) -> ProviderProfile:
        """What this provider promises."""
        ...

    def freeze(self, action: str, request: Mapping[str, Any]) -> bytes:
        """The exact bytes that will be sent for `request`, now and on every resend.

        Deterministic. Raises ValueError for an unknown action or a request it cannot express.
        """
        ...

    async def perform(self, action: str, *, key: str, body: bytes) -> ProviderRecord:
        """Send `body` once, under our `key`: its idempotency key, or the reference in its books.

        An undo of what the provider has undone already succeeds too; its record then is the first
        undo's, under that one's reference, and what counts is its `target`.

        Raises Declined, Unavailable, EffectUnknown (operations.errors). Never retries by itself.
        """
        ...

    async def look_up(self, action: str, *, key: str) -> tuple[ProviderRecord, ...]:
        """What the provider's books show for our key: none may mean "not yet".

        Raises Unavailable when the books could not be read.
        """
        ...

    async def list_records(
        self, *, since: datetime, until: datetime, cursor: str | None, limit: int
    ) -> RecordPage:
        """Records created in [since, until), for reconciliation. Raises Unavailable."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...
