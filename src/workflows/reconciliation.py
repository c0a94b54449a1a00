"""The run of a reconciliation: fetch, match, sweep, act, close; bounded turns, one after another.

All of its state stands in the run's row, so the history stays short: a run that has taken many
turns continues as new in the phase it has reached.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, CancelledError

from operations.reconciliation import (
    ACT_ON_FINDINGS,
    CLOSE_RUN,
    FETCH_RECORDS,
    MATCH_RECORDS,
    OPEN_RUN,
    RECONCILIATION_RUN,
    SWEEP_EFFECTS,
    Opened,
    ReconciliationEnd,
    ReconciliationOrder,
    RunClosing,
    RunOpening,
    Turn,
)
from workflows.calls import HEARTBEAT_SECONDS

PHASES = (FETCH_RECORDS, MATCH_RECORDS, SWEEP_EFFECTS, ACT_ON_FINDINGS)

TURNS_PER_HISTORY = 200
"""A turn is five events: far below Temporal's limit of 51,200, and quick to replay."""

TURN_TIMEOUT = timedelta(minutes=5)
"""Twenty pages of a slow list, each within its provider's own timeout."""

HEARTBEAT = timedelta(seconds=HEARTBEAT_SECONDS)
"""Activities beat all the time that they work: a dead worker's turn is taken again after this."""

ACT_TURNS_MAX = 12
"""A remedy that still has to wait then is taken up again by the next run."""

RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=30),
    non_retryable_error_types=["RunUnknown", "ValueError"],
)
"""Until the run's own time is over: a ledger or a provider that is down comes back."""


@workflow.defn(name=RECONCILIATION_RUN)
class Reconcile:
    """One reconciliation of one provider."""

    def __init__(self) -> None:
        """No turn has been taken."""
        self._turns = 0

    @workflow.run
    async def run(self, order: ReconciliationOrder) -> ReconciliationEnd:
        """Run to the end of the window. A cancel ends the run as failed; nothing is half done."""
        run_id = order.run_id
        try:
            if order.phase == FETCH_RECORDS and not workflow.info().continued_run_id:
                run_id = await self._open(order)
            assert run_id is not None
            for phase in PHASES[PHASES.index(order.phase) :]:
                await self._turn_until_finished(order, run_id, phase)
        except (ActivityError, CancelledError) as error:
            if run_id is None:
                raise
            return await self._close(RunClosing(run_id=run_id, failure=_reason(error)))
        return await self._close(RunClosing(run_id=run_id))

    async def _open(self, order: ReconciliationOrder) -> int:
        opened = await workflow.execute_activity(
            OPEN_RUN,
            RunOpening(
                provider=order.provider,
                workflow_id=workflow.info().workflow_id,
                run_id=order.run_id,
                every_seconds=order.every_seconds,
            ),
            result_type=Opened,
            start_to_close_timeout=timedelta(seconds=30),
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RETRIES,
            summary=f"open a run for {order.provider}",
        )
        return opened.run_id

    async def _turn_until_finished(
        self, order: ReconciliationOrder, run_id: int, phase: str
    ) -> None:
        taken = 0
        while True:
            turn = await workflow.execute_activity(
                phase,
                run_id,
                result_type=Turn,
                start_to_close_timeout=TURN_TIMEOUT,
                heartbeat_timeout=HEARTBEAT,
                retry_policy=RETRIES,
                summary=f"run {run_id}, turn {taken + 1}",
            )
            taken += 1
            self._turns += 1
            self._tell(run_id, phase, turn)
            if turn.finished or (phase == ACT_ON_FINDINGS and taken >= ACT_TURNS_MAX):
                return
            if turn.pause_seconds:
                await workflow.sleep(turn.pause_seconds)
            if self._turns >= TURNS_PER_HISTORY or workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(
                    order.model_copy(update={"run_id": run_id, "phase": phase})
                )

    async def _close(self, closing: RunClosing) -> ReconciliationEnd:
        """Write the end, also when the run itself was cancelled."""
        return await workflow.execute_activity(
            CLOSE_RUN,
            closing,
            result_type=ReconciliationEnd,
            start_to_close_timeout=timedelta(minutes=2),
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RETRIES,
            summary="failed" if closing.failure else "sums, changes, watermark",
        )

    def _tell(self, run_id: int, phase: str, turn: Turn) -> None:
        """What the Temporal UI shows of the run."""
        name = phase.rpartition(".")[2]
        state = "finished" if turn.finished else "under way"
        workflow.set_current_details(
            f"Run **{run_id}**: {name} {state}. {turn.remark}\n\n"
            f"The run with this number has its counts in the API."
        )


def _reason(error: BaseException) -> str:
    if isinstance(error, CancelledError) or isinstance(
        getattr(error, "cause", None), CancelledError
    ):
        return "It was cancelled"
    cause = getattr(error, "cause", None)
    return f"{cause or error}"[:500]
