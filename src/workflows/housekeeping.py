"""Housekeeping: receipts whose retention is over are cleared, in bounded batches."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from operations.housekeeping import (
    BATCH_CLAIMS,
    BATCHES_MAX,
    EXPIRE_CLAIMS,
    HOUSEKEEPING_RUN,
    Expired,
)

_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1), maximum_attempts=5
)
"""What fails five times waits for the next scheduled run: nothing depends on it."""


@workflow.defn(name=HOUSEKEEPING_RUN)
class Housekeeping:
    """One scheduled run."""

    @workflow.run
    async def run(self, expired_before: int = 0) -> int:
        """Expire until nothing is left; returns how many keys, of earlier parts of the run too."""
        expired = expired_before
        for _ in range(BATCHES_MAX):
            batch = await workflow.execute_activity(
                EXPIRE_CLAIMS,
                BATCH_CLAIMS,
                result_type=Expired,
                start_to_close_timeout=timedelta(seconds=30),
                retry_policy=_RETRIES,
                summary="clear receipts whose retention is over",
            )
            expired += batch.claims
            workflow.set_current_details(f"{expired} keys have expired in this run")
            if batch.claims < BATCH_CLAIMS:
                break
        else:
            workflow.continue_as_new(expired)
        return expired
