"""Tries the rules on a service, within bounds, after making sure that it can be tried at all."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from runtime.probe.client import Answer, BudgetSpentError, Client, NoAnswerError, UnreachableError
from runtime.probe.configuration import Configuration
from runtime.probe.trial import (
    EffectsUnreadableError,
    RateLimitedError,
    RuleBrokenError,
    Service,
    Trial,
)
from runtime.probe.verdicts import Findings, Rule, Seen, Verdict, fails, skipped

# A request may be held for one whole operation, and the service may wait as long for another one.
_TIMEOUT_OPERATIONS = 2.0
# Counting is a GET, several per rule: beside the bound on what is sent to the endpoint under test.
_COUNTS_PER_REQUEST = 10
_EXCERPT_CHARACTERS = 200
# The first request pays for warming up, which would mislead the rules that aim at its middle.
_BASELINE_REQUESTS = 2


class CannotRunError(Exception):
    """The service cannot be tried: it is unreachable, or an ordinary request does not work."""


async def probe_service(
    url: str,
    configuration: Configuration,
    *,
    rules: Sequence[Rule],
    progress: Callable[[Verdict], None],
) -> Findings:
    """Try `rules` on the service at `url`; `progress` is called after each.

    Raises CannotRunError, with what to do about it.
    """
    started = time.monotonic()
    service = _service(url, configuration)
    service = replace(service, usual_seconds=await _baseline(service))
    deadline = started + configuration.limits.total_seconds
    gate = asyncio.Semaphore(configuration.limits.rules_at_once)

    async def judge(rule: Rule) -> Verdict:
        async with gate:
            verdict = await _judge(service, rule, deadline=deadline)
        progress(verdict)
        return verdict

    alone = {rule.id: await judge(rule) for rule in rules if rule.alone}
    others = await asyncio.gather(*(judge(rule) for rule in rules if not rule.alone))
    judged = alone | {verdict.rule.id: verdict for verdict in others}
    return Findings(
        url=url,
        verdicts=tuple(judged[rule.id] for rule in rules),
        requests=service.client.sent_requests,
        seconds=time.monotonic() - started,
    )


def _service(url: str, configuration: Configuration) -> Service:
    timeout_seconds = configuration.target.operation_seconds * _TIMEOUT_OPERATIONS
    budget = configuration.limits.requests
    try:
        client = Client(url, timeout_seconds=timeout_seconds, budget_requests=budget)
        effects_client = None
        if (effects := configuration.effects) is not None:
            effects_client = Client(
                url if effects.url.startswith("/") else effects.url,
                timeout_seconds=timeout_seconds,
                budget_requests=budget * _COUNTS_PER_REQUEST,
            )
    except ValueError as error:
        raise CannotRunError(str(error)) from error
    prefix = urlsplit(url).path.rstrip("/")
    return Service(configuration, client, effects_client, prefix)


async def _baseline(service: Service) -> float:
    """How long one ordinary operation takes, in seconds; each must succeed and be counted once."""
    seconds: list[float] = []
    try:
        async with Trial(service, label="baseline") as trial:
            for _ in range(_BASELINE_REQUESTS):
                started = time.monotonic()
                answer = await trial.settle(trial.request(trial.new_key()))
                seconds.append(time.monotonic() - started)
                if not answer.succeeded:
                    raise CannotRunError(_not_usable(answer))
            counted = await trial.effects(_BASELINE_REQUESTS)
    except UnreachableError as error:
        raise CannotRunError(f"cannot connect to {error}") from error
    except (NoAnswerError, RuleBrokenError, RateLimitedError) as error:
        raise CannotRunError(f"an ordinary request got no usable answer: {error}") from error
    except EffectsUnreadableError as error:
        raise CannotRunError(f"effects cannot be counted: {error}") from error
    if counted not in (None, _BASELINE_REQUESTS):
        raise CannotRunError(
            f"{_BASELINE_REQUESTS} ordinary requests were counted as {counted} effects: "
            "check [effects], or stop whatever else uses the service"
        )
    return min(seconds)


def _not_usable(answer: Answer) -> str:
    excerpt = answer.body[:_EXCERPT_CHARACTERS].decode("utf-8", "replace")
    return (
        f"an ordinary request was answered {answer.status} ({excerpt}): "
        "check target.headers and body.template"
    )


async def _judge(service: Service, rule: Rule, *, deadline: float) -> Verdict:
    started = time.monotonic()
    seen = await _seen(service, rule, deadline=deadline)
    return Verdict.of(rule, seen, seconds=time.monotonic() - started)


async def _seen(service: Service, rule: Rule, *, deadline: float) -> Seen:
    remaining_seconds = deadline - time.monotonic()
    if remaining_seconds <= 0:
        return skipped("limits.total_seconds had passed")
    try:
        async with asyncio.timeout(remaining_seconds), Trial(service, label=rule.id) as trial:
            return await rule.try_out(trial)
    except RuleBrokenError as error:
        return fails(str(error))
    except (NoAnswerError, UnreachableError, EffectsUnreadableError) as error:
        return fails(f"the service stopped answering: {error}")
    except (BudgetSpentError, RateLimitedError) as error:
        return skipped(str(error))
    except TimeoutError:
        return skipped("limits.total_seconds passed during this rule")
