"""Verdicts on their way: from whoever gives one to the effect that waits for it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from operations.contracts import Decision
from operations.keys import Purpose

Slot = tuple[str, Purpose]
"""A step, and which of its effects."""


@dataclass(slots=True)
class Ticket:
    """One verdict that was taken, and what has become of it."""

    decision: Decision
    recorded: bool = False
    """It stands in the ledger."""
    overtaken: bool = False
    """The effect was settled before the verdict could be applied: it changed nothing."""

    @property
    def is_over(self) -> bool:
        """Whether whoever gave it can be told."""
        return self.recorded or self.overtaken


class Verdicts:
    """The verdicts of one run. An effect takes one at a time, and only while it is unsettled."""

    def __init__(self) -> None:
        """Nothing is being settled, and nothing was decided."""
        self._attended: set[Slot] = set()
        self._given: dict[Slot, Ticket] = {}

    def __contains__(self, slot: object) -> bool:
        """Whether there is a verdict to take."""
        return slot in self._given

    @contextmanager
    def attended(self, slot: Slot) -> Generator[None]:
        """While this lasts, somebody takes verdicts about `slot`. Can be nested."""
        if slot in self._attended:
            yield
            return
        self._attended.add(slot)
        try:
            yield
        finally:
            self._attended.discard(slot)
            late = self._given.pop(slot, None)
            if late is not None:
                late.overtaken = True

    def why_not(self, slot: Slot) -> str | None:
        """Why a verdict about `slot` would not be taken now; None when it would be."""
        if slot not in self._attended:
            return f"Nothing about {slot[0]!r} waits for a verdict"
        if slot in self._given:
            return f"A verdict about {slot[0]!r} has just been given"
        return None

    def give(self, decision: Decision) -> Ticket:
        """Leave a verdict for the effect's settling to take at once."""
        ticket = Ticket(decision)
        self._given[decision.step, decision.purpose] = ticket
        return ticket

    def take(self, slot: Slot) -> Ticket | None:
        """The verdict about `slot`, if there is one: it has to be applied now."""
        return self._given.pop(slot, None)
