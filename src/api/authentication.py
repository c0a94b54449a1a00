"""Who is calling: bearer keys, checked against a copy of the key table that is seconds old."""

import asyncio
import time
from collections.abc import Callable
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

UNSURE_SECONDS = 1.5
"""A copy older than this cannot say that a tenant has no endpoints: it may have its first by now.
Making an endpoint waits for as long before it answers. More than the pause between renewals."""

MISS_REFRESH_SECONDS = 0.25
"""A key that is not known may be new: look, but not more often than this."""

RENEW_SECONDS = 2.0
"""Postgres that hangs must not hold up those who only want to know who they are."""

JOIN_SECONDS = 1.0
"""A stale copy: an attempt that began so recently, and failed, speaks for this request too."""

_log = structlog.get_logger(__name__)
_CHALLENGE = {"www-authenticate": 'Bearer realm="tallystick"'}


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever holds the key."""

    tenant: str
    role: Role
    key_id: str
    tells: bool = True
    """Whether the tenant may have endpoints that are told of its operations: yes, when in doubt."""

    def require_operator(self) -> None:
        """Raises Problem(forbidden) for a client."""
        if self.role is not Role.OPERATOR:
            raise Problem(
                ProblemName.FORBIDDEN,
                "This needs a key with the role operator.",
            )


class KeyRing:
    """The live keys, renewed every second, so that no request waits for a database read."""

    def __init__(self, access: Access, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is known before the first renewal."""
        self._access = access
        self._clock = clock
        self._keys: dict[str, ApiKey] = {}
        self._renewed_at = float("-inf")
        self._failed_at = float("-inf")
        self._renewing = asyncio.Lock()

    async def keep_fresh(self) -> None:
        """Renew for as long as it runs."""
        while True:
            try:
                await self._ensure_asked_since(self._clock())
            except StorageUnavailable as error:
                _log.warning("keys.not_renewed", reason=str(error))
            await asyncio.sleep(REFRESH_SECONDS)

    async def renew(self) -> None:
        """Read the live keys now. Raises StorageUnavailable."""
        asked_at = self._clock()
        try:
            async with asyncio.timeout(RENEW_SECONDS):
                self._keys = await self._access.live_keys()
        except (StorageUnavailable, TimeoutError) as error:
            self._failed_at = asked_at
            raise StorageUnavailable("The keys could not be read") from error
        self._renewed_at = asked_at

    async def identify(self, request: Request) -> Caller:
        """The caller of `request`. Raises Problem (unauthenticated, storage-unavailable)."""
        parts = split_token(_bearer(request))
        if parts is None:
            raise _unauthenticated("The bearer token is not a Tallystick API key.")
        key = await self._find(parts[0])
        if key is None or not key.opens_with(parts[1]):
            raise _unauthenticated("The API key is unknown or revoked.")
        unsure = self._clock() - self._renewed_at > UNSURE_SECONDS
        return Caller(tenant=key.tenant, role=key.role, key_id=key.id, tells=key.tells or unsure)

    def is_live(self, caller: Caller) -> bool:
        """Whether the caller's key still counts, as far as is known."""
        return caller.key_id in self._keys

    async def _find(self, key_id: str) -> ApiKey | None:
        """The key, from a copy that is young enough; one that is missing may be new: look anew."""
        now = self._clock()
        try:
            if now - self._renewed_at > STALE_SECONDS:
                await self._ensure_asked_since(now - JOIN_SECONDS)
            if key_id not in self._keys:
                await self._ensure_asked_since(now)
        except StorageUnavailable:
            raise storage_unavailable() from None
        return self._keys.get(key_id)

    async def _ensure_asked_since(self, moment: float) -> None:
        """Have the keys been asked for at `moment` or later? If not, ask; one asks for all.

        A flood of unknown keys costs one read in MISS_REFRESH_SECONDS, and those who sent them wait
        for it. A failure is shared too, or an outage would have them try one after another.
        """
        async with self._renewing:
            if self._failed_at >= moment and self._failed_at > self._renewed_at:
                raise StorageUnavailable("The keys could not be read just now")
            if self._renewed_at >= moment:
                return
            last = max(self._renewed_at, self._failed_at)
            await asyncio.sleep(max(0.0, last + MISS_REFRESH_SECONDS - self._clock()))
            await self.renew()


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
