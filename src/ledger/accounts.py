"""Accounts of tenants: made and changed by a PUT that may be repeated, read with their tag."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from asyncpg import Record
from asyncpg.exceptions import (
    CheckViolationError,
    ForeignKeyViolationError,
    LockNotAvailableError,
    UniqueViolationError,
)
from sqlalchemy import bindparam, select, update
from sqlalchemy.dialects.postgresql import insert

from ledger.account_tables import accounts
from ledger.database import Connection, Database, Overtaken, StorageUnavailable
from ledger.statements import Statement
from operations.accounts import AccountTerms

LOCK_WAIT_SECONDS = 2.0
"""How long an account is waited for that a transfer holds; a transfer takes milliseconds."""

TRIES = 5

_COLUMNS = tuple(accounts.c)
_by_id = (accounts.c.tenant == bindparam("tenant")) & (accounts.c.id == bindparam("id"))
_BOUND_LOCK_WAIT = "SELECT set_config('lock_timeout', $1, true)"
_READ = Statement(select(*_COLUMNS).where(_by_id))
_LOCK = Statement(select(*_COLUMNS).where(_by_id).with_for_update())
_INSERT = Statement(
    insert(accounts)
    .values(
        tenant=bindparam("tenant"),
        id=bindparam("id"),
        currency=bindparam("currency"),
        floor_minor=bindparam("floor_minor"),
        created_at=bindparam("now"),
    )
    .on_conflict_do_nothing(index_elements=["tenant", "id"])
    .returning(*_COLUMNS)
)
_CHANGE = Statement(
    update(accounts)
    .where(_by_id)
    .values(
        currency=bindparam("currency"),
        floor_minor=bindparam("floor_minor"),
        revision=accounts.c.revision + 1,
    )
    .returning(*_COLUMNS)
)


@dataclass(frozen=True, slots=True)
class Account:
    """A row of `accounts`."""

    tenant: str
    id: str
    terms: AccountTerms
    balance_minor: int
    revision: int

    @classmethod
    def from_row(cls, row: Record) -> "Account":
        """Read a row that has all columns."""
        terms = AccountTerms(currency=row["currency"], floor_minor=row["floor_minor"])
        return cls(
            tenant=row["tenant"],
            id=row["id"],
            terms=terms,
            balance_minor=row["balance_minor"],
            revision=row["revision"],
        )

    @property
    def etag(self) -> str:
        """A strong ETag. Every change counts the revision up; tenants share paths, never tags."""
        named = f"{self.tenant}/{self.id}/{self.revision}"
        return f'"{hashlib.sha256(named.encode()).hexdigest()[:32]}"'


class AccountRefusal(StrEnum):
    """Why an account was left as it is."""

    PRECONDITION_FAILED = "precondition_failed"
    CURRENCY_IN_USE = "currency_in_use"
    """It has entries, and they are in its currency."""
    FLOOR_ABOVE_BALANCE = "floor_above_balance"


@dataclass(frozen=True, slots=True)
class Put:
    """What a PUT did."""

    account: Account
    created: bool


class Accounts:
    """Every method raises StorageUnavailable when Postgres cannot answer."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def read(self, *, tenant: str, account_id: str) -> Account | None:
        """Read an account."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(*_READ(tenant=tenant, id=account_id))
        return None if row is None else Account.from_row(row)

    async def put(
        self,
        terms: AccountTerms,
        *,
        tenant: str,
        account_id: str,
        allowed: Callable[[Account | None], bool],
        now: datetime,
    ) -> Put | AccountRefusal:
        """Make the account, or change its terms, in one transaction, if `allowed` says so of what
        there is. Terms that it has already change nothing."""
        for _ in range(TRIES):
            try:
                async with self._database.transaction() as connection:
                    done = await _put(
                        connection,
                        terms,
                        tenant=tenant,
                        account_id=account_id,
                        allowed=allowed,
                        now=now,
                    )
            except LockNotAvailableError:
                raise StorageUnavailable("The account is held by others") from None
            except (Overtaken, UniqueViolationError):
                # Made at this very moment: it can meet the other unique key first. Look again.
                continue
            except ForeignKeyViolationError:
                return AccountRefusal.CURRENCY_IN_USE
            except CheckViolationError:
                return AccountRefusal.FLOOR_ABOVE_BALANCE
            if done is not None:
                return done
        raise StorageUnavailable("The account kept changing")


async def _put(
    connection: Connection,
    terms: AccountTerms,
    *,
    tenant: str,
    account_id: str,
    allowed: Callable[[Account | None], bool],
    now: datetime,
) -> Put | AccountRefusal | None:
    """None when somebody else made the account at this very moment: look again."""
    await connection.execute(_BOUND_LOCK_WAIT, f"{int(LOCK_WAIT_SECONDS * 1000)}ms")
    row = await connection.fetchrow(*_LOCK(tenant=tenant, id=account_id))
    before = None if row is None else Account.from_row(row)
    if not allowed(before):
        return AccountRefusal.PRECONDITION_FAILED
    if before is not None and before.terms == terms:
        return Put(account=before, created=False)
    values = {"currency": terms.currency, "floor_minor": terms.floor_minor}
    if before is None:
        made = await connection.fetchrow(*_INSERT(tenant=tenant, id=account_id, now=now, **values))
        return None if made is None else Put(account=Account.from_row(made), created=True)
    changed = await connection.fetchrow(*_CHANGE(tenant=tenant, id=account_id, **values))
    assert changed is not None
    return Put(account=Account.from_row(changed), created=False)
