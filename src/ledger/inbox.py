"""The inbox: what others tell us, at least once and in any order, taken in exactly once.

`take` works inside the caller's transaction, so a message and whatever its consumer changes because
of it are committed together, or not at all. A message that proves an effect whose outcome was not
known settles that effect's row in the same transaction; its run is told afterwards (`due`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from ledger import effect_rows
from ledger import inbox_statements as sql
from ledger.database import Connection, Database
from operations.failpoints import Failpoint, fail_at
from operations.keys import Purpose
from operations.messages import Message, Novelty, Reading
from operations.states import OPEN_STATES, EffectState, predecessors

if TYPE_CHECKING:
    AnyConnection = Connection | asyncpg.Connection[asyncpg.Record]
else:
    AnyConnection = Connection | asyncpg.Connection

WAIT_FIRST_SECONDS = 1.0
"""When a message about something unknown is looked at again: a step takes less than that. From then
on the pause doubles, up to an hour; and recording the effect ends it at once."""

TELL_GRACE_SECONDS = 2.0
"""How long the process that took a message in has to tell the run before the sweep does."""

WAIT_DAYS = 30
"""A message that nothing was recorded for in so long is about something that is not ours."""

KEEP_DAYS = 90
"""How long repeats are recognised: providers redeliver for three days, and people for thirty."""

_IN_DOUBT = frozenset({EffectState.SENT, EffectState.UNKNOWN, EffectState.PARKED})
_UNPROVED = frozenset(predecessors(EffectState.CONFIRMED)) - {EffectState.CONFIRMED}
_PROVED = frozenset({EffectState.CONFIRMED, EffectState.COMPENSATED})


@dataclass(frozen=True, slots=True)
class Proof:
    """A message has settled an effect: what its run is to be told."""

    message_id: int
    claim_id: int
    step: str
    purpose: Purpose
    provider: str
    provider_reference: str
    event: str
    key: str
    """The effect's derived key; "" where the message matched by the provider's reference only."""
    checks: int = 0
    """How often the run was to be told before."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What has become of a message."""

    novelty: Novelty
    reading: Reading | None = None
    """None for a repeated message: it was read when it came first."""
    proof: Proof | None = None
    """Set when a run is to be told, after the commit. Nobody has to: the sweep does it, later."""


async def take(connection: AnyConnection, message: Message, *, now: datetime) -> Taken:
    """Take a message in, inside the caller's transaction.

    A repeat changes nothing, whoever took the first one and wherever that stands: one that is still
    being taken in by another transaction is waited for. Do what the message asks for in the same
    transaction, and only when `novelty` is `new`.
    """
    values = _values(message)
    message_id = await connection.fetchval(*sql.KEEP(**values, now=now))
    if message_id is None:
        return Taken(Novelty.REPEATED)
    moved = await connection.fetchval(*sql.MOVE_FORWARD(**values, now=now))
    novelty = Novelty.LATE if moved is None else Novelty.NEW
    reading, proof = await _read(connection, message, message_id, now=now)
    return Taken(novelty, reading, proof)


async def wake(connection: Connection, references: Iterable[str], *, now: datetime) -> None:
    """Have messages that wait for these effects matched soon. Inside the caller's transaction."""
    await connection.execute(*sql.WAKE(references=list(references), now=now))


class Inbox:
    """The inbox, a transaction a call. Every method raises StorageUnavailable."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def take(self, message: Message, *, now: datetime) -> Taken:
        """Take a message in, in its own transaction."""
        async with self._database.transaction() as connection:
            taken = await take(connection, message, now=now)
            fail_at(Failpoint.WEBHOOK_COMMITTING)
        fail_at(Failpoint.WEBHOOK_COMMITTED)
        return taken

    async def due(self, *, now: datetime, limit: int) -> tuple[Proof, ...]:
        """Match up to `limit` waiting messages again, each in a transaction of its own; returns
        what runs are to be told."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(*sql.TAKE_DUE(now=now, limit=limit))
        proofs: list[Proof] = []
        for row in rows:
            if row["reading"] == Reading.CONFIRMED:
                proofs.append(_proof(_message(row), row, row["id"]))
            elif (proof := await self._match_again(row["id"], now=now)) is not None:
                proofs.append(proof)
        return tuple(proofs)

    async def finish(self, message_id: int) -> None:
        """There is nothing left to do about a message."""
        async with self._database.connection() as connection:
            await connection.execute(*sql.FINISH(id=message_id))

    async def forget(self, *, now: datetime, limit: int) -> int:
        """Delete finished messages older than `KEEP_DAYS`; returns how many."""
        before = now - timedelta(days=KEEP_DAYS)
        async with self._database.connection() as connection:
            return len(await connection.fetch(*sql.FORGET(before=before, limit=limit)))

    async def _match_again(self, message_id: int, *, now: datetime) -> Proof | None:
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(*sql.LOCK(id=message_id))
            if row is None or row["reading"] != Reading.WAITING:
                return None
            effect = await _effect_of(connection, _message(row))
            if effect is not None:
                return (await _judge_locked(connection, _message(row), row, effect, now=now))[1]
            if row["received_at"] < now - timedelta(days=WAIT_DAYS):
                await _note(connection, message_id, Reading.NEVER_MATCHED, now=now)
        return None


async def _read(
    connection: AnyConnection, message: Message, message_id: int, *, now: datetime
) -> tuple[Reading, Proof | None]:
    """Find out what a new message means for our effects, and write that down."""
    if not message.exists:
        return Reading.UNRELATED, None
    effect = await _effect_of(connection, message)
    if effect is None:
        if message.reference is None:
            return Reading.UNRELATED, None
        again = now + timedelta(seconds=WAIT_FIRST_SECONDS)
        await _note(connection, message_id, Reading.WAITING, now=None, check_at=again)
        return Reading.WAITING, None
    return await _judge_locked(connection, message, {"id": message_id}, effect, now=now)


async def _effect_of(connection: AnyConnection, message: Message) -> asyncpg.Record | None:
    """The effect by our exact reference, else by the provider's: nothing else proves anything."""
    if message.reference is not None:
        row = await connection.fetchrow(
            *sql.BY_REFERENCE(reference=message.reference, provider=message.provider)
        )
        if row is not None:
            return row
    return await connection.fetchrow(
        *sql.BY_PROVIDER_REFERENCE(provider=message.provider, provider_reference=_called(message))
    )


async def _judge_locked(
    connection: AnyConnection, message: Message, kept: Any, effect: Any, *, now: datetime
) -> tuple[Reading, Proof | None]:
    """Judge under the locks, in the order in which a run's writes take them: claim, then effect."""
    reading = _judge(message, effect, claim_state=effect["claim_state"])
    proof = None
    if reading is Reading.CONFIRMED:
        identity = {name: effect[name] for name in ("claim_id", "step", "purpose", "ordinal")}
        state = await connection.fetchval(*sql.LOCK_CLAIM(claim_id=effect["claim_id"]))
        effect = await connection.fetchrow(*effect_rows.LOCK(**identity))
        reading = _judge(message, effect, claim_state=state)
    if reading is Reading.CONFIRMED:
        await connection.execute(*sql.COUNT_UP(claim_id=effect["claim_id"], now=now))
        await connection.execute(
            *sql.CONFIRM(
                **{name: effect[name] for name in ("claim_id", "step", "purpose", "ordinal")},
                provider_reference=_called(message),
                reason=f"{message.provider} told us: event {message.event or message.version}",
                now=now,
            )
        )
        proof = _proof(message, effect, kept["id"])
    check_at = None if proof is None else now + timedelta(seconds=TELL_GRACE_SECONDS)
    await _note(connection, kept["id"], reading, now=now, effect=effect, check_at=check_at)
    return reading, proof


def _judge(message: Message, effect: Any, *, claim_state: str) -> Reading:
    state = EffectState(effect["state"])
    if _contradicts(message, effect) or state is EffectState.REJECTED:
        return Reading.DIFFERS
    if state in _PROVED:
        return Reading.KNOWN
    assert state in _UNPROVED, state
    fenced = effect["tombstoned_at"] is not None and state not in _IN_DOUBT
    return Reading.TOO_LATE if claim_state not in OPEN_STATES or fenced else Reading.CONFIRMED


def _contradicts(message: Message, effect: Any) -> bool:
    pairs = (
        (message.amount_minor, effect["amount_minor"]),
        (message.currency, effect["currency"]),
        (_called(message), effect["provider_reference"]),
    )
    return any(said is not None and known is not None and said != known for said, known in pairs)


async def _note(
    connection: AnyConnection,
    message_id: int,
    reading: Reading,
    *,
    now: datetime | None,
    effect: Any = None,
    check_at: datetime | None = None,
) -> None:
    await connection.execute(
        *sql.READ_AS(
            id=message_id,
            reading=reading.value,
            applied_at=now,
            claim_id=None if effect is None else effect["claim_id"],
            step=None if effect is None else effect["step"],
            purpose=None if effect is None else effect["purpose"],
            check_at=check_at,
        )
    )


def _called(message: Message) -> str:
    return message.provider_reference or message.entity


def _values(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in sql.FIELDS}


def _message(row: Any) -> Message:
    return Message(**{name: row[name] for name in sql.FIELDS})


def _proof(message: Message, row: Any, message_id: int) -> Proof:
    """`row` is the message's own, or its effect's."""
    return Proof(
        message_id=message_id,
        claim_id=row["claim_id"],
        step=row["step"],
        purpose=Purpose(row["purpose"]),
        provider=message.provider,
        provider_reference=_called(message),
        event=message.event or message.version,
        key=row.get("key", message.reference or ""),
        checks=row.get("checks", 0),
    )
