"""Requests that overlap, and clients that go away."""

import asyncio
from email.utils import parsedate_to_datetime

from runtime.probe.rules.judging import content_difference, expect_effects
from runtime.probe.trial import Trial
from runtime.probe.verdicts import Seen, Severity, Source, fails, passes, rule, skipped, warns

_DRAFT_IN_PROGRESS = frozenset({202, 409, 425})


@rule(
    "race",
    "Simultaneous first requests have one effect and one answer",
    source=Source.DRAFT.at("section 2.6"),
    alone=True,
)
async def race(trial: Trial) -> Seen:
    """All of N first requests at once, several rounds."""
    limits = trial.configuration.limits
    busy = 0
    for _ in range(limits.race_rounds):
        key = trial.new_key()
        answers = await trial.send_together([trial.request(key)] * limits.race_requests)
        finished = [answer for answer in answers if not trial.is_in_progress(answer)]
        busy += len(answers) - len(finished)
        if wrong := [answer.status for answer in finished if not answer.succeeded]:
            return fails(f"an identical request at the same moment was answered {wrong[0]}")
        for answer in finished[1:]:
            if (told := content_difference(finished[0], answer)) is not None:
                return fails(f"two of the simultaneous requests got different answers: {told}")
        await trial.first(key)
    total = limits.race_rounds * limits.race_requests
    counted = await expect_effects(trial, limits.race_rounds)
    return passes(
        f"{limits.race_rounds} keys, {total} requests, {busy} told to come back; {counted}"
    )


@rule(
    "in-progress",
    "A duplicate during the first run waits, or is told to come back",
    source=Source.DRAFT.at("section 2.6"),
    alone=True,
)
async def in_progress(trial: Trial) -> Seen:
    """A second request in the middle of the first."""
    request = trial.request(trial.new_key())
    running = asyncio.create_task(trial.settle(request))
    try:
        await asyncio.sleep(trial.service.usual_seconds / 2)
        second = await trial.send(request)
        first = await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    counted = await expect_effects(trial, 1)
    if trial.is_in_progress(second):
        seen = f"the duplicate was answered {second.status}; {counted}"
        return passes(seen) if second.status in _DRAFT_IN_PROGRESS else warns(seen)
    if not second.succeeded:
        return fails(
            f"the duplicate was answered {second.status}, which is not among in_progress.statuses"
        )
    if (told := content_difference(first, second)) is not None:
        # It may have come when the first was over: then it got what every retry gets.
        if content_difference(second, await trial.send(request)) is None:
            return passes(f"the duplicate was answered as retries are: see `replay`; {counted}")
        return fails(f"the duplicate got an answer of its own: {told}")
    return passes(f"the duplicate got the first one's answer; {counted}")


@rule(
    "in-progress-retry-after",
    "An answer that says “still running” says when to come back",
    source=Source.HTTP.at("section 10.2.3"),
    severity=Severity.SHOULD,
    alone=True,
)
async def in_progress_retry_after(trial: Trial) -> Seen:
    """The Retry-After of any in-progress answer in a race."""
    key = trial.new_key()
    requests = [trial.request(key)] * trial.configuration.limits.race_requests
    busy = [a for a in await trial.send_together(requests) if trial.is_in_progress(a)]
    if not busy:
        return skipped("no duplicate was told to come back")
    for answer in busy:
        value = answer.header("retry-after")
        if value is None:
            return fails(f"{answer.status} came without Retry-After")
        if not _is_retry_after(value):
            return fails(f"Retry-After is {value!r}: neither seconds nor a date")
    return passes(f"{len(busy)} answers said {busy[0].status} with Retry-After")


@rule(
    "disconnect",
    "A client that hangs up and retries causes one effect",
    source=Source.DRAFT.at("section 1"),
    alone=True,
)
async def disconnect(trial: Trial) -> Seen:
    """Hang up within the request, right after it, and at random moments of the run; then retry."""
    number = trial.configuration.limits.disconnects
    for attempt in range(number):
        key = trial.new_key()
        share = trial.random.uniform(0.1, 0.95) if attempt % 3 == 0 else 1.0
        longest_seconds = trial.service.usual_seconds if attempt % 3 == 2 else 0.0
        wait_seconds = trial.random.uniform(0.0, longest_seconds)
        await trial.service.client.hang_up(
            trial.request(key), sent_share=share, wait_seconds=wait_seconds
        )
        retried = await trial.settle(trial.request(key))
        if not retried.succeeded:
            return fails(f"the retry after a lost connection was answered {retried.status}")
    counted = await expect_effects(trial, number)
    return passes(f"{number} clients hung up and retried; {counted}")


def _is_retry_after(value: str) -> bool:
    if value.isascii() and value.isdecimal():
        return True
    try:
        parsedate_to_datetime(value)
    except ValueError:
        return False
    return True
