"""The contract of remote steps, as `docs/remote-steps.md` shows it to other teams."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from operations.contracts import Kind, StepAnswer, StepCall

PAGE = (Path(__file__).parents[2] / "docs" / "remote-steps.md").read_text()
BLOCKS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def answers() -> list[dict[str, Any]]:
    return [json.loads(line) for block in BLOCKS[1:] for line in block.splitlines()]


def test_the_call_on_the_page_is_one_that_we_make() -> None:
    document = json.loads(BLOCKS[0])
    call = StepCall.model_validate(document)
    made = json.loads(call.model_dump_json())
    for part in ("effect", "profile"):
        assert document[part].items() <= made[part].items()
    assert json.loads(document["effect"]["frozen_body"]) == document["effect"]["request"]


def test_every_answer_on_the_page_is_one_that_we_read() -> None:
    now = datetime.now(UTC)
    read = [StepAnswer.model_validate({**answer, "at": now}) for answer in answers()]
    assert {answer.kind for answer in read} == set(Kind) - {Kind.FENCED}
    known = set(StepAnswer.model_fields)
    assert all(answer.keys() <= known for answer in answers())
