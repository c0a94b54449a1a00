"""The world's durable ledger: SQLite, one writer thread, many requests per commit.

With `synchronous=NORMAL` in WAL mode a commit survives the death of the process (not a power cut),
and an answer leaves only after its commit.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")

BATCH_MAX = 256
"""Requests per commit: enough that the commit costs nothing per request, few enough that the first
of a batch does not wait for long."""

BACKLOG_MAX = 4_096
"""Requests waiting for the writer. More of them wait in front of the queue, and their callers'
timeouts bound that."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS effects (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    provider   TEXT NOT NULL,
    operation  TEXT NOT NULL,
    reference  TEXT,
    key        TEXT,
    amount     INTEGER,
    currency   TEXT,
    state      TEXT NOT NULL,
    target     TEXT,
    created_us INTEGER NOT NULL,
    visible_us INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS effects_by_reference ON effects (provider, operation, reference);
CREATE INDEX IF NOT EXISTS effects_by_time ON effects (provider, created_us, seq);
CREATE INDEX IF NOT EXISTS effects_by_target ON effects (target) WHERE target IS NOT NULL;
CREATE TABLE IF NOT EXISTS keys (
    provider    TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    status      INTEGER NOT NULL,
    body        BLOB NOT NULL,
    created_us  INTEGER NOT NULL,
    PRIMARY KEY (provider, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS couriers (
    provider    TEXT PRIMARY KEY,
    instruction TEXT NOT NULL,
    cursor      INTEGER NOT NULL
) WITHOUT ROWID;
"""

_COLUMNS = (
    "seq, id, provider, operation, reference, key, amount, currency, state, target, created_us"
)


@dataclass(frozen=True)
class Effect:
    """A row of the ledger. Amounts are minor units, times microseconds since 1970, UTC."""

    seq: int
    id: str
    provider: str
    operation: str
    reference: str | None
    key: str | None
    amount: int | None
    currency: str | None
    state: str
    target: str | None
    created_us: int


@dataclass(frozen=True)
class NewEffect:
    """A row to be written; `visible_us` is when look-ups and lists begin to show it."""

    id: str
    provider: str
    operation: str
    reference: str | None
    key: str | None
    amount: int | None
    currency: str | None
    state: str
    target: str | None
    created_us: int
    visible_us: int


@dataclass(frozen=True)
class StoredAnswer:
    """What a KEYED provider answered under a key."""

    fingerprint: bytes
    status: int
    body: bytes


class Pages:
    """The statements, on one connection, inside one transaction of the caller."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Work on `connection`, which only one thread uses."""
        self._connection = connection

    def insert(self, new: NewEffect) -> Effect:
        """Write a row. Raises sqlite3.IntegrityError for an identifier that exists."""
        values = (
            new.id,
            new.provider,
            new.operation,
            new.reference,
            new.key,
            new.amount,
            new.currency,
            new.state,
            new.target,
            new.created_us,
        )
        cursor = self._connection.execute(
            "INSERT INTO effects (id, provider, operation, reference, key, amount, currency, state,"
            " target, created_us, visible_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, new.visible_us),
        )
        return Effect(cursor.lastrowid or 0, *values)

    def find(self, provider: str, effect_id: str) -> Effect | None:
        """The row with this identifier."""
        rows = self._select("provider = ? AND id = ?", provider, effect_id)
        return rows[0] if rows else None

    def find_undo(self, provider: str, target: str) -> Effect | None:
        """The first row that undoes `target`."""
        rows = self._select(
            "target = ? AND provider = ? ORDER BY created_us, seq LIMIT 1", target, provider
        )
        return rows[0] if rows else None

    def undone_amount(self, target: str) -> int:
        """The sum of all refunds of `target`, in minor units."""
        row = self._connection.execute(
            "SELECT coalesce(sum(amount), 0) FROM effects WHERE target = ?", (target,)
        ).fetchone()
        return int(row[0])

    def move(self, effect_id: str, state: str) -> None:
        """Set a row's state."""
        self._connection.execute("UPDATE effects SET state = ? WHERE id = ?", (state, effect_id))

    def by_reference(
        self, provider: str, operation: str, reference: str, *, now_us: int, limit: int
    ) -> list[Effect]:
        """Visible rows under a reference, oldest first."""
        return self._select(
            "provider = ? AND operation = ? AND reference = ? AND visible_us <= ?"
            " ORDER BY created_us, seq LIMIT ?",
            provider,
            operation,
            reference,
            now_us,
            limit,
        )

    def between(
        self,
        provider: str,
        since_us: int,
        until_us: int,
        *,
        after: tuple[int, int] | None,
        now_us: int,
        limit: int,
    ) -> list[Effect]:
        """Visible rows created in [since, until), oldest first, behind the keyset `after`."""
        created_us, seq = after or (since_us, 0)
        return self._select(
            "provider = ? AND created_us >= ? AND created_us < ? AND (created_us, seq) > (?, ?)"
            " AND visible_us <= ? ORDER BY created_us, seq LIMIT ?",
            provider,
            max(since_us, created_us),
            until_us,
            created_us,
            seq,
            now_us,
            limit,
        )

    def everything(self, provider: str | None, *, after: int, limit: int) -> list[Effect]:
        """The ledger in the order of its commits, hidden rows included."""
        if provider is None:
            return self._select("seq > ? ORDER BY seq LIMIT ?", after, limit)
        return self._select("provider = ? AND seq > ? ORDER BY seq LIMIT ?", provider, after, limit)

    def stored_answer(self, provider: str, key: str, *, since_us: int) -> StoredAnswer | None:
        """What is remembered under a key since `since_us`."""
        row = self._connection.execute(
            "SELECT fingerprint, status, body FROM keys"
            " WHERE provider = ? AND key = ? AND created_us > ?",
            (provider, key, since_us),
        ).fetchone()
        return StoredAnswer(*row) if row else None

    def store_answer(
        self, provider: str, key: str, answer: StoredAnswer, *, created_us: int
    ) -> None:
        """Remember an answer under a key, in place of an expired one."""
        self._connection.execute(
            "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?, ?)",
            (provider, key, answer.fingerprint, answer.status, answer.body, created_us),
        )

    def forget_key(self, provider: str, key: str) -> None:
        """Drop what is remembered under a key."""
        self._connection.execute("DELETE FROM keys WHERE provider = ? AND key = ?", (provider, key))

    def order_courier(self, provider: str, instruction: str) -> None:
        """Keep what is ordered; the first order begins behind the last row."""
        self._connection.execute(
            "INSERT INTO couriers SELECT ?1, ?2, coalesce(max(seq), 0) FROM effects WHERE true"
            " ON CONFLICT (provider) DO UPDATE SET instruction = excluded.instruction",
            (provider, instruction),
        )

    def courier_orders(self) -> list[str]:
        """Every order."""
        return [row[0] for row in self._connection.execute("SELECT instruction FROM couriers")]

    def behind_courier(self, provider: str, *, before_us: int, limit: int) -> list[Effect]:
        """Rows that the courier has not told of, committed before a time, in order."""
        return self._select(
            "provider = ?1 AND seq > (SELECT cursor FROM couriers WHERE provider = ?1)"
            " AND created_us <= ?2 ORDER BY seq LIMIT ?3",
            provider,
            before_us,
            limit,
        )

    def move_courier(self, provider: str, cursor: int) -> None:
        """The courier has told of everything up to `cursor`."""
        self._connection.execute(
            "UPDATE couriers SET cursor = max(cursor, ?) WHERE provider = ?", (cursor, provider)
        )

    def cancel_courier(self) -> None:
        """Forget every order."""
        self._connection.execute("DELETE FROM couriers")

    def undos_up_to(self, target: str, seq: int) -> int:
        """How many rows up to `seq` undo a row: each of them has moved its state."""
        row = self._connection.execute(
            "SELECT count(*) FROM effects WHERE target = ? AND seq <= ?", (target, seq)
        ).fetchone()
        return int(row[0])

    def wipe(self, provider: str | None) -> None:
        """Empty the ledger and the keys, of one provider or of all."""
        for table in ("effects", "keys"):
            self._connection.execute(
                f"DELETE FROM {table} WHERE ?1 IS NULL OR provider = ?1",  # noqa: S608 two names
                (provider,),
            )

    def _select(self, condition: str, *values: str | int) -> list[Effect]:
        # Every `condition` is a literal of this class; the values are bound.
        query = f"SELECT {_COLUMNS} FROM effects WHERE {condition}"  # noqa: S608
        return [Effect(*row) for row in self._connection.execute(query, values)]


@dataclass(frozen=True)
class _Entry:
    write: Callable[[Pages], Any]
    done: asyncio.Future[Any]


class Books:
    """The ledger, shared by all providers. Use as an async context manager."""

    def __init__(self, path: Path) -> None:
        """Keep the ledger in the file `path`."""
        self._path = path
        self._backlog: asyncio.Queue[_Entry] = asyncio.Queue(BACKLOG_MAX)
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="books-writer")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="books-reader")

    async def __aenter__(self) -> Self:
        """Open the file and start the writer. Raises sqlite3.Error when it is no ledger."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        loop = asyncio.get_running_loop()
        self._writer = await loop.run_in_executor(self._writing, self._open)
        self._reader = await loop.run_in_executor(self._reading, self._open)
        self._committing = asyncio.create_task(self._commit_for_ever(), name="books-writer")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the writer and close the file. What was not committed has not been answered."""
        self._committing.cancel()
        await asyncio.gather(self._committing, return_exceptions=True)
        self._writing.submit(self._writer.close).result()
        self._reading.submit(self._reader.close).result()
        self._writing.shutdown()
        self._reading.shutdown()

    async def write(self, change: Callable[[Pages], T]) -> T:
        """Run `change` in a transaction and return its result once that is committed."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        await self._backlog.put(_Entry(change, done))
        return await done

    async def read(self, query: Callable[[Pages], T]) -> T:
        """Run `query` on a snapshot that holds every commit answered so far."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, query, Pages(self._reader))

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, isolation_level=None, timeout=10.0, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(SCHEMA)
        return connection

    async def _commit_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._backlog.get()]
            while len(batch) < BATCH_MAX and not self._backlog.empty():
                batch.append(self._backlog.get_nowait())
            results = await loop.run_in_executor(self._writing, self._commit, batch)
            for entry, (value, error) in zip(batch, results, strict=True):
                if entry.done.done():  # its caller went away; the commit stands
                    continue
                if error is None:
                    entry.done.set_result(value)
                else:
                    entry.done.set_exception(error)

    def _commit(self, batch: list[_Entry]) -> list[tuple[Any, Exception | None]]:
        try:
            return self._commit_together(batch)
        except Exception as error:  # noqa: BLE001 one bad change must not undo its neighbours
            if len(batch) == 1:
                return [(None, error)]
            return [result for entry in batch for result in self._commit([entry])]

    def _commit_together(self, batch: list[_Entry]) -> list[tuple[Any, Exception | None]]:
        pages = Pages(self._writer)
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            values = [entry.write(pages) for entry in batch]
            self._writer.execute("COMMIT")
        except BaseException:
            self._writer.rollback()
            raise
        return [(value, None) for value in values]
