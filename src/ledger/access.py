"""Who may call: tenants, and API keys of which only hashes are kept."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sqlalchemy import bindparam, exists, select, update
from sqlalchemy.dialects.postgresql import insert

from ledger.database import Database
from ledger.message_tables import endpoints
from ledger.statements import Statement
from ledger.tables import api_keys, tenants

TOKEN_PREFIX = "tsk"  # noqa: S105 - a marker that secret scanners can find, not a secret
SECRET_BYTES = 32


class Role(StrEnum):
    """What a key may do."""

    CLIENT = "client"
    """Submit and read the tenant's operations."""
    OPERATOR = "operator"
    """That, and cancel, resolve and reconcile."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One API key, without its secret."""

    id: str
    tenant: str
    role: Role
    created_at: datetime
    revoked_at: datetime | None = None
    secret_hash: bytes = field(default=b"", repr=False)
    tells: bool = True
    """Whether its tenant had endpoints when the key was read."""

    def opens_with(self, secret: str) -> bool:
        """Whether `secret` is this key's, compared in constant time."""
        return hmac.compare_digest(self.secret_hash, hash_secret(secret))


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key, and the only sight of its secret."""

    key: ApiKey
    token: str = field(repr=False)
    """`tsk_<id>_<secret>`: what a client sends as bearer."""


_tells = exists().where(endpoints.c.tenant == api_keys.c.tenant).label("tells")
_COLUMNS = (*api_keys.c, _tells)
_ADD_TENANT = Statement(
    insert(tenants)
    .values(name=bindparam("name"), created_at=bindparam("now"))
    .on_conflict_do_nothing()
)
_ADD_KEY = Statement(
    insert(api_keys).values(
        id=bindparam("id"),
        tenant=bindparam("tenant"),
        role=bindparam("role"),
        secret_hash=bindparam("secret_hash"),
        created_at=bindparam("now"),
    )
)
_LIVE = Statement(select(*_COLUMNS).where(api_keys.c.revoked_at.is_(None)))
_ALL = Statement(select(*_COLUMNS).order_by(api_keys.c.created_at, api_keys.c.id))
_REVOKE = Statement(
    update(api_keys)
    .where(api_keys.c.id == bindparam("id"), api_keys.c.revoked_at.is_(None))
    .values(revoked_at=bindparam("now"))
    .returning(api_keys.c.id)
)


class Access:
    """Issuing, listing and revoking keys. Every method raises StorageUnavailable."""

    def __init__(self, database: Database) -> None:
        """Use the pool of `database`."""
        self._database = database

    async def issue(self, *, tenant: str, role: Role, now: datetime) -> IssuedKey:
        """Make a key, and its tenant if it is the first one's, in one transaction."""
        key_id = secrets.token_hex(6)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        async with self._database.transaction() as connection:
            await connection.execute(*_ADD_TENANT(name=tenant, now=now))
            await connection.execute(
                *_ADD_KEY(
                    id=key_id,
                    tenant=tenant,
                    role=role.value,
                    secret_hash=hash_secret(secret),
                    now=now,
                )
            )
        key = ApiKey(id=key_id, tenant=tenant, role=role, created_at=now)
        return IssuedKey(key=key, token=f"{TOKEN_PREFIX}_{key_id}_{secret}")

    async def live_keys(self) -> dict[str, ApiKey]:
        """Every key that is not revoked, by its identifier."""
        return {key.id: key for key in await self._read(_LIVE)}

    async def all_keys(self) -> tuple[ApiKey, ...]:
        """Every key there ever was, oldest first."""
        return await self._read(_ALL)

    async def revoke(self, key_id: str, *, now: datetime) -> bool:
        """Revoke a key, in its own transaction. False when there is no such live key."""
        async with self._database.connection() as connection:
            return await connection.fetchrow(*_REVOKE(id=key_id, now=now)) is not None

    async def _read(self, statement: Statement) -> tuple[ApiKey, ...]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(*statement())
        return tuple(
            ApiKey(
                id=row["id"],
                tenant=row["tenant"],
                role=Role(row["role"]),
                created_at=row["created_at"],
                revoked_at=row["revoked_at"],
                secret_hash=row["secret_hash"],
                tells=row["tells"],
            )
            for row in rows
        )


def hash_secret(secret: str) -> bytes:
    """What is kept of a secret. It has 256 random bits, so one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).digest()


def split_token(token: str) -> tuple[str, str] | None:
    """The identifier and the secret in a token, or None when it is not one of ours."""
    prefix, _, rest = token.partition("_")
    key_id, _, secret = rest.partition("_")
    return (key_id, secret) if prefix == TOKEN_PREFIX and key_id and secret else None
