"""One HTTP request to a provider, and what its answer tells about the effect.

Sent or not sent is the only question that matters when a call fails:

| what happened | we know | raised |
|---|---|---|
| name unknown, connection refused, connect or pool timeout | nothing left | `Unavailable` |
| anything later: read timeout, reset, broken or endless answer | nothing | `EffectUnknown` |
| a kept-alive connection found closed; an undocumented status | nothing | `EffectUnknown` |
| an answer the provider documents | what it documents | the client's own table |

aiohttp itself, not httpx over it: a third of the processor time, and its errors say whether there
was a connection. The httpx transport hides that: a lost connection becomes a `ConnectTimeout`.
A POST is never resent: aiohttp repeats only methods that HTTP calls idempotent, and only on a
kept-alive connection found closed (RFC 9110, section 9.2.2).
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, NoReturn, cast

import aiohttp

from operations.errors import Declined, EffectUnknown, KeyMismatch, Unavailable
from operations.guarantees import ProviderProfile

ANSWER_MAX_BYTES = 1024 * 1024
"""Of one answer: a page of a thousand records needs a quarter of it."""

CONNECTIONS_MAX = 100

KEEPALIVE_SECONDS = 5.0
"""Shorter than what servers commonly grant: a connection that the server closes while we write to
it leaves the outcome unknown, and that is expensive."""

CONNECT_SHARE = 0.5
"""Of the deadline, for getting a connection: what the whole deadline ends has been sent."""

RETRY_AFTER_MAX_SECONDS = 86_400.0
"""A provider that asks for more than a day is asked again after a day."""


NOTHING_LEFT = (
    aiohttp.ClientConnectorError,  # refused, unreachable, unknown name, no TLS
    aiohttp.ConnectionTimeoutError,  # no connection in time, new or from the pool
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
)
"""How aiohttp says that there was no connection."""


class Meaning(StrEnum):
    """What a documented answer says about the effect."""

    DECLINED = "declined"
    """Definitely refused, and it always will be."""
    NOT_APPLIED = "not_applied"
    """Nothing happened; the same request may succeed later."""
    MISMATCH = "mismatch"
    """The key is known with other content."""


Documented = Mapping[tuple[int, str], Meaning]
"""By status and error code. What is not in it is unknown."""

COMMON_ANSWERS: Documented = {
    (401, "unauthenticated"): Meaning.NOT_APPLIED,
    (413, "invalid_request"): Meaning.DECLINED,
    (422, "invalid_request"): Meaning.DECLINED,
    (429, "rate_limited"): Meaning.NOT_APPLIED,
}
"""What all simulated providers document alike."""


@dataclass(frozen=True)
class Answer:
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    document: dict[str, Any] | None
    """The body, a JSON object; None when it is something else."""


class NotSentError(Exception):
    """No connection: nothing has left."""


class LostError(Exception):
    """The request may have arrived, and there is no usable answer."""


class HttpCalls:
    """The connections to one provider. Safe to share between tasks of one event loop."""

    def __init__(
        self,
        base_url: str,
        *,
        profile: ProviderProfile,
        token: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Talk to `base_url` within the deadlines of `profile`; `now` reads dates in Retry-After.

        Connections are made on the first call, in the event loop of that call.
        """
        self._base_url = base_url.rstrip("/")
        self._profile = profile
        self._now = now
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._opened: aiohttp.ClientSession | None = None

    async def send(
        self, path: str, *, body: bytes, headers: Mapping[str, str], documented: Documented
    ) -> dict[str, Any]:
        """POST `body` once and return the document of a 2xx.

        Raises Declined, Unavailable, EffectUnknown, KeyMismatch.
        """
        name = self._profile.provider
        try:
            answer = await self._call(
                "POST", path, data=body, headers={"Content-Type": "application/json", **headers}
            )
        except NotSentError as error:
            raise Unavailable(f"{name} could not be reached: {error}") from error
        except LostError as error:
            raise EffectUnknown(f"{name} did not answer: {error}") from error
        if 200 <= answer.status < 300 and answer.document is not None:
            return answer.document
        return self._refuse(answer, documented)

    async def fetch(self, path: str, *, query: Mapping[str, str]) -> dict[str, Any]:
        """GET a document. Raises Unavailable for whatever goes wrong: a read has no effect."""
        name = self._profile.provider
        try:
            answer = await self._call("GET", path, params=query)
        except (NotSentError, LostError) as error:
            raise Unavailable(f"{name}'s records could not be read: {error}") from error
        if answer.status == 200 and answer.document is not None:
            return answer.document
        raise Unavailable(
            f"{name}'s records could not be read: status {answer.status}",
            retry_after_seconds=self._retry_after(answer),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            await self._opened.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            connect_seconds = self._profile.send_timeout_seconds * CONNECT_SHARE
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=CONNECTIONS_MAX, keepalive_timeout=KEEPALIVE_SECONDS
                ),
                headers=self._headers,
                skip_auto_headers=("Accept-Encoding",),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, connect=connect_seconds),
                trust_env=False,  # no proxy between us and the question whether it was sent
            )
        return self._opened

    async def _call(self, method: str, path: str, **request: Any) -> Answer:
        url = self._base_url + path
        try:
            async with (
                asyncio.timeout(self._profile.send_timeout_seconds),
                self._session().request(method, url, allow_redirects=False, **request) as response,
            ):
                body = await _read_bounded(response)
        except NOTHING_LEFT as error:
            raise NotSentError(type(error).__name__) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise LostError(type(error).__name__) from error
        return Answer(response.status, response.headers, _parse(body))

    def _refuse(self, answer: Answer, documented: Documented) -> NoReturn:
        code, message = _error_of(answer.document)
        name = self._profile.provider
        match documented.get((answer.status, code)):
            case Meaning.DECLINED:
                raise Declined(f"{name} refused: {message}", code=code)
            case Meaning.NOT_APPLIED:
                raise Unavailable(
                    f"{name} did not apply it: {message}",
                    retry_after_seconds=self._retry_after(answer),
                )
            case Meaning.MISMATCH:
                raise KeyMismatch(f"{name} knows this key with other content: {message}")
            case None:
                raise EffectUnknown(
                    f"{name} answered {answer.status} {code}".rstrip(),
                    retry_after_seconds=self._retry_after(answer),
                )

    def _retry_after(self, answer: Answer) -> float | None:
        return retry_after_seconds(answer.headers.get("Retry-After"), now=self._now())


def retry_after_seconds(value: str | None, *, now: datetime) -> float | None:
    """Read `Retry-After`: seconds or a date (RFC 9110, section 10.2.3); None if unreadable."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - now).total_seconds()
    return min(max(seconds, 0.0), RETRY_AFTER_MAX_SECONDS)


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > ANSWER_MAX_BYTES:
            raise LostError("the answer is too long")
    return bytes(body)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else None


def _error_of(document: dict[str, Any] | None) -> tuple[str, str]:
    """The code and the sentence of `{"error": {"code", "message"}}`, bounded; else empty."""
    error = (document or {}).get("error")
    if not isinstance(error, dict):
        return "", "it gave no reason"
    reasons = cast("dict[str, Any]", error)
    code, message = reasons.get("code") or "", reasons.get("message") or "it gave no reason"
    return str(code)[:100], str(message)[:300]
