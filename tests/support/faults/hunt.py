"""`make mutants`: the service without one of its guards; the suite has to notice every one."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from support.faults import plan
from support.faults.lanes import player_on_a_rig

HUNTED_BY: dict[str, tuple[str, frozenset[int]]] = {
    "attempt-in-the-derived-key": ("send.replied:raise@keyed", frozenset({2, 7, 8})),
    "refund-without-a-lookup": ("cancelled-while-unknown", frozenset({3})),
    "negative-lookup-trusted-at-once": ("look-ups-that-lag", frozenset({2})),
    "unknown-becomes-failed-by-a-timer": ("look-ups-that-lag", frozenset({3})),
    "undo-registered-after-the-action": ("cancelled-while-unknown", frozenset({3})),
    "allow-duplicate-runs": ("run.starting:hang", frozenset({2})),
    "receipt-outside-the-business-transaction": ("completion.committed:kill", frozenset({1})),
    "fingerprint-not-compared-when-attaching": ("look-ups-that-lag", frozenset({4})),
    "webhook-without-its-unique-row": ("webhook.committed:raise", frozenset({13})),
    "reconciliation-skips-completed-operations": ("findings.committed:raise", frozenset({11})),
}
"""The scenario of the suite that is played against each mutant (the one that its fault needs), and
the invariants that have to be violated: a service that merely stands still is not caught."""


@dataclass(frozen=True)
class Hunted:
    """A mutant, and what the suite noticed of it."""

    mutant: str
    scenario: str
    noticed: tuple[str, ...]
    """Violations of the invariants that it has to violate."""
    otherwise: tuple[str, ...]
    """What else was wrong or missing."""

    @property
    def is_caught(self) -> bool:
        """Whether the suite noticed it."""
        return bool(self.noticed)

    @property
    def invariants(self) -> tuple[int, ...]:
        """By which it was noticed."""
        return tuple(sorted({int(line.split(":", 1)[0]) for line in self.noticed}))


async def hunt(mutants: Sequence[str], *, lanes: int, console: Console) -> list[Hunted]:
    """Plant each of `mutants` in a service of its own and play its scenario, several at a time."""
    gate = asyncio.Semaphore(lanes)

    async def one(mutant: str) -> Hunted:
        async with gate:
            hunted = await _hunt_one(mutant)
        _tell(hunted, console)
        return hunted

    return list(await asyncio.gather(*(one(mutant) for mutant in mutants)))


async def _hunt_one(mutant: str) -> Hunted:
    scenario, wanted = HUNTED_BY[mutant]
    named = {one.name: one for one in plan.whole(0, pairs=0)}
    async with player_on_a_rig(mutants=(mutant,), replay=False) as player:
        outcome = await player.play(named[scenario])
    noticed = tuple(v for v in outcome.violations if int(v.split(":", 1)[0]) in wanted)
    others = tuple(v for v in outcome.violations if v not in noticed)
    return Hunted(mutant, scenario, noticed, (*outcome.missing, *others))


def _tell(hunted: Hunted, console: Console) -> None:
    console.print(f"{hunted.mutant}: {'caught' if hunted.is_caught else 'NOT CAUGHT'}")
    for line in (hunted.noticed or hunted.otherwise)[:3]:
        console.print(f"    {line}", markup=False)


def print_hunted(caught: Sequence[Hunted], console: Console) -> None:
    """For a terminal."""
    table = Table(title="mutants")
    for head in ("mutant", "scenario", "caught by invariant"):
        table.add_column(head)
    for one in caught:
        by = ", ".join(str(number) for number in one.invariants) or "NOT CAUGHT"
        table.add_row(one.mutant, one.scenario, by)
    console.print(table)
