"""What was told to go wrong, and for how many requests."""

from dataclasses import dataclass, replace
from itertools import count
from threading import Lock
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from providers.simulated.vocabulary import FaultMode, ProviderName

SECONDS_MAX = 3_600.0
"""An hour: longer than any test waits, short enough that a forgotten fault ends by itself."""

ARMED_MAX = 1_000
"""More armed faults than this are a runaway script."""


class FaultOrder(BaseModel):
    """The body of `POST /admin/faults`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: ProviderName
    operation: str = "*"
    """An action of the provider, `look_up`, `list`, or `*` for all of them."""
    mode: FaultMode
    times: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """How many requests use it up. Of no meaning to `refuse_connection`, which ends by time."""
    seconds: Annotated[float, Field(ge=0, le=SECONDS_MAX)] = 1.0
    """One second by default, an hour at most."""

    @model_validator(mode="after")
    def _refusal_is_for_the_whole_port(self) -> Self:
        if self.mode is FaultMode.REFUSE_CONNECTION and self.operation != "*":
            raise ValueError("refuse_connection closes the whole port: its operation must be *")
        return self


@dataclass(frozen=True)
class Fault:
    """One armed fault."""

    id: str
    order: FaultOrder
    left: int
    """How many requests it still meets."""

    def as_document(self) -> dict[str, Any]:
        """Its JSON form, as the admin interface shows it."""
        return {"id": self.id, **self.order.model_dump(mode="json"), "left": self.left}


class FaultBook:
    """The armed faults, oldest first, in memory: a restart of the process forgets them.

    Safe to share between threads: forgotten keys are taken by the ledger's writer.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._armed: dict[str, Fault] = {}
        self._lock = Lock()
        self._numbers = count(1)

    def arm(self, order: FaultOrder) -> Fault:
        """Add a fault. Raises OverflowError when `ARMED_MAX` are armed."""
        with self._lock:
            if len(self._armed) >= ARMED_MAX:
                raise OverflowError(f"{ARMED_MAX} faults are armed: DELETE /admin/faults first")
            fault = Fault(id=f"fault_{next(self._numbers)}", order=order, left=order.times)
            self._armed[fault.id] = fault
            return fault

    def take(
        self, provider: ProviderName, operation: str, *, modes: frozenset[FaultMode]
    ) -> FaultOrder | None:
        """Use the oldest armed fault of these modes once, if one matches."""
        with self._lock:
            for fault in self._armed.values():
                order = fault.order
                if (
                    order.provider is provider
                    and order.mode in modes
                    and order.operation in ("*", operation)
                ):
                    self._use(fault)
                    return order
        return None

    def _use(self, fault: Fault) -> None:
        if fault.left == 1:
            del self._armed[fault.id]
        else:
            self._armed[fault.id] = replace(fault, left=fault.left - 1)

    def drop(self, fault_id: str) -> None:
        """Forget one fault, if it is still armed."""
        with self._lock:
            self._armed.pop(fault_id, None)

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._armed.clear()

    def armed(self) -> tuple[Fault, ...]:
        """What is armed, oldest first."""
        with self._lock:
            return tuple(self._armed.values())
