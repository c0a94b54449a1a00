"""Who is calling: bearer keys, checked against a copy of the key table that is seconds old."""

import asyncio
import time
from dataclasses import dataclass

import structlog
from starlette.requests import Request

from api.problems import Problem, ProblemName, storage_unavailable
from ledger.access import Access, ApiKey, Role, split_token
from ledger.database import StorageUnavailable

REFRESH_SECONDS = 1.0
STALE_SECONDS = 5.0
"""A revoked key works no longer than this. A copy that could not be renewed for so long is not
used: without Postgres nothing can be claimed anyway."""

MISS_REFRESH_SECONDS = 0.25
"""A key that is not known may be new: look, but not more often than this."""

_log = structlog.get_logger(__name__)
_CHALLENGE = {"www-authenticate": 'Bearer realm="tallystick"'}


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever holds the key."""

    tenant: str
    role: Role
    key_id: str

    def require_operator(self) -> None:
        """Raises Problem(forbidden) for a client."""
        if self.role is not Role.OPERATOR:
            raise Problem(
                ProblemName.FORBIDDEN,
                "This needs a key with the role operator.",
            )


class KeyRing:
    """The live keys, renewed every second, so that no request waits for a database read."""

    def __init__(self, access: Access) -> None:
        """Nothing is known before the first renewal."""
        self._access = access
        self._keys: dict[str, ApiKey] = {}
        self._renewed_at = float("-inf")
        self._renewing = asyncio.Lock()

    async def keep_fresh(self) -> None:
        """Renew for as long as it runs."""
        while True:
            try:
                await self.renew()
            except StorageUnavailable as error:
                _log.warning("keys.not_renewed", reason=str(error))
            await asyncio.sleep(REFRESH_SECONDS)

    async def renew(self) -> None:
        """Read the live keys now. Raises StorageUnavailable."""
        asked_at = time.monotonic()
        self._keys = await self._access.live_keys()
        self._renewed_at = asked_at

    async def identify(self, request: Request) -> Caller:
        """The caller of `request`. Raises Problem (unauthenticated, storage-unavailable)."""
        parts = split_token(_bearer(request))
        if parts is None:
            raise _unauthenticated("The bearer token is not a Tallystick API key.")
        key = await self._find(parts[0])
        if key is None or not key.opens_with(parts[1]):
            raise _unauthenticated("The API key is unknown or revoked.")
        return Caller(tenant=key.tenant, role=key.role, key_id=key.id)

    async def _find(self, key_id: str) -> ApiKey | None:
        if time.monotonic() - self._renewed_at > STALE_SECONDS:
            await self._renew_unless(younger_than_seconds=STALE_SECONDS)
        key = self._keys.get(key_id)
        if key is None:
            await self._renew_unless(younger_than_seconds=MISS_REFRESH_SECONDS)
            key = self._keys.get(key_id)
        return key

    async def _renew_unless(self, *, younger_than_seconds: float) -> None:
        async with self._renewing:
            if time.monotonic() - self._renewed_at <= younger_than_seconds:
                return
            try:
                await self.renew()
            except StorageUnavailable:
                raise storage_unavailable() from None


def _bearer(request: Request) -> str:
    values = request.headers.getlist("authorization")
    if not values:
        raise _unauthenticated("There is no Authorization header.")
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise _unauthenticated("Send exactly one `Authorization: Bearer` header.")
    return token.strip()


def _unauthenticated(detail: str) -> Problem:
    return Problem(ProblemName.UNAUTHENTICATED, detail, headers=_CHALLENGE)
