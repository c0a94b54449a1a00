"""The inbox's sweep: matches messages that came before their effects, and tells runs what a process
that died meant to tell them. One in every worker."""

import asyncio
from collections.abc import Callable
from datetime import datetime

import structlog

from api.evidence import tell_run
from api.service import Executor
from ledger.database import StorageUnavailable
from ledger.ledger import Ledger

POLL_SECONDS = 0.5
BATCH_MESSAGES = 50
TIDY_SECONDS = 600.0
TIDY_ROWS = 5_000

_log = structlog.get_logger(__name__)


class Sweep:
    """Looks after kept messages, beside other sweeps."""

    def __init__(self, ledger: Ledger, executor: Executor, *, now: Callable[[], datetime]) -> None:
        """Use `ledger` to find messages and `executor` to tell runs."""
        self._ledger = ledger
        self._executor = executor
        self._now = now

    async def run(self) -> None:
        """Sweep until cancelled. Outages are waited out."""
        while True:
            try:
                swept = await self.sweep_once()
            except StorageUnavailable as error:
                _log.warning("sweep.waits", reason=str(error))
                swept = 0
            if swept < BATCH_MESSAGES:
                await asyncio.sleep(POLL_SECONDS)

    async def sweep_once(self) -> int:
        """Look at the messages that are due; returns how many runs there were to tell."""
        proofs = await self._ledger.inbox.due(now=self._now(), limit=BATCH_MESSAGES)
        for proof in proofs:
            await tell_run(proof, ledger=self._ledger, executor=self._executor)
        return len(proofs)

    async def tidy(self) -> None:
        """Forget what is old enough, now and then, until cancelled."""
        while True:
            try:
                now = self._now()
                await self._ledger.inbox.forget(now=now, limit=TIDY_ROWS)
                await self._ledger.outbox.forget(now=now, limit=TIDY_ROWS)
            except StorageUnavailable as error:
                _log.warning("sweep.waits", reason=str(error))
            await asyncio.sleep(TIDY_SECONDS)
