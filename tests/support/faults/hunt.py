"""`make mutants`: the service without one of its guards; the suite has to notice every one."""

from rich.console import Console
from rich.table import Table

from support.checker.report import Outcome
from support.directories import open_directory
from support.faults import mutants, neighbours, plan
from support.faults.play import Player
from support.faults.rig import Rig

HUNTED_BY: dict[str, tuple[str, ...]] = {
    "attempt-in-the-derived-key": ("send.replied:raise@keyed",),
    "refund-without-a-lookup": ("cancelled-while-unknown",),
    "negative-lookup-trusted-at-once": ("look-ups-that-lag",),
    "unknown-becomes-failed-by-a-timer": ("look-ups-that-lag",),
    "undo-registered-after-the-action": ("cancelled-while-unknown",),
    "allow-duplicate-runs": ("run.starting:hang",),
    "receipt-outside-the-business-transaction": ("completion.committed:kill",),
    "fingerprint-not-compared-when-attaching": ("look-ups-that-lag",),
    "webhook-without-its-unique-row": ("webhook.committed:raise",),
    "reconciliation-skips-completed-operations": ("findings.committed:raise",),
}
"""The scenarios of the suite that are played against each mutant: those that its fault needs."""


async def hunt(pattern: str, console: Console) -> int:
    """Plant each mutant, play its scenarios; 1 when one of them was not noticed."""
    named = {one.name: one for one in plan.whole(0, pairs=0)}
    caught: dict[str, tuple[str, ...]] = {}
    chosen = [name for name in mutants.names() if pattern in {"*", name}]
    for mutant in chosen:
        outcomes: list[Outcome] = []
        with open_directory() as directory:
            async with Rig(directory, mutants=(mutant,), settings=neighbours.settings()) as rig:
                player = Player(rig, replay=False)
                await player.prepare()
                outcomes += [await player.play(named[name]) for name in HUNTED_BY[mutant]]
        caught[mutant] = tuple(line for one in outcomes for line in one.violations)
        console.print(f"{mutant}: {'caught' if caught[mutant] else 'NOT CAUGHT'}")
        for line in caught[mutant][:3]:
            console.print(f"    {line}", markup=False)
    table = Table(title="mutants")
    for head in ("mutant", "scenario", "caught by invariant"):
        table.add_column(head)
    for mutant, lines in caught.items():
        invariants = sorted({int(line.split(":", 1)[0]) for line in lines})
        by = ", ".join(str(number) for number in invariants) or "NOT CAUGHT"
        table.add_row(mutant, ", ".join(HUNTED_BY[mutant]), by)
    console.print(table)
    return 0 if all(caught.values()) else 1
