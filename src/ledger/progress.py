"""How far operations have come, and how they end: the completion is the transaction that counts."""

import json
from datetime import datetime, timedelta

from sqlalchemy import ARRAY, Text, any_, bindparam, literal, null, select, update
from sqlalchemy.dialects.postgresql import insert

from ledger import effect_rows
from ledger.database import Connection, Database
from ledger.statements import Statement
from ledger.tables import business_rows, claims
from ledger.verdicts import write_cancel, write_verdict
from operations.contracts import Completion, Progress, Recollection, RunEnd
from operations.states import OPEN_STATES, ClaimState, Outcome

_IS_OPEN = claims.c.state == any_(literal(sorted(OPEN_STATES), ARRAY(Text)))

_MOVE = Statement(
    update(claims)
    .where(claims.c.id == bindparam("claim_id"), _IS_OPEN)
    .values(
        state=bindparam("new_state"),
        revision=claims.c.revision + 1,
        updated_at=bindparam("now"),
    )
    .returning(claims.c.id)
)
_END = Statement(
    update(claims)
    .where(claims.c.id == bindparam("claim_id"), _IS_OPEN)
    .values(
        state=ClaimState.DONE.value,
        outcome=bindparam("outcome"),
        receipt_status=bindparam("receipt_status"),
        receipt_headers=bindparam("receipt_headers"),
        receipt_body=bindparam("receipt_body"),
        revision=claims.c.revision + 1,
        updated_at=bindparam("now"),
        expires_at=bindparam("expires_at"),
        check_at=null(),
    )
    .returning(claims.c.id)
)
_HOW = Statement(
    select(claims.c.state, claims.c.outcome, claims.c.receipt_status).where(
        claims.c.id == bindparam("claim_id")
    )
)
_BUSINESS = Statement(
    insert(business_rows).values(
        claim_id=bindparam("claim_id"),
        tenant=bindparam("tenant"),
        operation=bindparam("operation"),
        answer=bindparam("answer"),
        created_at=bindparam("now"),
    )
)


class OperationUnknown(LookupError):
    """There is no claim with this identifier: a run outlived a restored, older database."""


class Progresses:
    """Writes of running operations. Every method raises StorageUnavailable."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def record(self, progress: Progress, *, now: datetime) -> bool:
        """Write effects and where the operation stands, in one transaction.

        False when the operation has ended already: then nothing is written.
        """
        async with self._database.transaction() as connection:
            moved = await connection.fetchrow(
                *_MOVE(claim_id=progress.claim_id, new_state=progress.state.value, now=now)
            )
            if moved is None:
                return False
            await effect_rows.upsert(
                connection, progress.claim_id, progress.tenant, progress.effects, now=now
            )
            if progress.decision is not None:
                await write_verdict(connection, progress.claim_id, progress.decision, now=now)
            if progress.cancel is not None:
                await write_cancel(connection, progress.claim_id, progress.cancel, now=now)
        return True

    async def recall(self, claim_id: int) -> Recollection:
        """Read all that has been written of an operation. Raises OperationUnknown."""
        async with self._database.transaction() as connection:
            claim = await connection.fetchrow(*_HOW(claim_id=claim_id))
            if claim is None:
                raise OperationUnknown(f"There is no claim {claim_id}")
            rows = await connection.fetch(*effect_rows.OF_CLAIM(claim_id=claim_id))
        outcome = claim["outcome"]
        return Recollection(
            state=ClaimState(claim["state"]),
            outcome=None if outcome is None else Outcome(outcome),
            status=claim["receipt_status"],
            effects=tuple(effect_rows.read(row) for row in rows),
        )

    async def complete(self, completion: Completion, *, now: datetime) -> RunEnd:
        """End an operation: business row, effects and receipt, in one transaction.

        Idempotent: an operation that has ended stays as it ended, and that is what is returned.
        Raises OperationUnknown.
        """
        receipt = completion.receipt
        async with self._database.transaction() as connection:
            ended = await connection.fetchrow(
                *_END(
                    claim_id=completion.claim_id,
                    outcome=completion.outcome.value,
                    receipt_status=receipt.status,
                    receipt_headers=json.dumps(receipt.headers),
                    receipt_body=receipt.body,
                    now=now,
                    expires_at=now + timedelta(days=completion.retention_days),
                )
            )
            if ended is None:
                return await _how_it_ended(connection, completion.claim_id)
            await effect_rows.upsert(
                connection, completion.claim_id, completion.tenant, completion.effects, now=now
            )
            if completion.answer is not None:
                await connection.execute(
                    *_BUSINESS(
                        claim_id=completion.claim_id,
                        tenant=completion.tenant,
                        operation=completion.operation,
                        answer=completion.answer,
                        now=now,
                    )
                )
        return RunEnd(outcome=completion.outcome, status=receipt.status)


async def _how_it_ended(connection: Connection, claim_id: int) -> RunEnd:
    claim = await connection.fetchrow(*_HOW(claim_id=claim_id))
    if claim is None or claim["outcome"] is None:
        raise OperationUnknown(f"There is no open or done claim {claim_id}")
    return RunEnd(outcome=Outcome(claim["outcome"]), status=claim["receipt_status"])
