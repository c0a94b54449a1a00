"""Failpoints: named places where a test makes a process die, freeze or fail.

They are armed by environment variables only, read once when this module is imported:

    TALLYSTICK_FAILPOINT=name:nth:mode[,name:nth:mode…]     mode: kill, hang, raise
    TALLYSTICK_FAILPOINT_LOG=FILE                           gets a line for each one that fired
    TALLYSTICK_FAILPOINT_HANG_SECONDS=30                    how long `hang` freezes the process

`nth` counts the hits of that name in one process, from 1. Each entry fires once in all processes
that share the log: a child that is started again reads there that it has fired already.

Not armed, `fail_at` is a function that does nothing; nothing is looked up, counted or opened.
"""

import fcntl
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, assert_never

VARIABLE = "TALLYSTICK_FAILPOINT"
LOG_VARIABLE = "TALLYSTICK_FAILPOINT_LOG"
HANG_VARIABLE = "TALLYSTICK_FAILPOINT_HANG_SECONDS"

HANG_SECONDS_DEFAULT = 30.0
"""Longer than every timeout around a step, so that others have taken over when it ends."""

ARMED_MAX = 16


class Failpoint(StrEnum):
    """Every place there is. `-ing` is just before it, `-ed` just after."""

    CLAIM_COMMITTING = "claim.committing"
    CLAIM_COMMITTED = "claim.committed"
    LOCAL_COMMITTING = "local.committing"
    LOCAL_COMMITTED = "local.committed"
    RUN_STARTING = "run.starting"
    RUN_STARTED = "run.started"
    ANSWER_SENDING = "answer.sending"
    RELAY_TAKING = "relay.taking"
    RELAY_TAKEN = "relay.taken"
    RELAY_RECOVERING = "relay.recovering"
    RELAY_RECOVERED = "relay.recovered"
    SEND_RECORDING = "send.recording"
    SEND_RECORDED = "send.recorded"
    SEND_LEAVING = "send.leaving"
    SEND_REPLIED = "send.replied"
    SEND_TAKING_BACK = "send.taking_back"
    SEND_TAKEN_BACK = "send.taken_back"
    UNDO_LEAVING = "undo.leaving"
    UNDO_REPLIED = "undo.replied"
    LOOK_UP_LEAVING = "look_up.leaving"
    LOOK_UP_REPLIED = "look_up.replied"
    STEP_ANSWERING = "step.answering"
    PROGRESS_COMMITTING = "progress.committing"
    PROGRESS_COMMITTED = "progress.committed"
    UNDOING_COMMITTING = "undoing.committing"
    UNDOING_COMMITTED = "undoing.committed"
    RECALLING = "recall.reading"
    COMPLETION_COMMITTING = "completion.committing"
    COMPLETION_COMMITTED = "completion.committed"
    COMPLETION_ANSWERING = "completion.answering"
    WEBHOOK_COMMITTING = "webhook.committing"
    WEBHOOK_COMMITTED = "webhook.committed"
    UPDATE_SENDING = "update.sending"
    UPDATE_SENT = "update.sent"
    OUTBOX_TAKEN = "outbox.taken"
    OUTBOX_SENDING = "outbox.sending"
    OUTBOX_SENT = "outbox.sent"
    OUTBOX_NOTED = "outbox.noted"
    RECORDS_COMMITTING = "records.committing"
    RECORDS_COMMITTED = "records.committed"
    FINDINGS_COMMITTING = "findings.committing"
    FINDINGS_COMMITTED = "findings.committed"
    REMEDY_COMMITTING = "remedy.committing"
    REMEDY_COMMITTED = "remedy.committed"
    RECONCILED_COMMITTING = "reconciled.committing"
    RECONCILED_COMMITTED = "reconciled.committed"


_PAGES = "ledger.reconciliation_pages:ReconciliationPages"
_ACTIONS = "ledger.reconciliation_actions:ReconciliationActions"
_FINDINGS = "ledger.reconciliation_findings:ReconciliationFindings"

PLACES: Mapping[Failpoint, str] = MappingProxyType(
    {
        Failpoint.CLAIM_COMMITTING: "ledger.claims:Claims._commit",
        Failpoint.CLAIM_COMMITTED: "ledger.claims:Claims._commit",
        Failpoint.LOCAL_COMMITTING: "ledger.local:LocalOperations._commit",
        Failpoint.LOCAL_COMMITTED: "ledger.local:LocalOperations._commit",
        Failpoint.RUN_STARTING: "runtime.temporal:TemporalExecutor._start",
        Failpoint.RUN_STARTED: "runtime.temporal:TemporalExecutor._start",
        Failpoint.ANSWER_SENDING: "api.boundary:_submit",
        Failpoint.RELAY_TAKING: "runtime.relay:Relay.relay_once",
        Failpoint.RELAY_TAKEN: "runtime.relay:Relay.relay_once",
        Failpoint.RELAY_RECOVERING: "runtime.relay:Relay._ensure_run",
        Failpoint.RELAY_RECOVERED: "runtime.relay:Relay._ensure_run",
        Failpoint.SEND_RECORDING: "ledger.sends:Sends.begin",
        Failpoint.SEND_RECORDED: "ledger.sends:Sends.begin",
        Failpoint.SEND_LEAVING: "activities.steps:send_body",
        Failpoint.SEND_REPLIED: "activities.steps:send_body",
        Failpoint.SEND_TAKING_BACK: "ledger.sends:Sends.not_applied",
        Failpoint.SEND_TAKEN_BACK: "ledger.sends:Sends.not_applied",
        Failpoint.UNDO_LEAVING: "activities.steps:StepActivities._send_permitted",
        Failpoint.UNDO_REPLIED: "activities.steps:StepActivities._send_permitted",
        Failpoint.LOOK_UP_LEAVING: "activities.steps:StepActivities.look_up",
        Failpoint.LOOK_UP_REPLIED: "activities.steps:StepActivities.look_up",
        Failpoint.STEP_ANSWERING: "activities.steps:StepActivities.perform",
        Failpoint.PROGRESS_COMMITTING: "ledger.progress:Progresses.record",
        Failpoint.PROGRESS_COMMITTED: "ledger.progress:Progresses.record",
        Failpoint.UNDOING_COMMITTING: "ledger.progress:Progresses.record",
        Failpoint.UNDOING_COMMITTED: "ledger.progress:Progresses.record",
        Failpoint.RECALLING: "ledger.progress:Progresses.recall",
        Failpoint.COMPLETION_COMMITTING: "ledger.progress:Progresses.complete",
        Failpoint.COMPLETION_COMMITTED: "ledger.progress:Progresses.complete",
        Failpoint.COMPLETION_ANSWERING: "activities.books:LedgerActivities.complete",
        Failpoint.WEBHOOK_COMMITTING: "ledger.inbox:Inbox.take",
        Failpoint.WEBHOOK_COMMITTED: "ledger.inbox:Inbox.take",
        Failpoint.UPDATE_SENDING: "runtime.temporal:TemporalExecutor._update",
        Failpoint.UPDATE_SENT: "runtime.temporal:TemporalExecutor._update",
        Failpoint.OUTBOX_TAKEN: "runtime.deliverer:Deliverer._take",
        Failpoint.OUTBOX_SENDING: "runtime.deliverer:Deliverer._deliver",
        Failpoint.OUTBOX_SENT: "runtime.deliverer:Deliverer._deliver",
        Failpoint.OUTBOX_NOTED: "runtime.deliverer:Deliverer._deliver",
        Failpoint.RECORDS_COMMITTING: f"{_PAGES}.stage",
        Failpoint.RECORDS_COMMITTED: f"{_PAGES}.stage",
        Failpoint.FINDINGS_COMMITTING: f"{_PAGES}.write",
        Failpoint.FINDINGS_COMMITTED: f"{_PAGES}.write",
        Failpoint.REMEDY_COMMITTING: f"{_ACTIONS}.claim_undo",
        Failpoint.REMEDY_COMMITTED: f"{_ACTIONS}.claim_undo",
        Failpoint.RECONCILED_COMMITTING: f"{_FINDINGS}.end_run",
        Failpoint.RECONCILED_COMMITTED: f"{_FINDINGS}.end_run",
    }
)
"""Where each one stands, as `module:function`. A test compares this with the source."""


class Mode(StrEnum):
    """What happens at a failpoint."""

    KILL = "kill"
    """SIGKILL to the process itself: nothing is flushed, closed or told."""
    HANG = "hang"
    """The whole process stands still, and goes on afterwards: a zombie."""
    RAISE = "raise"


class FailpointReached(Exception):
    """Raised at a failpoint that was armed with `raise`."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One failpoint that is to fire."""

    point: Failpoint
    nth: int
    mode: Mode

    def __str__(self) -> str:
        """As it is written in the environment."""
        return f"{self.point}:{self.nth}:{self.mode}"


def read_arms(text: str) -> tuple[Arm, ...]:
    """The entries of `TALLYSTICK_FAILPOINT`. Raises ValueError for anything that is none."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > ARMED_MAX:
        raise ValueError(f"{VARIABLE} holds {len(parts)} entries; {ARMED_MAX} are allowed")
    arms: list[Arm] = []
    for part in parts:
        name, *rest = part.split(":")
        if len(rest) != 2 or not rest[0].isdecimal() or int(rest[0]) < 1:
            raise ValueError(f"{VARIABLE}: {part!r} is not name:nth:mode with nth from 1")
        arms.append(Arm(point=Failpoint(name), nth=int(rest[0]), mode=Mode(rest[1])))
    return tuple(arms)


class Armed:
    """Counts hits, and fires what is due. Used in one thread."""

    def __init__(self, arms: tuple[Arm, ...], *, log: Path | None, hang_seconds: float) -> None:
        """Entries that the log holds already have fired, in this process or in an earlier one."""
        self._arms = arms
        self._log = log
        self._hang_seconds = hang_seconds
        self._hits: dict[Failpoint, int] = {}

    def __call__(self, point: Failpoint) -> None:
        """Count a hit of `point`; die, freeze or raise when its time has come."""
        hits = self._hits[point] = self._hits.get(point, 0) + 1
        for arm in self._arms:
            if arm.point is point and arm.nth == hits and self._is_first(arm):
                self._fire(arm)

    def _is_first(self, arm: Arm) -> bool:
        """Write into the log that `arm` fires, unless it did before; durable before it happens."""
        if self._log is None:
            return True
        with self._log.open("a+", encoding="utf-8") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            log.seek(0)
            if any(line.split(" ", 1)[0] == str(arm) for line in log):
                return False
            log.write(f"{arm} pid={os.getpid()} at={time.time():.3f}\n")
            log.flush()
            os.fsync(log.fileno())
        return True

    def _fire(self, arm: Arm) -> None:
        match arm.mode:
            case Mode.KILL:
                _die()
            case Mode.HANG:
                time.sleep(self._hang_seconds)
            case Mode.RAISE:
                raise FailpointReached(str(arm))
            case _:
                assert_never(arm.mode)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL cannot be survived")


def _pass(_point: Failpoint) -> None:
    """Nothing is armed."""


def from_environment(environment: Mapping[str, str]) -> Callable[[Failpoint], None]:
    """What stands at every failpoint of this process."""
    arms = read_arms(environment.get(VARIABLE, ""))
    if not arms:
        return _pass
    log = environment.get(LOG_VARIABLE)
    return Armed(
        arms,
        log=Path(log) if log else None,
        hang_seconds=float(environment.get(HANG_VARIABLE, HANG_SECONDS_DEFAULT)),
    )


fail_at: Callable[[Failpoint], None] = from_environment(os.environ)
"""Stands at every place in `PLACES`: `fail_at(Failpoint.CLAIM_COMMITTED)`."""
