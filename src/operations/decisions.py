"""What to do next about an effect: the decision table of `docs/guarantees.md`, as code. Pure.

A keyed request whose answer is lost is looked up before it is repeated, where its provider's books
can be read: one that has forgotten our key early would do it twice. Not found, it is repeated: the
key is what is promised.

A timer alone never turns an unknown effect into a failed one: time only moves it from sending to
looking up, and from looking up to a person.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from operations.effects import Effect
from operations.guarantees import Guarantee, OnUnknown
from operations.keys import Purpose
from operations.states import EffectState

SENDS_LIMIT = 4
"""How often an effect that proved absent is sent, in all or since a person last said so. A provider
that loses four requests in a row is not going to keep the fifth; a person should look."""

PAUSE_FIRST_SECONDS = 0.25
"""Long enough for a dropped connection to be replaced, short enough that no client notices."""

PAUSE_LIMIT_SECONDS = 300.0
"""Five minutes: a provider that is back is noticed soon, and a day of retries stays far below
Temporal's limit of 51,200 history events."""

RETRY_AFTER_LIMIT_SECONDS = 3_600.0
"""A provider's `Retry-After` is honoured up to an hour; a longer one may be a mistake."""


class MoveKind(StrEnum):
    """What a run does next about an effect."""

    SEND = "send"
    LOOK_UP = "look_up"
    PARK = "park"
    STOP = "stop"
    """There is nothing left to do: the state says how it ended."""


@dataclass(frozen=True, slots=True)
class Move:
    """A kind of move, and how long to wait before making it."""

    kind: MoveKind
    after_seconds: float = 0.0


STOP = Move(MoveKind.STOP)
PARK = Move(MoveKind.PARK)


def next_move(effect: Effect, *, now: datetime, stopping: bool = False) -> Move:
    """What to do next. `stopping`: find out what there is, but begin nothing new (a cancelled or
    compensating operation's action)."""
    match effect.state:
        case EffectState.PLANNED:
            return _when_not_sent(effect, now=now, stopping=stopping)
        case EffectState.SENT | EffectState.UNKNOWN:
            return _when_unknown(effect, now=now, stopping=stopping)
        case EffectState.ABSENT:
            return _when_absent(effect, now=now, stopping=stopping)
        case EffectState.PARKED:
            return PARK
        case EffectState.CONFIRMED | EffectState.REJECTED | EffectState.COMPENSATED:
            return STOP
        case _:
            assert_never(effect.state)


def _when_not_sent(effect: Effect, *, now: datetime, stopping: bool) -> Move:
    if stopping or effect.tombstone:
        return STOP
    if _out_of_patience(effect, now=now):
        return PARK
    return Move(MoveKind.SEND, _pause(effect))


def _when_absent(effect: Effect, *, now: datetime, stopping: bool) -> Move:
    if stopping or effect.tombstone:
        return STOP
    if effect.mismatch or _out_of_patience(effect, now=now):
        return PARK
    if not effect.is_vouched_absent:
        keyed = effect.profile.guarantee is Guarantee.KEYED
        spent = effect.sends - (effect.vouched_sends or 0) >= SENDS_LIMIT
        if spent or (keyed and not _key_lives(effect, now=now)):
            return PARK
    return Move(MoveKind.SEND, _pause(effect))


def _when_unknown(effect: Effect, *, now: datetime, stopping: bool) -> Move:
    held = stopping or effect.tombstone
    profile = effect.profile
    match profile.guarantee:
        case Guarantee.KEYED | Guarantee.NATURAL:
            if not _may_repeat(effect, now=now) or (held and profile.can_look_up):
                return _look_up(effect, now=now)
            if profile.guarantee is Guarantee.KEYED and profile.can_look_up and not effect.looked:
                return Move(MoveKind.LOOK_UP, _pause(effect))
            return Move(MoveKind.SEND, _pause(effect))
        case Guarantee.QUERYABLE:
            return _look_up(effect, now=now)
        case Guarantee.BLIND:
            return _when_nobody_can_tell(effect, now=now, held=held)
        case _:
            assert_never(profile.guarantee)


def _may_repeat(effect: Effect, *, now: datetime) -> bool:
    """Whether the provider's promise makes it safe to repeat a request that may have arrived."""
    if effect.tombstone or not effect.is_repeatable or _out_of_patience(effect, now=now):
        return False
    return effect.profile.guarantee is Guarantee.NATURAL or _key_lives(effect, now=now)


def _when_nobody_can_tell(effect: Effect, *, now: datetime, held: bool) -> Move:
    """A blind provider's unknown: the business's decision, declared with the step."""
    match effect.on_unknown:
        case OnUnknown.ACCEPT_DUPLICATES:
            enough = effect.sends > effect.profile.blind_resends or effect.repeat_refused
            if held or enough or _out_of_patience(effect, now=now):
                return STOP
            return Move(MoveKind.SEND, _pause(effect))
        case OnUnknown.COMPENSATE:
            return STOP if effect.purpose is Purpose.ACTION else PARK
        case OnUnknown.PARK:
            return PARK
        case _:
            assert_never(effect.on_unknown)


def _look_up(effect: Effect, *, now: datetime) -> Move:
    """Look soon, then at the horizon, then once more: "absent" counts twice, past the horizon."""
    if not effect.profile.can_look_up or _out_of_patience(effect, now=now):
        return PARK
    if effect.absences:
        interval = effect.profile.lookup_interval_seconds
        return Move(MoveKind.LOOK_UP, max(interval, _pause(effect)))
    pause = _pause(effect)
    horizon = effect.horizon()
    if horizon is not None and now < horizon:
        pause = max(min(pause, (horizon - now).total_seconds()), _asked_seconds(effect))
    return Move(MoveKind.LOOK_UP, pause)


def _key_lives(effect: Effect, *, now: datetime) -> bool:
    """Whether the provider still remembers our key, for sure, when the next request leaves."""
    leaves = now + timedelta(seconds=_pause(effect))
    return effect.profile.remembers_key(sent_at=effect.sent_at, at=leaves)


def _out_of_patience(effect: Effect, *, now: datetime) -> bool:
    if effect.troubled_since is None:
        return False
    return now - effect.troubled_since >= timedelta(seconds=effect.profile.patience_seconds)


def _pause(effect: Effect) -> float:
    """Doubling from the first failure on; the provider's own `Retry-After` counts if longer."""
    if effect.failures == 0:
        return 0.0
    doubled = PAUSE_FIRST_SECONDS * 2.0 ** min(effect.failures - 1, 20)
    return max(min(doubled, PAUSE_LIMIT_SECONDS), _asked_seconds(effect))


def _asked_seconds(effect: Effect) -> float:
    return min(effect.retry_after_seconds or 0.0, RETRY_AFTER_LIMIT_SECONDS)
