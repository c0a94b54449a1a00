"""Look-ups and lists: the JSON form of a record, windows and cursors."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from providers.simulated.books import Effect
from providers.simulated.service import Service
from providers.simulated.wire import from_us, to_us

PAGE_MAX = 1_000


class Window(BaseModel):
    """The query of a list: records created in [since, until), oldest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: AwareDatetime
    until: AwareDatetime
    cursor: Annotated[str | None, Field(pattern=r"^\d{1,18}-\d{1,18}$")] = None
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = 100

    @property
    def after(self) -> tuple[int, int] | None:
        """The keyset behind which the page starts."""
        if self.cursor is None:
            return None
        created_us, _, seq = self.cursor.partition("-")
        return int(created_us), int(seq)

    @property
    def bounds_us(self) -> tuple[int, int]:
        """The window in microseconds since 1970."""
        return to_us(self.since), to_us(self.until)


class ByReference(BaseModel):
    """The query of a look-up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reference: Annotated[str, Field(min_length=1, max_length=64)]


def cursor_after(effect: Effect) -> str:
    """Where the next page starts."""
    return f"{effect.created_us}-{effect.seq}"


def record_of(service: Service, effect: Effect) -> Mapping[str, Any]:
    """What the provider shows of an effect."""
    record: dict[str, Any] = {
        "id": effect.id,
        "type": effect.operation,
        "reference": effect.reference,
        "amount": effect.amount,
        "currency": effect.currency,
        "state": effect.state,
        "created_at": from_us(effect.created_us),
    }
    for action in service.actions:
        if action.operation == effect.operation and action.target_name is not None:
            record[action.target_name] = effect.target
    return record


def ledger_row(effect: Effect) -> Mapping[str, Any]:
    """What the admin interface shows of an effect."""
    return {
        "seq": effect.seq,
        "id": effect.id,
        "provider": effect.provider,
        "operation": effect.operation,
        "reference": effect.reference,
        "key": effect.key,
        "amount": effect.amount,
        "currency": effect.currency,
        "state": effect.state,
        "target": effect.target,
        "created_at": from_us(effect.created_us),
    }
