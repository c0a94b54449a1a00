"""Before a request leaves: the row that says it may exist, and the fence that may refuse it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from asyncpg import Record
from sqlalchemy import ARRAY, Text, any_, bindparam, case, literal, select, update

from ledger import effect_rows
from ledger.database import Connection, Database
from ledger.statements import Statement
from ledger.tables import claims, effects
from operations.contracts import EffectRecord, Kind, StepAnswer, StepCall
from operations.failpoints import Failpoint, fail_at
from operations.guarantees import Guarantee
from operations.keys import Purpose
from operations.states import OPEN_STATES, EffectState

_CLAIM_STATE = Statement(select(claims.c.state).where(claims.c.id == bindparam("claim_id")))
# A send changes what the operation looks like, so it counts: the ETag would lie otherwise. The row
# lock also keeps the operation from ending between this look and the commit.
_COUNT_CHANGE = Statement(
    update(claims)
    .where(
        claims.c.id == bindparam("claim_id"),
        claims.c.state == any_(literal(sorted(OPEN_STATES), ARRAY(Text))),
    )
    .values(revision=claims.c.revision + 1, updated_at=bindparam("now"))
    .returning(claims.c.state)
)
_SEND_AGAIN = Statement(
    update(effects)
    .where(effect_rows.same_effect)
    .values(
        state=EffectState.SENT.value,
        sends=effects.c.sends + 1,
        sent_at=bindparam("sent_at"),
        last_sent_at=bindparam("latest"),
        updated_at=bindparam("now"),
    )
)
_NOT_APPLIED = Statement(
    update(effects)
    .where(
        effect_rows.same_effect,
        effects.c.state == EffectState.SENT.value,
        effects.c.sends == bindparam("sends"),
    )
    .values(
        sends=effects.c.sends - 1,
        state=case(
            (effects.c.sends == literal(1), EffectState.PLANNED.value),
            else_=EffectState.UNKNOWN.value,
        ),
        sent_at=case((effects.c.sends == literal(1), None), else_=effects.c.sent_at),
        reason=bindparam("reason"),
        updated_at=bindparam("now"),
    )
)
LEAVES_WITHIN = timedelta(seconds=2)
"""A request leaves this soon after its row, or not at all (`activities.steps` sees to it): a worker
that was frozen in between must not send after others have looked up and found nothing."""

_DONE_ALREADY = {
    EffectState.CONFIRMED: Kind.CONFIRMED,
    EffectState.COMPENSATED: Kind.FENCED,
    EffectState.REJECTED: Kind.DECLINED,
}
_REPEATABLE = frozenset({Guarantee.KEYED, Guarantee.NATURAL})


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to send one request, now."""

    sends: int
    sent_at: datetime
    frozen_body: str
    """The bytes to send: those of the first request, whoever sent it."""


class Sends:
    """What stands in `effects` while a request is under way."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def begin(
        self, call: StepCall, *, body: str, now: datetime, reset: bool
    ) -> Permit | StepAnswer:
        """Commit the SENT row of an effect, in its own transaction, or say why nothing may leave.

        The row's count of sends is a fence: when it is ahead of the caller's, a send has happened
        of which the caller knows nothing: `unknown`. So are tombstones for a run whose history was
        reset: its predecessor may be undoing. Raises StorageUnavailable.
        """
        try:
            async with self._database.transaction() as connection:
                if reset and await _is_too_late(connection, call):
                    return _fenced(now)
                permit = await self._begin(connection, call, body=body, now=now)
                fail_at(Failpoint.SEND_RECORDING)
        except effect_rows.RefundExceedsCapture:
            return StepAnswer(
                kind=Kind.DECLINED,
                at=now,
                code="refund_exceeds_capture",
                rolled_back=True,
                reason="More would be refunded than was charged, or there is no such charge",
            )
        fail_at(Failpoint.SEND_RECORDED)
        return permit

    async def may_send(self, call: StepCall, *, now: datetime) -> StepAnswer | None:
        """Why an unrecorded send may not leave, if it may not; reads only. After a reset."""
        effect = call.effect
        async with self._database.connection() as connection:
            state = await connection.fetchval(*_CLAIM_STATE(claim_id=call.claim_id))
            row = await connection.fetchrow(
                *effect_rows.LOCK(**effect_rows.identity(call.claim_id, effect))
            )
            late = await _is_too_late(connection, call)
        if late or state not in OPEN_STATES or (row and row["tombstoned_at"] is not None):
            return _fenced(now)
        done = _DONE_ALREADY.get(EffectState(row["state"])) if row is not None else None
        return None if row is None or done is None else _told(row, done, now)

    async def not_applied(
        self, call: StepCall, permit: Permit, *, reason: str, now: datetime
    ) -> None:
        """Take back the SENT mark of a request that left no effect, in its own transaction."""
        async with self._database.transaction() as connection:
            await connection.execute(*_COUNT_CHANGE(claim_id=call.claim_id, now=now))
            await connection.execute(
                *_NOT_APPLIED(
                    **effect_rows.identity(call.claim_id, call.effect),
                    sends=permit.sends,
                    reason=reason,
                    now=now,
                )
            )
            fail_at(Failpoint.SEND_TAKING_BACK)
        fail_at(Failpoint.SEND_TAKEN_BACK)

    async def _begin(
        self, connection: Connection, call: StepCall, *, body: str, now: datetime
    ) -> Permit | StepAnswer:
        if await connection.fetchval(*_COUNT_CHANGE(claim_id=call.claim_id, now=now)) is None:
            return _fenced(now)
        await effect_rows.upsert(connection, call.claim_id, call.tenant, call.also, now=now)
        planned = _first_row(call.effect, body=body, suspect=call.suspect, now=now)
        inserted = await connection.fetchrow(
            *effect_rows.INSERT(**effect_rows.values(call.claim_id, call.tenant, planned, now=now))
        )
        if inserted is None:
            return await self._begin_again(connection, call, body=body, now=now)
        await effect_rows.hold(connection, call.claim_id, call.tenant, planned)
        if call.suspect:
            return _unknown(now, "It may have been sent before, when nothing was recorded", planned)
        return Permit(sends=planned.sends, sent_at=planned.sent_at or now, frozen_body=body)

    async def _begin_again(
        self, connection: Connection, call: StepCall, *, body: str, now: datetime
    ) -> Permit | StepAnswer:
        """There is a row already: another send, of this run or of an earlier one."""
        key = effect_rows.identity(call.claim_id, call.effect)
        row = await connection.fetchrow(*effect_rows.LOCK(**key))
        assert row is not None
        known = effect_rows.read(row)
        done = _DONE_ALREADY.get(known.state)
        if done is not None:
            return _told(row, done, now)
        if known.tombstone:
            return _fenced(now)
        if known.sends > call.effect.sends and known.guarantee not in _REPEATABLE:
            return _unknown(now, "A request was sent whose answer was lost", known)
        if _is_forgotten(call, known, now):
            return StepAnswer(
                kind=Kind.UNKNOWN,
                at=known.last_sent_at or now,
                sent_at=known.sent_at,  # so that the run knows too, and looks up instead
                reason="It was sent before, and the provider may not know the key any more",
            )
        if not row["holds"]:
            await effect_rows.hold(connection, call.claim_id, call.tenant, known)
        sent_at = known.sent_at or now
        await connection.execute(
            *_SEND_AGAIN(**key, sent_at=sent_at, latest=now + LEAVES_WITHIN, now=now)
        )
        return Permit(sends=known.sends + 1, sent_at=sent_at, frozen_body=known.frozen_body or body)


def _is_forgotten(call: StepCall, known: EffectRecord, now: datetime) -> bool:
    """Whether a repeated send may meet a provider that has forgotten our key: the run decided while
    the key lived, but an activity may wait in its queue through an outage (hazard 2)."""
    repeats = known.sends > 0 and call.effect.state is not EffectState.ABSENT
    keyed = known.guarantee is Guarantee.KEYED and known.sent_at is not None
    if not repeats or not keyed or known.sent_at is None:
        return False
    return not call.profile.remembers_key(sent_at=known.sent_at, at=now)


async def _is_too_late(connection: Connection, call: StepCall) -> bool:
    """Whether a step would begin that an earlier history, which began to undo, had not reached."""
    if call.effect.purpose is not Purpose.ACTION:
        return False
    key = effect_rows.identity(call.claim_id, call.effect)
    return await connection.fetchval(*effect_rows.IS_TOO_LATE(**key)) is not None


def _first_row(effect: EffectRecord, *, body: str, suspect: bool, now: datetime) -> EffectRecord:
    return effect.model_copy(
        update={
            "state": EffectState.UNKNOWN if suspect else EffectState.SENT,
            "sends": effect.sends + 1,
            "sent_at": effect.sent_at or now,
            "last_sent_at": now + LEAVES_WITHIN,
            "frozen_body": effect.frozen_body or body,
        }
    )


def _told(row: Record, kind: Kind, now: datetime) -> StepAnswer:
    return StepAnswer(
        kind=kind,
        at=now,
        provider_reference=row["provider_reference"],
        reason=row["reason"],
        sent_at=row["sent_at"],
        frozen_body=row["frozen_body"],
    )


def _unknown(now: datetime, reason: str, effect: EffectRecord) -> StepAnswer:
    return StepAnswer(
        kind=Kind.UNKNOWN,
        at=effect.last_sent_at or now,
        reason=reason,
        sent_at=effect.sent_at or now,
        frozen_body=effect.frozen_body,
    )


def _fenced(now: datetime) -> StepAnswer:
    return StepAnswer(
        kind=Kind.FENCED,
        at=now,
        rolled_back=True,
        reason="The operation has ended, or is being undone: nothing left",
    )
