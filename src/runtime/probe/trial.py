"""What one rule works with: requests under its own nonce, and the effects they had."""

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TypeAlias, cast
from urllib.parse import quote, urlsplit

from runtime.probe.bodies import Bodies
from runtime.probe.client import Answer, Client, NoAnswerError, Request
from runtime.probe.configuration import Configuration, KeyFormat, value_at

_POLL_FIRST_SECONDS = 0.02
_POLL_LONGEST_SECONDS = 0.5
_COUNT_AGAIN_SECONDS = 0.1
# 429 is not about the key, so it must not be taken for a refusal of one.
_RATE_LIMITED_ATTEMPTS = 4
_RATE_LIMITED_PAUSE_SECONDS = 5.0


class RuleBrokenError(Exception):
    """A rule is broken, whatever else it was about to look at. The message is what was seen."""


class RateLimitedError(Exception):
    """The service refuses for the rate alone (429), so nothing can be concluded."""


class EffectsUnreadableError(Exception):
    """Effects cannot be counted as the configuration says."""


class Key(Enum):
    """Keys that are not text."""

    ABSENT = "absent"
    """No key header at all."""


KeyLines: TypeAlias = str | bytes | tuple[bytes, ...] | Key
"""An ordinary key, the raw value of the header, several raw lines, or no header."""


@dataclass(frozen=True)
class Service:
    """The service under test: how to reach it and how it is configured."""

    configuration: Configuration
    client: Client
    effects_client: Client | None
    prefix: str
    """The path of the URL that the user gave, without its last slash."""
    usual_seconds: float = 0.0
    """How long one operation took when nothing disturbed it."""


class Trial:
    """The requests of one rule. Any 5xx breaks the rule that provoked it."""

    def __init__(self, service: Service, *, label: str) -> None:
        """A trial with a nonce of its own, for the rule named `label`."""
        self.service = service
        self.configuration = service.configuration
        self.nonce = f"probe-{label}-{secrets.token_hex(6)}"
        self.bodies = Bodies(service.configuration.body, nonce=self.nonce)
        self.random = Random(f"{service.configuration.limits.seed}:{label}")  # noqa: S311
        self._before: int | None = None

    async def __aenter__(self) -> "Trial":
        """Remember how many effects there are before the first request."""
        self._before = await self._count()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is held open."""

    def new_key(self) -> str:
        """A key never used before: 40 characters of visible ASCII."""
        return f"probe-{secrets.token_hex(17)}"

    def request(
        self,
        key: KeyLines,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str | None] | None = None,
        query: str | None = None,
    ) -> Request:
        """The configured request under `key`; a header given as None is left out."""
        target = self.configuration.target
        merged = dict(target.headers)
        for name, value in (headers or {}).items():
            present = [known for known in merged if known.lower() == name.lower()]
            for known in present:
                del merged[known]
            if value is not None:
                merged[name] = value
        lines = [(name.encode("ascii"), value.encode()) for name, value in merged.items()]
        name = target.key_header.encode("ascii")
        lines += [(name, value) for value in self._key_values(key)]
        path = self.service.prefix + target.path
        if query is not None:
            path += ("&" if "?" in path else "?") + query
        content = self.bodies.plain if body is None else body
        return Request(target.method, path, tuple(lines), content)

    async def send(self, request: Request) -> Answer:
        """Send; when told that the rate is too high, wait as told and send again, within bounds.

        Raises RuleBrokenError for 5xx, RateLimitedError, and what the client raises.
        """
        for _ in range(_RATE_LIMITED_ATTEMPTS):
            answer = await self.service.client.exchange(request)
            if not self._is_rate_limited(answer):
                return _not_broken(answer)
            told = answer.header("retry-after") or "1"
            seconds = float(told) if told.isascii() and told.isdecimal() else 1.0
            await asyncio.sleep(min(seconds, _RATE_LIMITED_PAUSE_SECONDS))
        raise RateLimitedError(f"answered 429 {_RATE_LIMITED_ATTEMPTS} times")

    async def send_together(self, requests: list[Request]) -> list[Answer]:
        """Send all at once. Raises as `send`, and RateLimitedError at the first 429."""
        answers = await self.service.client.exchange_together(requests)
        if any(self._is_rate_limited(answer) for answer in answers):
            raise RateLimitedError("some of the simultaneous requests were answered 429")
        return [_not_broken(answer) for answer in answers]

    async def settle(self, request: Request, *, conflict_is_progress: bool = True) -> Answer:
        """Send, and repeat while the answer says that the first one still runs.

        409 means both "still running" and "other content": where the latter may come,
        `conflict_is_progress` is false. Raises RuleBrokenError when it never ends.
        """
        statuses = self.configuration.in_progress.statuses
        waiting_on = statuses if conflict_is_progress else statuses - {409}
        deadline = time.monotonic() + self.configuration.target.operation_seconds
        pause_seconds = _POLL_FIRST_SECONDS
        while True:
            answer = await self.send(request)
            if answer.status not in waiting_on:
                return answer
            if time.monotonic() > deadline:
                limit = self.configuration.target.operation_seconds
                raise RuleBrokenError(f"still answered {answer.status} after {limit:g} s")
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _POLL_LONGEST_SECONDS)

    async def first(self, key: KeyLines, body: bytes | None = None) -> Answer:
        """The settled answer of a first request that has to succeed. Raises RuleBrokenError."""
        answer = await self.settle(self.request(key, body))
        if not answer.succeeded:
            raise RuleBrokenError(f"an ordinary first request was answered {answer.status}")
        return answer

    def is_in_progress(self, answer: Answer) -> bool:
        """Whether an answer to an identical request says "still running"."""
        return answer.status in self.configuration.in_progress.statuses

    def _is_rate_limited(self, answer: Answer) -> bool:
        return answer.status == 429 and not self.is_in_progress(answer)

    async def effects(self, expected: int) -> int | None:
        """How many effects this trial had, once they had time to appear; None when not counted.

        Waits until `expected` are there, within the time of an operation, then watches for more.
        """
        if self._before is None:
            return None
        target = self.configuration.target
        deadline = time.monotonic() + target.operation_seconds
        while True:
            seen = await self._since()
            if seen >= expected or time.monotonic() > deadline:
                break
            await asyncio.sleep(_COUNT_AGAIN_SECONDS)
        if target.settle_seconds > 0:
            await asyncio.sleep(target.settle_seconds)
            seen = await self._since()
        return seen

    async def _since(self) -> int:
        return (await self._count() or 0) - (self._before or 0)

    async def read_status(self, key: str, *, headers: Mapping[str, str]) -> Answer | None:
        """GET the configured status of `key`; None when none is configured."""
        status = self.configuration.status
        if status is None:
            return None
        path = self.service.prefix + status.path.replace("{{key}}", quote(key, safe=""))
        merged = {**self.configuration.target.headers, **headers}
        lines = tuple((name.encode("ascii"), value.encode()) for name, value in merged.items())
        return await self.send(Request("GET", path, lines))

    def _key_values(self, key: KeyLines) -> tuple[bytes, ...]:
        if isinstance(key, Key):
            return ()
        if isinstance(key, bytes):
            return (key,)
        if isinstance(key, tuple):
            return key
        quoted = self.configuration.target.key_format is KeyFormat.QUOTED
        return ((f'"{key}"' if quoted else key).encode("ascii"),)

    async def _count(self) -> int | None:
        effects, client = self.configuration.effects, self.service.effects_client
        if effects is None or client is None:
            return None
        path = self.service.prefix + effects.url
        if not effects.url.startswith("/"):
            parts = urlsplit(effects.url)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = tuple((n.encode("ascii"), v.encode()) for n, v in effects.headers.items())
        try:
            answer = await client.exchange(Request("GET", path, lines))
            if answer.status != 200:
                raise EffectsUnreadableError(f"GET {path} was answered {answer.status}")
            found = value_at(answer.document(), effects.pointer)
        except (NoAnswerError, ValueError) as error:
            raise EffectsUnreadableError(f"GET {path}: {error}") from error
        return self._number_in(found, field=effects.field)

    def _number_in(self, found: object, *, field: str | None) -> int:
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        if not isinstance(found, list):
            raise EffectsUnreadableError(
                "effects.pointer leads neither to an array nor to a number"
            )
        items = cast("list[object]", found)
        if field is None:
            return len(items)
        return sum(self.nonce in str(_member(item, field)) for item in items)


def _member(item: object, field: str) -> object:
    return cast("dict[str, object]", item).get(field) if isinstance(item, dict) else None


def _not_broken(answer: Answer) -> Answer:
    if answer.status >= 500:
        raise RuleBrokenError(f"answered {answer.status}")
    return answer
