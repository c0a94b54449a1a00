"""A step that another team's worker performs, in a process that imports nothing of ours."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime.settings import Settings
from support.parcels import TASK_QUEUE
from support.service import RunningService, running_service
from support.world import World

PROGRAM = Path(__file__).parents[1] / "support" / "remote_worker.py"
SEND = "parcels.send"


@dataclass
class Elsewhere:
    """The other team's worker, as a child process, and its books."""

    address: str
    books: Path
    process: asyncio.subprocess.Process | None = None

    def rows(self) -> list[dict[str, Any]]:
        """What it has really done."""
        lines = self.books.read_text().splitlines() if self.books.exists() else []
        return [json.loads(line) for line in lines]

    async def start(self) -> None:
        """Start it, and wait until it polls."""
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(PROGRAM), self.address, TASK_QUEUE, str(self.books)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert await asyncio.wait_for(self.process.stdout.readline(), 30) == b"ready\n"

    async def kill(self) -> None:
        """End it at once."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@pytest.fixture
async def elsewhere(temporal_address: str, tmp_path: Path) -> AsyncGenerator[Elsewhere]:
    """The other team, not at work yet."""
    team = Elsewhere(temporal_address, tmp_path / "books.jsonl")
    yield team
    await team.kill()


@pytest.fixture
async def parcels(settings: Settings, tenant: str) -> AsyncGenerator[RunningService]:
    """A service that also offers the team's operation."""
    offered = settings.model_copy(update={"extra_operations": ("support.parcels",)})
    async with running_service(offered, tenant=tenant) as running:
        yield running


async def test_whatever_becomes_of_the_answer_the_effect_happens_once(
    parcels: RunningService, elsewhere: Elsewhere, world: World
) -> None:
    await elsewhere.start()
    wishes = ("mugs", "lost-reply", "silence", "nonsense")
    answers = await asyncio.gather(
        *(parcels.submit(SEND, wish, {"parcel": wish}, wait=30) for wish in wishes)
    )
    assert [answer.status_code for answer in answers] == [201] * 4, answers[0].text
    done = elsewhere.rows()
    assert sorted(row["request"]["parcel"] for row in done) == sorted(wishes)
    assert {row["id"] for row in done} == {answer.json()["parcel_id"] for answer in answers}
    assert all(row["key"] == row["request"]["reference"] for row in done)
    resource = await parcels.settled(SEND, "lost-reply")
    step = resource["steps"][0]
    assert (step["provider"], step["guarantee"]) == ("parcels", "queryable")
    assert (step["state"], step["attempts"]) == ("confirmed", 1)


async def test_a_definite_no_is_an_answer_and_a_later_failure_is_undone_there(
    parcels: RunningService, elsewhere: Elsewhere, world: World
) -> None:
    await elsewhere.start()
    refused = await parcels.submit(SEND, "no", {"parcel": "forbidden"}, wait=30)
    assert (refused.status_code, refused.json()["code"]) == (402, "forbidden_goods")
    unpaid = await parcels.submit(
        SEND, "unpaid", {"parcel": "mugs", "card": "tok_declined"}, wait=30
    )
    assert unpaid.status_code == 424
    assert unpaid.json()["type"] == "/problems/compensated"
    sent, recalled = elsewhere.rows()
    assert (sent["action"], recalled["action"]) == ("dispatch", "recall")
    assert recalled["request"]["parcel_id"] == sent["id"]
    assert recalled["key"] != sent["key"]


async def test_a_call_that_no_worker_took_has_not_happened_and_is_made_again(
    parcels: RunningService, elsewhere: Elsewhere, world: World
) -> None:
    await parcels.submit(SEND, "early", {"parcel": "mugs"}, wait=0)
    async with asyncio.timeout(20):
        while True:
            step = (await parcels.http.get(f"/v1/operations/{SEND}/early?wait=5")).json()["steps"][
                0
            ]
            if "No worker" in (step["reason"] or ""):
                break
    assert step["state"] == "planned", "what nobody took is not unknown"
    await elsewhere.start()
    done = await parcels.settled(SEND, "early")
    assert done["outcome"] == "succeeded"
    assert [row["id"] for row in elsewhere.rows()] == [done["result"]["body"]["parcel_id"]]
