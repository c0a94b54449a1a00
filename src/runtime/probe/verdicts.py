"""What a rule is, and what the probe says about it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from runtime.probe.trial import Trial


class Severity(StrEnum):
    """How bad it is to break a rule."""

    MUST = "must"
    """Effects are doubled, lost or shown to others, or the answer is untrue."""
    SHOULD = "should"
    """Safe, but a client has to guess."""


class Outcome(StrEnum):
    """How one rule ended."""

    PASSED = "pass"
    FAILED = "fail"
    WARNED = "warn"
    SKIPPED = "skipped"


class Source(StrEnum):
    """Where rules come from."""

    DRAFT = "IETF draft-ietf-httpapi-idempotency-key-header"
    HTTP = "RFC 9110"
    PROBLEMS = "RFC 9457"
    FIELDS = "RFC 9651"
    JSON = "RFC 8259"
    STRIPE = "Stripe API reference, idempotent requests"

    def at(self, place: str) -> str:
        """This source with a section, or several."""
        return f"{self.value}, {place}"


@dataclass(frozen=True)
class Seen:
    """What a rule saw: an outcome and one sentence."""

    outcome: Outcome
    reason: str


def passes(reason: str) -> Seen:
    """The rule holds."""
    return Seen(Outcome.PASSED, reason)


def fails(reason: str) -> Seen:
    """The rule is broken."""
    return Seen(Outcome.FAILED, reason)


def warns(reason: str) -> Seen:
    """Nothing is broken, but somebody should know."""
    return Seen(Outcome.WARNED, reason)


def skipped(reason: str) -> Seen:
    """The rule could not be tried."""
    return Seen(Outcome.SKIPPED, reason)


@dataclass(frozen=True)
class Rule:
    """One rule and the trial that decides it."""

    id: str
    title: str
    source: str
    severity: Severity
    try_out: Callable[[Trial], Awaitable[Seen]]
    alone: bool
    """Whether it is about timing, so that no other rule may run beside it."""


@dataclass(frozen=True)
class Verdict:
    """The judgement on one rule. A broken SHOULD is a warning."""

    rule: Rule
    outcome: Outcome
    reason: str
    seconds: float

    @classmethod
    def of(cls, rule: Rule, seen: Seen, *, seconds: float) -> "Verdict":
        """What `seen` means for `rule`, given its severity."""
        outcome = seen.outcome
        if outcome is Outcome.FAILED and rule.severity is Severity.SHOULD:
            outcome = Outcome.WARNED
        return cls(rule, outcome, seen.reason, seconds)


@dataclass(frozen=True)
class Findings:
    """All verdicts on one service."""

    url: str
    verdicts: tuple[Verdict, ...]
    requests: int
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether no MUST is broken."""
        return all(verdict.outcome is not Outcome.FAILED for verdict in self.verdicts)

    def count(self, outcome: Outcome) -> int:
        """How many verdicts ended like this."""
        return sum(verdict.outcome is outcome for verdict in self.verdicts)


def rule(
    identifier: str,
    title: str,
    *,
    source: str,
    severity: Severity = Severity.MUST,
    alone: bool = False,
) -> Callable[[Callable[[Trial], Awaitable[Seen]]], Rule]:
    """Make a rule of an async function that takes a trial and says what it saw."""

    def make(try_out: Callable[[Trial], Awaitable[Seen]]) -> Rule:
        return Rule(identifier, title, source, severity, try_out, alone)

    return make
