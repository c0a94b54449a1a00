"""What several rules ask: did it happen again, is this the same answer, are these two keys?"""

from dataclasses import dataclass
from enum import Enum

from runtime.probe.client import Answer, CutOffError
from runtime.probe.trial import KeyLines, RuleBrokenError, Trial

_REPLAYED_HEADERS = (
    "content-type",
    "content-encoding",
    "content-language",
    "location",
    "link",
    "etag",
)


async def expect_effects(trial: Trial, expected: int) -> str:
    """A clause for a reason: what was counted. Raises RuleBrokenError for any other number."""
    counted = await trial.effects(expected)
    if counted is None:
        return "effects were not counted"
    if counted != expected:
        raise RuleBrokenError(f"{_effects(counted)} counted, {expected} expected")
    return f"{_effects(counted)} counted"


async def happened_again(trial: Trial, first: Answer, second: Answer) -> bool:
    """Whether `second` stands for an effect of its own, by the count or else by its bytes."""
    counted = await trial.effects(1)
    if counted is None:
        return second.succeeded and second.body != first.body
    return counted > 1


def difference(first: Answer, second: Answer) -> str | None:
    """What a client could tell apart in two answers; None when nothing."""
    if (told := content_difference(first, second)) is not None:
        return told
    for name in _REPLAYED_HEADERS:
        if second.header(name) != first.header(name):
            return f"another {name} header" if name in dict(second.headers) else f"no {name} header"
    return None


def content_difference(first: Answer, second: Answer) -> str | None:
    """As `difference`, without headers: for rules that are about something else."""
    if second.status != first.status:
        return f"status {second.status} instead of {first.status}"
    if second.body != first.body:
        return f"other bytes ({len(second.body)} instead of {len(first.body)})"
    return None


def replay_mark(answer: Answer) -> str | None:
    """The header that marks `answer` as a replay, if any: its name has "replay" in it."""
    for name, value in answer.headers:
        if "replay" in name and value.strip().strip("?").lower() in ("true", "1", "yes"):
            return name
    return None


class Relation(Enum):
    """How a service takes two keys."""

    REFUSED = "refused"
    INDEPENDENT = "independent"
    SAME = "same"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Related:
    """A relation and the clause that says what was seen."""

    relation: Relation
    seen: str


async def relate(trial: Trial, first_key: KeyLines, second_key: KeyLines) -> Related:
    """Send two different contents under two keys: one key would refuse or replay the second."""
    try:
        first = await trial.settle(trial.request(first_key))
    except CutOffError:
        return Related(Relation.REFUSED, "the connection was closed")
    if not first.succeeded:
        return Related(Relation.REFUSED, f"answered {first.status}")
    second_request = trial.request(second_key, trial.bodies.changed)
    second = await trial.settle(second_request, conflict_is_progress=False)
    if not second.succeeded:
        return Related(Relation.SAME, f"the second was answered {second.status}")
    counted = await trial.effects(2)
    if counted is None:
        told_apart = second.body != first.body
        relation = Relation.INDEPENDENT if told_apart else Relation.UNKNOWN
        return Related(relation, "effects were not counted")
    relation = Relation.INDEPENDENT if counted == 2 else Relation.SAME
    return Related(relation, f"{_effects(counted)} counted for two requests")


def _effects(number: int) -> str:
    return f"{number} effect" + ("" if number == 1 else "s")
