"""The relay: every open claim has an open run. A claim is the outbox entry; this delivers it."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from api.service import ExecutorUnavailable
from ledger.claims import Claim
from ledger.database import StorageUnavailable
from ledger.ledger import Ledger
from operations.failpoints import Failpoint, fail_at
from runtime.temporal import TemporalExecutor

POLL_SECONDS = 1.0
BATCH_CLAIMS = 50
CONCURRENT_STARTS = 10

AFTER_OUTAGE_SECONDS = 2.0
"""When a claim is due again whose run could not be started: soon after Temporal is back."""

_log = structlog.get_logger(__name__)


class Relay:
    """Looks after open claims, beside other relays."""

    def __init__(
        self, ledger: Ledger, executor: TemporalExecutor, *, now: Callable[[], datetime]
    ) -> None:
        """Use `ledger` to find claims and `executor` to start runs."""
        self._ledger = ledger
        self._executor = executor
        self._now = now

    async def run(self) -> None:
        """Relay until cancelled. Outages are waited out."""
        while True:
            try:
                taken = await self.relay_once()
            except StorageUnavailable as error:
                _log.warning("relay.waits", reason=str(error))
                taken = 0
            if taken < BATCH_CLAIMS:
                await asyncio.sleep(POLL_SECONDS)

    async def relay_once(self) -> int:
        """Check the claims that are due; returns how many were. Raises StorageUnavailable."""
        fail_at(Failpoint.RELAY_TAKING)
        due = await self._ledger.relay.take_due(now=self._now(), limit=BATCH_CLAIMS)
        if due:
            fail_at(Failpoint.RELAY_TAKEN)
        gate = asyncio.Semaphore(CONCURRENT_STARTS)

        async def ensured(claim: Claim) -> bool:
            async with gate:
                return await self._ensure_run(claim)

        verdicts = await asyncio.gather(*(ensured(claim) for claim in due))
        missed = [claim.id for claim, good in zip(due, verdicts, strict=True) if not good]
        if missed:
            again = self._now() + timedelta(seconds=AFTER_OUTAGE_SECONDS)
            await self._ledger.relay.check_again(missed, at=again)
        return len(due)

    async def _ensure_run(self, claim: Claim) -> bool:
        """Make sure that an open claim has an open run; False when Temporal is away."""
        try:
            if await self._executor.has_run(claim):
                return True
            latest = await self._ledger.claims.read_many([claim.id])
            if latest and latest[0].state.is_open:
                fail_at(Failpoint.RELAY_RECOVERING)
                await self._executor.recover(latest[0])
                fail_at(Failpoint.RELAY_RECOVERED)
                _log.warning("relay.recovered", claim=claim.id)
        except ExecutorUnavailable as error:
            _log.warning("relay.waits", claim=claim.id, reason=str(error))
            return False
        return True
