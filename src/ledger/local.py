"""Local operations: the claim, the whole effect and the receipt in one statement, so all or none.

Those that come at the same moment share a statement, as long as no two of them touch the same row.
Where it does not get through at once, each of them goes on alone.

A concurrent duplicate waits on the claim's unique index; that wait, and each wait for a row, is
bounded. The outcome is judged in the statement's snapshot, and the constraints judge it again when
it is applied: when others were faster, they refuse the whole statement, and it is made anew.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from asyncpg import PostgresError
from asyncpg.exceptions import (
    CheckViolationError,
    ForeignKeyViolationError,
    LockNotAvailableError,
)

from ledger import outbox, transfers
from ledger.batches import Batches
from ledger.claims import ALONE_MAX, SHORT_WAIT_SECONDS, Claim, Intent
from ledger.database import Database, Overtaken
from ledger.local_effects import LocalEffect, Values, headers_text
from ledger.statements import milliseconds
from operations.accounts_transfer import ACCOUNTS_TRANSFER
from operations.declaration import LocalOperation, Request
from operations.failpoints import Failpoint, fail_at
from operations.keys import workflow_id
from operations.receipts import success_receipt

LOCK_WAIT_SECONDS = 2.0
"""How long one lock is waited for. A local operation takes milliseconds, so whoever holds one for
so long is stuck; three waits in a row stay below the pool's ten seconds for a statement."""

TRIES = 6
PAUSE_FIRST_SECONDS = 0.002

_Scope = tuple[str, str, str]

EFFECTS: Mapping[str, LocalEffect] = MappingProxyType({ACCOUNTS_TRANSFER.name: transfers.EFFECT})
"""By operation: what it does to our own rows."""

_OVERTAKEN = (CheckViolationError, ForeignKeyViolationError, Overtaken)


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
        self._alone = asyncio.Semaphore(ALONE_MAX)
        self._batches = {
            (name, tells): self._batches_of(effect, tells=tells)
            for name, effect in EFFECTS.items()
            for tells in (False, True)
        }

    async def perform(
        self, intent: Intent, request: Request, *, operation: LocalOperation, now: datetime
    ) -> Claim | StillProcessing | Crowded:
        """Claim the key, apply the effect and keep the receipt, in one transaction; or find the
        claim that was first."""
        effect = EFFECTS[operation.name]
        row = _row(effect, intent, request, operation=operation, now=now)
        claim = await self._batches[operation.name, intent.tells].call(row)
        return claim or await self._perform_alone(row, effect, tells=intent.tells)

    def _batches_of(self, effect: LocalEffect, *, tells: bool) -> Batches[Values, Claim | None]:
        return Batches(
            lambda rows: self._perform_together(rows, effect, tells=tells),
            marks=lambda row: (_scope_of(row), *effect.touches(row)),
        )

    async def _perform_together(
        self, rows: Sequence[Values], effect: LocalEffect, *, tells: bool
    ) -> Sequence[Claim | None]:
        """All or none of them. None: it did not get through, and has to be tried alone."""
        try:
            found = await self._commit(rows, effect, tells=tells, lock_wait=SHORT_WAIT_SECONDS)
        except LockNotAvailableError:
            return [None] * len(rows)
        except _OVERTAKEN as error:
            if not _is_overtaken(error, effect):
                raise
            return [None] * len(rows)
        return [found.get(_scope_of(row)) for row in rows]

    async def _perform_alone(
        self, row: Values, effect: LocalEffect, *, tells: bool
    ) -> Claim | StillProcessing | Crowded:
        for attempt in range(TRIES):
            try:
                async with self._alone:
                    found = await self._commit(
                        [row], effect, tells=tells, lock_wait=LOCK_WAIT_SECONDS
                    )
            except LockNotAvailableError as error:
                return StillProcessing() if _is_about_claims(error) else Crowded()
            except _OVERTAKEN as error:
                if not _is_overtaken(error, effect):
                    raise
                await asyncio.sleep(PAUSE_FIRST_SECONDS * 2**attempt)
                continue
            if found:
                return found[_scope_of(row)]
            # The winner committed while we waited on its key: the next snapshot sees it.
        return Crowded()

    async def _commit(
        self, rows: Sequence[Values], effect: LocalEffect, *, tells: bool, lock_wait: float
    ) -> dict[_Scope, Claim]:
        """One statement, one transaction. In order of the unique key, as everybody does it."""
        rows = sorted(rows, key=_scope_of)
        columns: Values = {name: [row[name] for row in rows] for name in rows[0]}
        columns["lock_wait"] = milliseconds(lock_wait)
        if tells:
            columns["now"] = max(columns["created_at"])
        statement = effect.telling if tells else effect.statement
        fail_at(Failpoint.LOCAL_COMMITTING)
        async with self._database.connection() as connection:
            found = await connection.fetch(*statement(**columns))
        fail_at(Failpoint.LOCAL_COMMITTED)
        claims = (Claim.from_row(row, fresh=row["fresh"]) for row in found)
        return {(claim.tenant, claim.operation, claim.key): claim for claim in claims}


def _row(
    effect: LocalEffect,
    intent: Intent,
    request: Request,
    *,
    operation: LocalOperation,
    now: datetime,
) -> Values:
    run = workflow_id(operation=intent.operation, tenant=intent.tenant, key=intent.key)
    values, answer = effect.prepare(request, run)
    receipt = success_receipt(
        answer, status=operation.success_status, operation=intent.operation, key=intent.key
    )
    return {
        "tenant": intent.tenant,
        "operation": intent.operation,
        "key": intent.key,
        "fingerprint": intent.fingerprint,
        "request": intent.request,
        "created_at": now,
        "expires_at": now + timedelta(days=operation.retention_days),
        "receipt_status": receipt.status,
        "receipt_headers": headers_text(receipt.headers),
        "receipt_body": receipt.body,
        **values,
    }


def _scope_of(row: Values) -> _Scope:
    return row["tenant"], row["operation"], row["key"]


def _is_about_claims(error: PostgresError) -> bool:
    """Whether the lock that was not to be had was a claim's unique index: the wait's context names
    the relation, in whatever language the server speaks."""
    return '"claims"' in str(getattr(error, "context", None) or "")


def _is_overtaken(error: Exception, effect: LocalEffect) -> bool:
    if isinstance(error, Overtaken):
        return True
    if isinstance(error, ForeignKeyViolationError) and outbox.is_about_endpoints(error):
        return True
    return getattr(error, "constraint_name", None) in effect.guards
