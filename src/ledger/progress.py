"""How far operations have come, and how they end: the completion is the transaction that counts."""

import json
from datetime import datetime, timedelta

from sqlalchemy import ARRAY, Boolean, Text, any_, bindparam, literal, null, select, update
from sqlalchemy.dialects.postgresql import insert

from ledger import effect_rows, inbox, outbox
from ledger.database import Connection, Database
from ledger.statements import Statement
from ledger.tables import business_rows, claims
from ledger.verdicts import abandoned_of, cancel_of, write_cancel, write_verdict
from operations.contracts import Completion, Progress, Recollection, RunEnd
from operations.failpoints import Failpoint, fail_at
from operations.messages import EventType
from operations.states import OPEN_STATES, ClaimState, EffectState, Outcome

_IN_DOUBT = frozenset({EffectState.SENT, EffectState.UNKNOWN, EffectState.PARKED})
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
_ended = (
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
    .returning(*claims.c)
    .cte("ended")
)
_answered = (
    insert(business_rows)
    .from_select(
        ["claim_id", "tenant", "operation", "answer", "created_at"],
        select(
            _ended.c.id,
            _ended.c.tenant,
            _ended.c.operation,
            bindparam("answer", type_=business_rows.c.answer.type),
            bindparam("now", type_=business_rows.c.created_at.type),
        ).where(bindparam("has_answer", type_=Boolean)),
    )
    .returning(business_rows.c.claim_id)
    .cte("answered")
)
_END = Statement(
    select(_ended.c.id).add_cte(
        outbox.told(_ended, EventType.DONE), effect_rows.written(_ended), _answered
    )
)
"""The whole completion: claim, receipt, business row, effects and events, in one round trip."""
_STATE = Statement(
    select(claims.c.state).where(claims.c.id == bindparam("claim_id")).with_for_update()
)
_HOW = Statement(
    select(claims.c.state, claims.c.outcome, claims.c.receipt_status).where(
        claims.c.id == bindparam("claim_id")
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
        undoing = progress.state is ClaimState.COMPENSATING
        async with self._database.transaction() as connection:
            # Before the claim is locked: who matches a message locks it, then the claim.
            keys = [row.key for row in progress.effects if row.state in _IN_DOUBT]
            if keys:
                await inbox.wake(connection, keys, now=now)
            was = await connection.fetchval(*_STATE(claim_id=progress.claim_id))
            moved = await connection.fetchrow(
                *_MOVE(claim_id=progress.claim_id, new_state=progress.state.value, now=now)
            )
            if moved is None:
                return False
            if progress.state is ClaimState.PARKED and was != progress.state:
                await outbox.tell(connection, progress.claim_id, EventType.PARKED, now=now)
            await effect_rows.upsert(
                connection, progress.claim_id, progress.tenant, progress.effects, now=now
            )
            if progress.decision is not None:
                await write_verdict(connection, progress.claim_id, progress.decision, now=now)
            if progress.cancel is not None:
                await write_cancel(connection, progress.claim_id, progress.cancel, now=now)
            fail_at(Failpoint.UNDOING_COMMITTING if undoing else Failpoint.PROGRESS_COMMITTING)
        fail_at(Failpoint.UNDOING_COMMITTED if undoing else Failpoint.PROGRESS_COMMITTED)
        return True

    async def recall(self, claim_id: int) -> Recollection:
        """Read all that has been written of an operation. Raises OperationUnknown."""
        fail_at(Failpoint.RECALLING)
        async with self._database.transaction() as connection:
            claim = await connection.fetchrow(*_HOW(claim_id=claim_id))
            if claim is None:
                raise OperationUnknown(f"There is no claim {claim_id}")
            rows = await connection.fetch(*effect_rows.OF_CLAIM(claim_id=claim_id))
            cancel = await cancel_of(connection, claim_id)
            abandoned = await abandoned_of(connection, claim_id)
        outcome = claim["outcome"]
        return Recollection(
            state=ClaimState(claim["state"]),
            outcome=None if outcome is None else Outcome(outcome),
            status=claim["receipt_status"],
            effects=tuple(effect_rows.read(row) for row in rows),
            cancel=cancel,
            abandoned=abandoned,
        )

    async def complete(
        self, completion: Completion, *, now: datetime, reset: bool = False
    ) -> RunEnd:
        """End an operation: business row, effects and receipt, in one transaction.

        Idempotent: an operation that has ended stays as it ended, and that is what is returned.
        `reset`: an earlier history may be undoing what this one takes for done: fenced then.
        Raises OperationUnknown.
        """
        fail_at(Failpoint.COMPLETION_COMMITTING)
        releasing = effect_rows.releasing(completion.effects)
        if reset or releasing:
            async with self._database.transaction() as connection:
                if reset and await _is_fenced(connection, completion):
                    return _end_of(completion, fenced=True)
                end = await _end(connection, completion, now=now)
                for row in releasing:
                    await effect_rows.release(
                        connection, completion.claim_id, completion.tenant, row
                    )
        else:
            async with self._database.connection() as connection:
                end = await _end(connection, completion, now=now)
        fail_at(Failpoint.COMPLETION_COMMITTED)
        return end


async def _end(connection: Connection, completion: Completion, *, now: datetime) -> RunEnd:
    """In one statement, which is a transaction of its own unless the caller has begun one."""
    receipt = completion.receipt
    ended = await connection.fetchval(
        *_END(
            claim_id=completion.claim_id,
            outcome=completion.outcome.value,
            receipt_status=receipt.status,
            receipt_headers=json.dumps(receipt.headers),
            receipt_body=receipt.body,
            now=now,
            expires_at=now + timedelta(days=completion.retention_days),
            answer=completion.answer,
            has_answer=completion.answer is not None,
            **effect_rows.columns(completion.effects, now=now),
        )
    )
    if ended is None:
        return await _how_it_ended(connection, completion.claim_id)
    return _end_of(completion)


def _end_of(completion: Completion, *, fenced: bool = False) -> RunEnd:
    return RunEnd(outcome=completion.outcome, status=completion.receipt.status, fenced=fenced)


async def _is_fenced(connection: Connection, completion: Completion) -> bool:
    """Whether an open operation is being undone that is said to have succeeded."""
    if completion.outcome is not Outcome.SUCCEEDED:
        return False
    state = await connection.fetchval(*_STATE(claim_id=completion.claim_id))
    undoing = await connection.fetchval(*effect_rows.IS_UNDOING(claim_id=completion.claim_id))
    return state in OPEN_STATES and undoing is not None


async def _how_it_ended(connection: Connection, claim_id: int) -> RunEnd:
    claim = await connection.fetchrow(*_HOW(claim_id=claim_id))
    if claim is None or claim["outcome"] is None:
        raise OperationUnknown(f"There is no open or done claim {claim_id}")
    return RunEnd(outcome=Outcome(claim["outcome"]), status=claim["receipt_status"])
