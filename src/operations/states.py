"""The closed sets of states, and which of them follow each other. `docs/states.md` draws them."""

from enum import StrEnum


class ClaimState(StrEnum):
    """Where an operation stands, for clients and operators."""

    ACCEPTED = "accepted"
    """Claimed; its steps are being performed."""
    PARKED = "parked"
    """A person, or the provider's records, must decide. Never expires."""
    COMPENSATING = "compensating"
    """What was done is being undone."""
    DONE = "done"
    """It has a receipt."""
    EXPIRED = "expired"
    """Its receipt is gone; the key stays spent."""

    @property
    def is_open(self) -> bool:
        """Whether a run still has to end it."""
        return self in OPEN_STATES


OPEN_STATES = frozenset({ClaimState.ACCEPTED, ClaimState.PARKED, ClaimState.COMPENSATING})


class Outcome(StrEnum):
    """How a done operation ended."""

    SUCCEEDED = "succeeded"
    DECLINED = "declined"
    """A definite no before anything was done."""
    COMPENSATED = "compensated"
    """A later step failed, and what was done has been undone."""
    CANCELLED = "cancelled"
    """Somebody cancelled it, and what was done has been undone."""
    ABANDONED = "abandoned"
    """An operator gave up on a step, with evidence."""


class EffectState(StrEnum):
    """What we know about one effect at a provider."""

    PLANNED = "planned"
    """Never sent."""
    SENT = "sent"
    """Committed before the request leaves, so from here on it may exist."""
    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    """The provider's definite no."""
    UNKNOWN = "unknown"
    """The answer is lost or says nothing. Only records or a person turn it into something else."""
    ABSENT = "absent"
    """Looked up in vain, twice, past the horizon; or a person said so."""
    PARKED = "parked"
    """A person must decide."""
    COMPENSATED = "compensated"
    """Confirmed, and undone since."""


class Verdict(StrEnum):
    """What an operator, or a provider's record, says about a step."""

    CONFIRMED = "confirmed"
    """It exists, under the given provider reference."""
    ABSENT = "absent"
    """It does not exist."""
    RETRY = "retry"
    """Ask the provider again."""
    ABANDON = "abandon"
    """Give up: undo what is known, leave this as it is."""


_NEXT: dict[EffectState, frozenset[EffectState]] = {
    EffectState.PLANNED: frozenset(
        {EffectState.SENT, EffectState.CONFIRMED, EffectState.REJECTED, EffectState.UNKNOWN}
        | {EffectState.PARKED, EffectState.ABSENT}
    ),
    EffectState.SENT: frozenset(
        {EffectState.PLANNED, EffectState.CONFIRMED, EffectState.REJECTED, EffectState.UNKNOWN}
        | {EffectState.PARKED, EffectState.ABSENT}
    ),
    EffectState.UNKNOWN: frozenset(
        {EffectState.SENT, EffectState.CONFIRMED, EffectState.REJECTED, EffectState.ABSENT}
        | {EffectState.PARKED, EffectState.COMPENSATED}
    ),
    EffectState.PARKED: frozenset(
        {EffectState.SENT, EffectState.CONFIRMED, EffectState.REJECTED, EffectState.ABSENT}
        | {EffectState.UNKNOWN, EffectState.PLANNED}
    ),
    EffectState.ABSENT: frozenset(
        {EffectState.SENT, EffectState.CONFIRMED, EffectState.REJECTED, EffectState.UNKNOWN}
        | {EffectState.PARKED}
    ),
    EffectState.CONFIRMED: frozenset({EffectState.COMPENSATED}),
    EffectState.REJECTED: frozenset({EffectState.PARKED}),
    EffectState.COMPENSATED: frozenset(),
}


def may_follow(state: EffectState, successor: EffectState) -> bool:
    """Whether an effect in `state` may become `successor`. Staying is always allowed.

    `SENT → PLANNED` is the documented "not applied": the request left and nothing happened.
    `PARKED → PLANNED` goes on with what was never sent: its provider was away for too long.
    No other state becomes `PLANNED` again: what may have been sent stays so.
    `UNKNOWN → COMPENSATED` is an undo by our own reference, whether or not there was anything.
    `ABSENT → CONFIRMED` is the late success (hazard 5). `REJECTED → PARKED` is a refusal that
    leaves no way on: of an undo, or of a required step after the pivot.
    """
    return state is successor or successor in _NEXT[state]


def predecessors(successor: EffectState) -> tuple[EffectState, ...]:
    """Every state that may become `successor`, itself included: for a conditional UPDATE."""
    return tuple(state for state in EffectState if may_follow(state, successor))
