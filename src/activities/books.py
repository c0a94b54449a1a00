"""`ledger.*`: the activities that write and read our own books."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio import activity

from ledger.ledger import Ledger
from operations.contracts import (
    COMPLETE_OPERATION,
    RECALL_OPERATION,
    RECORD_PROGRESS,
    Completion,
    Progress,
    Recollection,
    Recorded,
    RunEnd,
)
from operations.failpoints import Failpoint, fail_at


@dataclass(frozen=True, slots=True)
class LedgerActivities:
    """The activities that keep the books. Each is one transaction, and idempotent."""

    ledger: Ledger
    announce: Callable[[int], None]
    """Tells waiting requests that a claim has changed."""

    @activity.defn(name=RECORD_PROGRESS)
    async def record(self, progress: Progress) -> Recorded:
        """Write effects and where the operation stands."""
        await self.ledger.progress.record(progress, now=datetime.now(UTC))
        self.announce(progress.claim_id)
        return Recorded(reset=_is_reset(progress.first_run_id))

    @activity.defn(name=RECALL_OPERATION)
    async def recall(self, claim_id: int) -> Recollection:
        """Read what earlier runs have written."""
        return await self.ledger.progress.recall(claim_id)

    @activity.defn(name=COMPLETE_OPERATION)
    async def complete(self, completion: Completion) -> RunEnd:
        """End the operation: business row, effects and receipt."""
        end = await self.ledger.progress.complete(
            completion, now=datetime.now(UTC), reset=_is_reset(completion.first_run_id)
        )
        fail_at(Failpoint.COMPLETION_ANSWERING)
        self.announce(completion.claim_id)
        return end


def _is_reset(first_run_id: str) -> bool:
    """Whether the run that asks is not the one the operation began with."""
    return first_run_id not in {"", activity.info().workflow_run_id}
