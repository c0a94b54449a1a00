"""A fixed, short selection of `make faults`: an API, a worker and a receipt that are lost."""

from pathlib import Path

import pytest

from support.faults.plan import short
from support.faults.play import Player
from support.faults.rig import Rig


@pytest.mark.timeout(240)
async def test_what_dies_on_the_way_has_one_effect_and_one_answer(data_dir: Path) -> None:
    async with Rig(data_dir) as rig:
        player = Player(rig)
        await player.prepare()
        outcomes = [await player.play(scenario) for scenario in short()]

    bad = {one.scenario: (*one.missing, *one.violations) for one in outcomes if not one.is_good}
    assert bad == {}
    assert all(one.fired == 1 for one in outcomes)
