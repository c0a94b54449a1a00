"""`make mutants`: the service without one of its guards; the suite has to notice every one."""

from fnmatch import fnmatch

from rich.console import Console
from rich.table import Table

from support.checker.report import Outcome
from support.directories import open_directory
from support.faults import mutants, neighbours, plan
from support.faults.play import Player
from support.faults.rig import Rig

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


async def hunt(pattern: str, console: Console) -> int:
    """Plant each mutant, play its scenarios; 1 when one of them was not noticed."""
    named = {one.name: one for one in plan.whole(0, pairs=0)}
    caught: dict[str, tuple[str, ...]] = {}
    chosen = [name for name in mutants.names() if fnmatch(name, pattern)]
    for mutant in chosen:
        scenario, wanted = HUNTED_BY[mutant]
        with open_directory() as directory:
            async with Rig(directory, mutants=(mutant,), settings=neighbours.settings()) as rig:
                player = Player(rig, replay=False)
                await player.prepare()
                outcome: Outcome = await player.play(named[scenario])
        found = [line for line in outcome.violations if int(line.split(":", 1)[0]) in wanted]
        caught[mutant] = tuple(found)
        console.print(f"{mutant}: {'caught' if caught[mutant] else 'NOT CAUGHT'}")
        for line in (caught[mutant] or (*outcome.missing, *outcome.violations))[:3]:
            console.print(f"    {line}", markup=False)
    table = Table(title="mutants")
    for head in ("mutant", "scenario", "caught by invariant"):
        table.add_column(head)
    for mutant, lines in caught.items():
        invariants = sorted({int(line.split(":", 1)[0]) for line in lines})
        by = ", ".join(str(number) for number in invariants) or "NOT CAUGHT"
        table.add_row(mutant, HUNTED_BY[mutant][0], by)
    console.print(table)
    return 0 if all(caught.values()) else 1
