"""Local operations: the claim, the whole effect and the receipt in one statement, so all or none.

A concurrent duplicate waits on the claim's unique index; that wait, and each wait for a row, is
bounded. The outcome is judged in the statement's snapshot, and the constraints judge it again when
it is applied: when others were faster, they refuse the whole statement, and it is made anew.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from asyncpg import PostgresError
from asyncpg.exceptions import (
    CheckViolationError,
    DeadlockDetectedError,
    ForeignKeyViolationError,
    LockNotAvailableError,
    SerializationError,
)

from ledger import transfers
from ledger.claims import Claim, Intent
from ledger.database import Database
from ledger.local_effects import LocalEffect, headers_text
from operations.accounts_transfer import ACCOUNTS_TRANSFER
from operations.contracts import StoredReceipt
from operations.declaration import LocalOperation, Request
from operations.failpoints import Failpoint, fail_at
from operations.keys import workflow_id
from operations.receipts import success_receipt

LOCK_WAIT_SECONDS = 2.0
"""How long one lock is waited for. A local operation takes milliseconds, so whoever holds one for
so long is stuck; three waits in a row stay below the pool's ten seconds for a statement."""

TRIES = 6
PAUSE_FIRST_SECONDS = 0.002

EFFECTS: Mapping[str, LocalEffect] = MappingProxyType({ACCOUNTS_TRANSFER.name: transfers.EFFECT})
"""By operation: what it does to our own rows."""

_OVERTAKEN = (
    CheckViolationError,
    DeadlockDetectedError,
    ForeignKeyViolationError,
    SerializationError,
)


@dataclass(frozen=True, slots=True)
class StillProcessing:
    """A request with the same key is under way and has not ended within the bounded wait."""


@dataclass(frozen=True, slots=True)
class Crowded:
    """Nothing was done: others held, or kept changing, the rows that this operation needs."""


class LocalOperations:
    """Performing local operations. Raises StorageUnavailable when Postgres cannot answer."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def perform(
        self, intent: Intent, request: Request, *, operation: LocalOperation, now: datetime
    ) -> Claim | StillProcessing | Crowded:
        """Claim the key, apply the effect and keep the receipt, in one transaction; or find the
        claim that was first."""
        effect = EFFECTS[operation.name]
        call = _call(effect, intent, request, operation=operation, now=now)
        for attempt in range(TRIES):
            fail_at(Failpoint.LOCAL_COMMITTING)
            try:
                async with self._database.connection() as connection:
                    row = await connection.fetchrow(*call)
            except LockNotAvailableError as error:
                return StillProcessing() if _is_about_claims(error) else Crowded()
            except _OVERTAKEN as error:
                if not _is_overtaken(error, effect):
                    raise
                await asyncio.sleep(PAUSE_FIRST_SECONDS * 2**attempt)
                continue
            fail_at(Failpoint.LOCAL_COMMITTED)
            if row is not None:
                return Claim.from_row(row, fresh=row["fresh"])
            # The winner committed while we waited on its key: the next snapshot sees it.
        return Crowded()


def _call(
    effect: LocalEffect,
    intent: Intent,
    request: Request,
    *,
    operation: LocalOperation,
    now: datetime,
) -> tuple[Any, ...]:
    run = workflow_id(operation=intent.operation, tenant=intent.tenant, key=intent.key)
    values, answer = effect.prepare(request, run)
    receipt = success_receipt(
        answer, status=operation.success_status, operation=intent.operation, key=intent.key
    )
    statement = effect.telling if intent.tells else effect.statement
    return statement(
        tenant=intent.tenant,
        operation=intent.operation,
        key=intent.key,
        fingerprint=intent.fingerprint,
        request=intent.request,
        now=now,
        expires_at=now + timedelta(days=operation.retention_days),
        lock_wait=f"{LOCK_WAIT_SECONDS * 1000:.0f}ms",
        **_receipt_values(receipt),
        **values,
    )


def _receipt_values(receipt: StoredReceipt) -> dict[str, Any]:
    return {
        "receipt_status": receipt.status,
        "receipt_headers": headers_text(receipt.headers),
        "receipt_body": receipt.body,
    }


def _is_about_claims(error: PostgresError) -> bool:
    """Whether the lock that was not to be had was a claim's unique index: the wait's context names
    the relation, in whatever language the server speaks."""
    return '"claims"' in str(getattr(error, "context", None) or "")


def _is_overtaken(error: PostgresError, effect: LocalEffect) -> bool:
    if isinstance(error, (DeadlockDetectedError, SerializationError)):
        return True
    return getattr(error, "constraint_name", None) in effect.guards
