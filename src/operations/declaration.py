"""How an operation is declared: its request, its steps, and the business's decisions about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from operations.guarantees import OnUnknown

RETENTION_DAYS_DEFAULT = 30
SAFE_NAME = r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$"


class Request(BaseModel):
    """What a client sends. Unknown members are refused: they might change the meaning."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Answer(BaseModel):
    """What a client gets when the operation succeeds."""

    model_config = ConfigDict(frozen=True)


@dataclass(frozen=True, slots=True)
class Undo:
    """How a confirmed step is taken back."""

    action: str
    target: str
    """The request field that names what is undone: it gets the provider's own reference."""
    carries: tuple[str, ...] = ()
    """Fields of the action's request that the undo repeats."""
    by_reference: bool = False
    """Whether `target` takes our reference instead: then even what is unknown can be undone."""

    def request(self, *, provider_reference: str, forward: Mapping[str, Any]) -> dict[str, Any]:
        """The undo's request, for the effect the provider knows as `provider_reference`."""
        carried = {name: forward[name] for name in self.carries if name in forward}
        return {self.target: provider_reference, **carried}


@dataclass(frozen=True, slots=True)
class Step:
    """One effect at one provider."""

    name: str
    provider: str
    action: str
    undo: Undo | None = None
    on_unknown: OnUnknown = OnUnknown.PARK
    pivot: bool = False
    """After this step succeeded there is no way back, only forward."""
    takes_back: str | None = None
    """For a step that is itself an undo, such as a refund: the request field that names its target."""
    required: bool = True
    """False: its definite refusal is recorded and the operation goes on."""
    task_queue: str | None = None
    """Where another team's worker performs it, if not in ours."""
    activity: str | None = None
    """That worker's activity, by name."""


@dataclass(frozen=True, slots=True)
class OperationDeclaration:
    """What every kind of operation declares."""

    name: str
    title: str
    request: type[Request]
    answer: type[Answer]
    example: Mapping[str, Any]
    success_status: int = 201
    retention_days: int = RETENTION_DAYS_DEFAULT


@dataclass(frozen=True, slots=True)
class SagaOperation(OperationDeclaration):
    """It calls somebody outside, in a Temporal run."""

    steps: tuple[Step, ...] = field(default=())

    def __post_init__(self) -> None:
        """Raises ValueError when the declaration contradicts itself."""
        names = [step.name for step in self.steps]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"{self.name}: steps need names of their own, got {names}")
        if sum(step.pivot for step in self.steps) > 1:
            raise ValueError(f"{self.name}: there can be one pivot at most")
        for step in self.steps:
            if (step.task_queue is None) != (step.activity is None):
                raise ValueError(
                    f"{self.name}.{step.name}: a step elsewhere names queue and activity"
                )
            blind_undo = step.undo is not None and step.undo.by_reference
            if step.on_unknown is OnUnknown.COMPENSATE and not blind_undo:
                raise ValueError(
                    f"{self.name}.{step.name}: what is unknown is undone by reference only"
                )

    def step(self, name: str) -> Step:
        """The step called `name`. Raises KeyError."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers it calls, in order, each once."""
        return tuple(dict.fromkeys(step.provider for step in self.steps))


@dataclass(frozen=True, slots=True)
class LocalOperation(OperationDeclaration):
    """Its whole effect is rows in our own database: one transaction, no run."""


Operation = SagaOperation | LocalOperation
