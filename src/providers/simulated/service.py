"""How a simulated provider describes itself: its forms, its actions, what each one decides."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from providers.simulated.books import Effect, Pages
from providers.simulated.vocabulary import ProviderName
from providers.simulated.wire import Answer, refusal

Text = Annotated[str, Field(max_length=10_000)]
Identifier = Annotated[str, Field(min_length=1, max_length=255)]
Reference = Annotated[str, Field(min_length=1, max_length=64)]
"""What the client calls its request; shown in look-ups and lists."""
Amount = Annotated[StrictInt, Field(gt=0, le=10**15)]
"""Minor units."""
CurrencyCode = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]


class Form(BaseModel):
    """The body of a request. Unknown members are refused: a misspelt one would be lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def own_reference(self) -> str | None:
        """The reference to write into the ledger."""
        return getattr(self, "reference", None)


@dataclass(frozen=True)
class Draft:
    """What an action decided to commit."""

    state: str
    amount: int | None = None
    currency: str | None = None
    target: str | None = None
    target_state: str | None = None
    """The state the target moves to."""


Decision = Draft | Effect | Answer
"""Commit this, or nothing because the effect exists already, or the documented refusal."""


@dataclass(frozen=True)
class Action:
    """One kind of effect."""

    operation: str
    path: str
    """POST performs, GET with `?reference=` looks up."""
    prefix: str
    """Of its identifiers."""
    form: type[Form]
    decide: Callable[[Pages, Any], Decision]
    """Runs inside the transaction that commits its decision."""
    definite_no: Answer
    """What the fault `decline` answers."""
    target_name: str | None = None
    """The member that names what an undo undoes."""
    success_status: int = 201


@dataclass(frozen=True)
class Service:
    """One provider's interface."""

    name: ProviderName
    actions: tuple[Action, ...]
    records_path: str | None
    """Where the list is; None means that nothing can be read."""
    keyed: bool = False
    """Whether `Idempotency-Key` counts."""

    @property
    def operations(self) -> frozenset[str]:
        """What a fault may name."""
        reads = {"look_up", "list"} if self.records_path else set[str]()
        return frozenset({action.operation for action in self.actions} | reads)


def refund_of(
    pages: Pages, provider: str, *, captured: str, operation: str, amount: int, currency: str
) -> Decision:
    """Decide a refund: never more than what was captured, in its currency.

    Documented: 404 `charge_unknown` and 402 `refund_exceeds_charge` are not applied.
    """
    charge = pages.find(provider, captured)
    if charge is None or charge.operation != operation:
        return refusal(404, "charge_unknown", "there is no such charge")
    left = (charge.amount or 0) - pages.undone_amount(charge.id)
    if amount > left or currency != charge.currency:
        return refusal(402, "refund_exceeds_charge", f"at most {left} {charge.currency} is left")
    return Draft(
        state="succeeded",
        amount=amount,
        currency=currency,
        target=charge.id,
        target_state="refunded" if amount == left else "partially_refunded",
    )
