"""How the forward path of a run can end without success. Values of control flow, never failures."""

from operations.contracts import CancelRequest, Decision, RunEnd
from operations.effects import Effect
from operations.states import Outcome


class Ending(Exception):
    """The forward path is over; what was done has to be undone."""

    outcome: Outcome

    def __init__(self, detail: str, *, step: str | None = None, code: str | None = None) -> None:
        """Keep `detail`, a sentence for the client, and the step it is about."""
        super().__init__(detail)
        self.detail = detail
        self.step = step
        self.code = code


class Refused(Ending):
    """A provider definitely refused a required step."""

    outcome = Outcome.DECLINED

    @classmethod
    def by(cls, effect: Effect) -> "Refused":
        """The ending that a rejected effect brings about."""
        reason = effect.reason or "no reason given"
        return cls(
            f"The step {effect.step!r} was refused by {effect.profile.provider}: {reason}",
            step=effect.step,
            code=effect.code,
        )


class OutcomeUnknown(Ending):
    """A blind step's outcome cannot be known, and the operation declares to compensate then."""

    outcome = Outcome.COMPENSATED


class Cancelled(Ending):
    """Somebody asked to cancel, before the pivot."""

    outcome = Outcome.CANCELLED

    @classmethod
    def by(cls, request: CancelRequest) -> "Cancelled":
        """The ending that a wish to cancel brings about."""
        return cls(f"Cancelled by {request.requested_by or 'an operator'}: {request.reason}")


class Abandoned(Ending):
    """An operator gave up on a step."""

    outcome = Outcome.ABANDONED
    undoing = False
    """Whether an earlier run had begun to undo the others."""

    @classmethod
    def by(cls, verdict: Decision, *, undoing: bool = False) -> "Abandoned":
        """The ending that such a verdict brings about."""
        ending = cls(f"An operator gave up on the step {verdict.step!r}", step=verdict.step)
        ending.undoing = undoing
        return ending


class Fenced(Ending):
    """An earlier run of this operation went on to compensate: so does this one."""

    outcome = Outcome.COMPENSATED


class AlreadyDone(Exception):
    """The operation has its receipt; this run has nothing left to do."""

    def __init__(self, end: RunEnd) -> None:
        """Keep how it ended."""
        super().__init__(end.outcome)
        self.end = end
