"""How an operation is declared: its request, its steps, and the business's decisions about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from operations.guarantees import OnUnknown, ProviderProfile
from operations.keys import checked_name

RETENTION_DAYS_DEFAULT = 30
RETENTION_DAYS_MIN = 1
"""A client's retries go on for hours, so an answer is kept for a day at least."""


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
    """For a step that is itself an undo, such as a refund: the field that names its target."""
    required: bool = True
    """False: its definite refusal is recorded and the operation goes on."""
    task_queue: str | None = None
    """Where another team's worker performs it, if not in ours."""
    activity: str | None = None
    """That worker's activity, by name."""
    profile: ProviderProfile | None = None
    """What the provider of a step elsewhere promises: we have no client that could say so."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether another team's worker performs it."""
        return self.activity is not None

    def what_contradicts(self) -> str | None:
        """What is wrong with the declaration, in a sentence; None when it can be kept."""
        where = (self.task_queue, self.activity, self.profile)
        if any(where) and not all(where):
            return "a step elsewhere names its queue, its activity and its profile"
        if self.profile is not None and self.profile.provider != self.provider:
            return f"the profile is that of {self.profile.provider}, not of {self.provider}"
        if self.profile is not None and _horizon_is_short(self.profile):
            return "the horizon is shorter than a call may wait and take: absent would not be so"
        blind_undo = self.undo is not None and self.undo.by_reference
        if self.on_unknown is OnUnknown.COMPENSATE and not blind_undo:
            return "what is unknown is undone by reference only"
        if self.takes_back is not None and self.undo is not None:
            return "what takes back another effect is not undone itself"
        return None


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

    def __post_init__(self) -> None:
        """Raises ValueError when the name cannot be used, or the retention is too short."""
        checked_name(self.name)
        if self.retention_days < RETENTION_DAYS_MIN:
            raise ValueError(f"{self.name}: an answer is kept for {RETENTION_DAYS_MIN} day or more")


@dataclass(frozen=True, slots=True)
class SagaOperation(OperationDeclaration):
    """It calls somebody outside, in a Temporal run."""

    steps: tuple[Step, ...] = field(default=())

    def __post_init__(self) -> None:
        """Raises ValueError when the declaration contradicts itself."""
        OperationDeclaration.__post_init__(self)
        names = [step.name for step in self.steps]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"{self.name}: steps need names of their own, got {names}")
        if sum(step.pivot for step in self.steps) > 1:
            raise ValueError(f"{self.name}: there can be one pivot at most")
        for step in self.steps:
            if contradiction := step.what_contradicts():
                raise ValueError(f"{self.name}.{step.name}: {contradiction}")
        for step in self._behind_pivot():
            if step.on_unknown is OnUnknown.COMPENSATE:
                raise ValueError(
                    f"{self.name}.{step.name}: COMPENSATE would undo the operation, and after the "
                    "pivot it only goes forward. Put the step before the pivot, or declare PARK, "
                    "or ACCEPT_DUPLICATES where it only informs"
                )

    def step(self, name: str) -> Step:
        """The step called `name`. Raises KeyError."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)

    @property
    def pivot(self) -> Step | None:
        """The step after which there is only forward, if one is."""
        return next((step for step in self.steps if step.pivot), None)

    def _behind_pivot(self) -> tuple[Step, ...]:
        return () if self.pivot is None else self.steps[self.steps.index(self.pivot) + 1 :]

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that our own clients call, in order, each once."""
        here = (step.provider for step in self.steps if not step.is_elsewhere)
        return tuple(dict.fromkeys(here))

    @property
    def profiles_elsewhere(self) -> dict[str, ProviderProfile]:
        """What the providers of steps elsewhere promise, by provider."""
        profiles = (step.profile for step in self.steps if step.profile is not None)
        return {profile.provider: profile for profile in profiles}


@dataclass(frozen=True, slots=True)
class LocalOperation(OperationDeclaration):
    """Its whole effect is rows in our own database: one transaction, no run."""


Operation = SagaOperation | LocalOperation


def _horizon_is_short(profile: ProviderProfile) -> bool:
    """Whether "not found" could count before a request sent elsewhere has left for certain."""
    longest_seconds = profile.pickup_timeout_seconds + profile.send_timeout_seconds
    return profile.can_look_up and profile.lookup_horizon_seconds < longest_seconds


def by_name(*operations: Operation) -> dict[str, Operation]:
    """The operations by their names. Raises ValueError when two share one."""
    named = {operation.name: operation for operation in operations}
    if len(named) != len(operations):
        raise ValueError(f"Two operations share a name: {sorted(op.name for op in operations)}")
    return named
