"""What refusals look like."""

from typing import cast

from runtime.probe.client import Answer
from runtime.probe.trial import Key, Trial
from runtime.probe.verdicts import Seen, Severity, Source, fails, passes, rule, skipped


@rule(
    "problem-documents",
    "Refusals are problem documents",
    source=Source.PROBLEMS.at("section 3"),
    severity=Severity.SHOULD,
)
async def problem_documents(trial: Trial) -> Seen:
    """The refusals of a missing key and of other content."""
    missing = await trial.send(trial.request(Key.ABSENT))
    key = trial.new_key()
    await trial.first(key)
    other = await trial.send(trial.request(key, trial.bodies.changed))
    refusals = [answer for answer in (missing, other) if answer.refused]
    if not refusals:
        return skipped("nothing was refused")
    for answer in refusals:
        if (complaint := _complaint(answer)) is not None:
            return fails(f"{answer.status}: {complaint}")
    return passes(f"{len(refusals)} refusals were problem documents")


def _complaint(answer: Answer) -> str | None:
    media_type = (answer.header("content-type") or "none").split(";")[0].strip().lower()
    if media_type != "application/problem+json":
        return f"the media type is {media_type}"
    document = answer.document()
    if not isinstance(document, dict):
        return "the body is not a JSON object"
    members = cast("dict[str, object]", document)
    if members.get("status", answer.status) != answer.status:
        return f"its status member says {members['status']}"
    if "title" not in members and "type" not in members:
        return "it has neither type nor title"
    return None
