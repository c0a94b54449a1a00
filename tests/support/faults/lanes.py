"""Lanes: rigs side by side, each with a Postgres, a Temporal, providers and a service of its own.

A scenario is mostly waiting for timeouts: while one waits, others use the processor.
"""

import asyncio
import os
import re
import shutil
import time
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runtime.embedded.errors import EmbeddedError
from support.checker.report import Outcome
from support.directories import open_directory
from support.faults import neighbours
from support.faults.plan import Scenario
from support.faults.play import Player
from support.faults.rig import Rig

PER_CORE = 2
"""A scenario keeps a core busy for a third of its time. With more lanes, timeouts would strike
where nothing was to strike."""

LANES_MAX = 8
"""Each takes some 600 MB."""


def lanes_of_this_machine() -> int:
    """How many scenarios to play at a time."""
    return min(PER_CORE * (os.cpu_count() or 1), LANES_MAX)


@asynccontextmanager
async def player_on_a_rig(
    *, mutants: tuple[str, ...] = (), replay: bool = True
) -> AsyncGenerator[Player]:
    """A player on a rig of its own, which is gone afterwards."""
    with open_directory() as directory:
        async with Rig(directory, mutants=mutants, settings=neighbours.settings()) as rig:
            player = Player(rig, replay=replay)
            await player.prepare()
            yield player


@dataclass
class Lanes:
    """Plays scenarios, several at a time, until all are played or the time is over."""

    scenarios: Sequence[Scenario]
    count: int
    seconds_max: float
    tell: Callable[[Outcome, "Lanes"], None]
    keep_bad_in: Path
    """Gets evidence and logs of what went wrong."""
    began: float = field(default_factory=time.monotonic)
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])

    async def play(self) -> tuple[Outcome, ...]:
        """The outcomes, in the scenarios' order."""
        waiting = deque(self.scenarios)
        async with asyncio.TaskGroup() as lanes:
            for _ in range(min(self.count, len(waiting))):
                lanes.create_task(self._lane_or_none(waiting))
        return tuple(self.outcomes[s.name] for s in self.scenarios if s.name in self.outcomes)

    def seconds_left(self) -> float:
        """An estimate, from the pace so far."""
        mean = sum(one.seconds for one in self.outcomes.values()) / len(self.outcomes)
        return mean * (len(self.scenarios) - len(self.outcomes)) / self.count

    async def _lane_or_none(self, waiting: deque[Scenario]) -> None:
        """A lane whose stack does not start leaves its scenarios to the others."""
        try:
            await self._lane(waiting)
        except EmbeddedError:
            traceback.print_exc()

    async def _lane(self, waiting: deque[Scenario]) -> None:
        """Play what waits. After a scenario that went wrong, go on with a fresh rig."""
        while self._goes_on(waiting):
            async with player_on_a_rig() as player:
                is_good = True
                while is_good and self._goes_on(waiting):
                    is_good = await self._play_one(player, waiting.popleft())

    async def _play_one(self, player: Player, scenario: Scenario) -> bool:
        outcome = await player.play(scenario)
        self.outcomes[scenario.name] = outcome
        if not outcome.is_good:
            self._keep(player, scenario)
        self.tell(outcome, self)
        return outcome.is_good

    def _goes_on(self, waiting: deque[Scenario]) -> bool:
        return bool(waiting) and time.monotonic() - self.began < self.seconds_max

    def _keep(self, player: Player, scenario: Scenario) -> None:
        place = self.keep_bad_in / re.sub(r"[^\w.@+-]+", "-", scenario.name)
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(player.rig.directory / "data" / "logs", place)
        if player.evidence_file.exists():
            shutil.copy(player.evidence_file, place)
