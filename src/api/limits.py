"""Limits per tenant: how many new operations a second, and how many event streams at once."""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from api.problems import Problem, ProblemName

STREAMS_PER_TENANT_MAX = 100
"""In one process. A stream costs a socket and little else; a leak in a client should be noticed."""

Scope = tuple[str, str, str]
"""Tenant, operation and key."""


@dataclass(slots=True)
class _Bucket:
    """Tokens of one tenant. Below zero: somebody went ahead on another's token, who then failed."""

    tokens: float
    filled_at: float


@dataclass(slots=True)
class Admission:
    """Whether one request may claim a key that nobody has used yet."""

    granted: bool
    retry_after_seconds: int
    took_token: bool
    fresh: bool = field(default=False)

    def settle(self, *, fresh: bool) -> None:
        """Say whether it was new: what was not costs nothing."""
        self.fresh = fresh

    def refusal(self) -> Problem:
        """What a new operation is told."""
        return Problem(
            ProblemName.RATE_LIMITED,
            "This tenant starts operations faster than it may. Nothing was done.",
            headers={"retry-after": str(max(self.retry_after_seconds, 1))},
        )


class FirstRequests:
    """A token bucket per tenant, for operations that are new. Replays and attaches are free."""

    def __init__(
        self, *, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`per_second` 0 is no limit; `burst` is how many may come at once."""
        self._per_second = per_second
        self._burst = float(max(burst, 1))
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._claiming: Counter[Scope] = Counter()

    @contextlib.contextmanager
    def admission(self, scope: Scope) -> Generator[Admission]:
        """Admit a request of `scope` for the length of its claim.

        Whether it is new is only known afterwards, so a token is taken before and given back when
        it was not needed. A request that comes while the same key is being claimed needs none.
        Not granted: the caller looks whether the key is in use, and refuses only what is new.
        """
        if self._per_second <= 0:
            yield Admission(granted=True, retry_after_seconds=0, took_token=False)
            return
        bucket = self._filled(scope[0])
        beside = self._claiming[scope] > 0
        if not beside and bucket.tokens < 1:
            wait = math.ceil((1 - bucket.tokens) / self._per_second)
            yield Admission(granted=False, retry_after_seconds=wait, took_token=False)
            return
        bucket.tokens -= 0 if beside else 1
        self._claiming[scope] += 1
        admission = Admission(granted=True, retry_after_seconds=0, took_token=not beside)
        try:
            yield admission
        finally:
            self._claiming[scope] -= 1
            if self._claiming[scope] <= 0:
                del self._claiming[scope]
            bucket.tokens += int(admission.took_token) - int(admission.fresh)

    def _filled(self, tenant: str) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.setdefault(tenant, _Bucket(tokens=self._burst, filled_at=now))
        grown = bucket.tokens + (now - bucket.filled_at) * self._per_second
        bucket.tokens, bucket.filled_at = min(self._burst, grown), now
        return bucket


class Streams:
    """The event streams of this process, counted by tenant."""

    def __init__(self) -> None:
        """None is open."""
        self._open: Counter[str] = Counter()

    def check(self, tenant: str) -> None:
        """Raises Problem (rate-limited) when the tenant has as many as it may."""
        if self._open[tenant] >= STREAMS_PER_TENANT_MAX:
            raise Problem(
                ProblemName.RATE_LIMITED,
                f"This tenant has {STREAMS_PER_TENANT_MAX} event streams open here. Close some.",
                headers={"retry-after": "5"},
            )

    @contextlib.contextmanager
    def opened(self, tenant: str) -> Generator[None]:
        """Count one stream for as long as it is open."""
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if self._open[tenant] <= 0:
                del self._open[tenant]

    def count(self) -> int:
        """How many are open."""
        return self._open.total()
