"""The same key with the same content written otherwise, or with other content."""

from runtime.probe.client import Answer
from runtime.probe.rules.judging import difference, expect_effects, happened_again
from runtime.probe.trial import Trial
from runtime.probe.verdicts import Seen, Source, fails, passes, rule, skipped, warns


@rule(
    "changed-body",
    "A key with other content is refused and has no effect",
    source=f"{Source.DRAFT.at('section 2.7')}; {Source.STRIPE.value}",
)
async def changed_body(trial: Trial) -> Seen:
    """One key, two meanings. The draft asks for 422, Stripe answers 400; any 4xx is safe."""
    key = trial.new_key()
    first = await trial.first(key)
    other = await trial.send(trial.request(key, trial.bodies.changed))
    if not other.refused:
        what = "ran as well" if await happened_again(trial, first, other) else "got the old answer"
        return fails(f"the changed request {what} ({other.status})")
    counted = await expect_effects(trial, 1)
    note = "as the draft says" if other.status == 422 else "the draft says 422"
    return passes(f"refused with {other.status} ({note}); {counted}")


@rule(
    "original-after-refusal",
    "A refused reuse leaves the first answer in place",
    source=Source.STRIPE.value,
)
async def original_after_refusal(trial: Trial) -> Seen:
    """First content, other content, first content, other content."""
    key = trial.new_key()
    first = await trial.first(key)
    if not (await trial.send(trial.request(key, trial.bodies.changed))).refused:
        return skipped("other content is not refused: see changed-body")
    again = await trial.send(trial.request(key))
    if again.status >= 400:
        return fails(f"after the refusal, the original request was answered {again.status}")
    if await happened_again(trial, first, again):
        return fails("after the refusal, the original request ran again")
    repeated = await trial.send(trial.request(key, trial.bodies.changed))
    if not repeated.refused:
        return fails(f"the same other content was answered {repeated.status} the second time")
    return passes(f"the original was replayed, the other content refused ({repeated.status})")


@rule(
    "changed-body-after-error",
    "Other content does not get the stored error of the first",
    source=Source.STRIPE.value,
)
async def changed_body_after_error(trial: Trial) -> Seen:
    """A request that runs and fails, then other content under its key."""
    failing = trial.bodies.failing
    if failing is None:
        return skipped("body.failing is not configured")
    key = trial.new_key()
    failed = await trial.settle(trial.request(key, failing), conflict_is_progress=False)
    if not failed.refused:
        return skipped(f"body.failing was answered {failed.status}, not with an error")
    other = await trial.settle(trial.request(key), conflict_is_progress=False)
    if difference(failed, other) is None:
        return fails(f"other content got the stored {failed.status}")
    if other.refused:
        return passes(f"after {failed.status}, other content was refused with {other.status}")
    counted = await expect_effects(trial, 1)
    return passes(f"after {failed.status}, the key was free again: {other.status}; {counted}")


@rule(
    "retry-after-validation-error",
    "A corrected request is not answered with the old validation error",
    source=Source.STRIPE.value,
)
async def retry_after_validation_error(trial: Trial) -> Seen:
    """A request that validation refuses, then the corrected one under the same key."""
    key = trial.new_key()
    invalid = await trial.send(trial.request(key, trial.bodies.invalid))
    if not invalid.refused:
        return skipped(f"the invalid request was answered {invalid.status}: set body.invalid")
    corrected = await trial.settle(trial.request(key), conflict_is_progress=False)
    if difference(invalid, corrected) is None:
        return fails(f"the corrected request got the stored {invalid.status}")
    if corrected.refused:
        await expect_effects(trial, 0)
        return passes(f"the corrected request was refused as other content ({corrected.status})")
    counted = await expect_effects(trial, 1)
    return passes(
        f"after {invalid.status}, the corrected request got {corrected.status}; {counted}"
    )


@rule(
    "member-order",
    "Member order does not make another request",
    source=Source.JSON.at("section 4"),
)
async def member_order(trial: Trial) -> Seen:
    """The same members in reverse order."""
    return await _same_content(trial, trial.bodies.reordered, refusal_is_usual=False)


@rule(
    "white-space",
    "White space does not make another request",
    source=Source.JSON.at("section 2"),
)
async def white_space(trial: Trial) -> Seen:
    """The same document, indented."""
    return await _same_content(trial, trial.bodies.spaced, refusal_is_usual=False)


@rule(
    "number-forms",
    "1 and 1.0 are replayed or refused, never run twice",
    source=Source.JSON.at("section 6"),
)
async def number_forms(trial: Trial) -> Seen:
    """An integer written with a fraction of zero."""
    respelled = trial.bodies.respelled
    if respelled is None:
        return skipped("body.number is not configured")
    return await _same_content(trial, respelled, refusal_is_usual=True)


@rule(
    "large-numbers",
    "Numbers beyond 2^53 are not confused",
    source=Source.JSON.at("section 6"),
)
async def large_numbers(trial: Trial) -> Seen:
    """Two integers that are one 64-bit float."""
    one, two = trial.bodies.large(0), trial.bodies.large(1)
    if one is None or two is None:
        return skipped("body.number is not configured")
    key = trial.new_key()
    first = await trial.settle(trial.request(key, one), conflict_is_progress=False)
    if not first.succeeded:
        return skipped(f"numbers of this size are refused ({first.status})")
    second = await trial.send(trial.request(key, two))
    if second.refused:
        return passes(f"the other number was refused with {second.status}")
    if await happened_again(trial, first, second):
        return fails(f"the other number ran under the same key ({second.status})")
    return fails("two different numbers were taken for one: the old answer was replayed")


@rule(
    "duplicate-members",
    "A member named twice is refused",
    source=Source.JSON.at("section 4"),
)
async def duplicate_members(trial: Trial) -> Seen:
    """The duplicate has the usual value last; parsers differ on which one counts."""
    key = trial.new_key()
    first = await trial.first(key)
    twice = await trial.send(trial.request(key, trial.bodies.duplicated))
    if not twice.refused and await happened_again(trial, first, twice):
        return fails("a member named twice made the same key run again")
    fresh = await trial.settle(trial.request(trial.new_key(), trial.bodies.duplicated))
    if fresh.refused:
        return passes(f"refused with {fresh.status}")
    return warns(f"accepted ({fresh.status}): which of the two values counts is left to the parser")


@rule(
    "query-string",
    "Another query string does not get the old answer",
    source=Source.HTTP.at("section 7.1"),
)
async def query_string(trial: Trial) -> Seen:
    """The same body and key under a different target URI."""
    key = trial.new_key()
    first = await trial.first(key)
    meaningful = trial.configuration.body.meaningful_query
    other = await trial.send(trial.request(key, query=meaningful or "probe=1"))
    return await _judge_query(trial, first, other, meaningful=meaningful is not None)


async def _judge_query(trial: Trial, first: Answer, other: Answer, *, meaningful: bool) -> Seen:
    if other.refused:
        return passes(f"refused with {other.status}")
    if await happened_again(trial, first, other):
        return fails("another query string made the same key run again")
    if meaningful:
        return fails("a query string that changes the meaning got the old answer")
    return warns("an unknown query parameter got the old answer: set body.meaningful_query")


async def _same_content(trial: Trial, variant: bytes, *, refusal_is_usual: bool) -> Seen:
    key = trial.new_key()
    first = await trial.first(key)
    again = await trial.send(trial.request(key, variant))
    if await happened_again(trial, first, again):
        return fails(f"the other spelling ran again ({again.status})")
    if again.succeeded:
        return passes(f"replayed ({again.status})")
    if refusal_is_usual:
        return passes(f"refused with {again.status}, and no second effect")
    return warns(f"refused with {again.status}: safe, but a client that re-encodes cannot retry")
