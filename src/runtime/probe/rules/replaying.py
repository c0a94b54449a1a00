"""The same request again, later: exactness, marking, and who may see the stored answer."""

from runtime.probe.client import Answer
from runtime.probe.rules.judging import difference, expect_effects, replay_mark
from runtime.probe.trial import Trial
from runtime.probe.verdicts import Seen, Severity, Source, fails, passes, rule, skipped, warns

_REPLAYS = 3


@rule(
    "replay",
    "A retry gets the first answer: status, bytes, relevant headers",
    source=Source.STRIPE.value,
)
async def replay(trial: Trial) -> Seen:
    """One request and three identical ones after it."""
    key = trial.new_key()
    first = await trial.first(key)
    for number in range(1, _REPLAYS + 1):
        again = await trial.send(trial.request(key))
        if (told := difference(first, again)) is not None:
            return fails(f"retry {number} got {told}")
    counted = await expect_effects(trial, 1)
    return passes(f"{_REPLAYS} retries got the same {first.status} and bytes; {counted}")


@rule(
    "replay-marked",
    "A replayed answer can be told from a first one",
    source=Source.STRIPE.at("Idempotent-Replayed"),
    severity=Severity.SHOULD,
)
async def replay_marked(trial: Trial) -> Seen:
    """A header such as Idempotent-Replayed on the replay, and not on the first answer."""
    key = trial.new_key()
    first = await trial.send(trial.request(key))
    if trial.is_in_progress(first):
        await trial.first(key)
    mark = replay_mark(await trial.send(trial.request(key)))
    if mark is None:
        return fails("no header marks the replay")
    if replay_mark(first) is not None:
        return fails(f"{mark} marks the first answer too")
    return passes(f"{mark} marks the replay and not the first answer")


@rule(
    "tenant-isolation",
    "The same key of another tenant is another key",
    source=Source.DRAFT.at("section 5"),
)
async def tenant_isolation(trial: Trial) -> Seen:
    """The same key and content from two tenants."""
    other = trial.configuration.other_tenant
    if other is None:
        return skipped("other_tenant is not configured")
    key = trial.new_key()
    first = await trial.first(key)
    theirs = await trial.settle(
        trial.request(key, headers=dict(other.headers)), conflict_is_progress=False
    )
    if not theirs.succeeded:
        return fails(f"the other tenant was answered {theirs.status} for a key new to it")
    return _judge_isolation(first, theirs, counted=await trial.effects(2))


def _judge_isolation(first: Answer, theirs: Answer, *, counted: int | None) -> Seen:
    if counted == 2:
        return passes("two tenants, one key: 2 effects counted")
    if replay_mark(theirs) is not None or (theirs.body == first.body and counted is not None):
        return fails("the other tenant received the first tenant's answer")
    if theirs.body == first.body:
        return warns("both tenants got the same bytes, and effects were not counted")
    if counted is None:
        return passes("the other tenant got an answer of its own; effects were not counted")
    return warns(f"answers differ, but {counted} counted: does the count show both tenants?")


@rule(
    "replay-authorised",
    "A stored answer is not shown without credentials",
    source=Source.HTTP.at("section 15.5.2"),
)
async def replay_authorised(trial: Trial) -> Seen:
    """The same request without its credential headers."""
    target = trial.configuration.target
    credentials = {name.lower() for name in target.credential_headers}
    if not credentials & {name.lower() for name in target.headers}:
        return skipped("no credential header is configured")
    key = trial.new_key()
    first = await trial.first(key)
    bare = await trial.send(trial.request(key, headers=dict.fromkeys(target.credential_headers)))
    if bare.succeeded or bare.body == first.body:
        return fails(f"a retry without credentials was answered {bare.status}")
    if bare.status not in (401, 403):
        return warns(f"a retry without credentials was answered {bare.status}, not 401 or 403")
    return passes(f"a retry without credentials was answered {bare.status}")


@rule(
    "status-readable",
    "A finished operation can be read by its key",
    source=Source.HTTP.at("section 15.3.3"),
    severity=Severity.SHOULD,
)
async def status_readable(trial: Trial) -> Seen:
    """GET of the configured status."""
    key = trial.new_key()
    await trial.first(key)
    status = await trial.read_status(key, headers={})
    if status is None:
        return skipped("status is not configured")
    if not status.succeeded:
        return fails(f"the status of a finished operation was answered {status.status}")
    return passes(f"the status of a finished operation was answered {status.status}")


@rule(
    "status-isolation",
    "Another tenant cannot read an operation",
    source=Source.HTTP.at("section 15.5.4"),
)
async def status_isolation(trial: Trial) -> Seen:
    """GET of the configured status by the other tenant."""
    other = trial.configuration.other_tenant
    if other is None or trial.configuration.status is None:
        return skipped("other_tenant or status is not configured")
    key = trial.new_key()
    await trial.first(key)
    status = await trial.read_status(key, headers=other.headers)
    if status is None or status.succeeded:
        return fails("another tenant could read the operation")
    return passes(f"another tenant was answered {status.status}")
