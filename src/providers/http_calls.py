"""One HTTP request to a provider, and what its answer tells about the effect.

Sent or not sent is the only question that matters when a call fails:

| what happened | we know | raised |
|---|---|---|
| name unknown, connection refused, connect or pool timeout | nothing left | `Unavailable` |
| anything later: read timeout, reset, broken or endless answer | nothing | `EffectUnknown` |
| a kept-alive connection found closed; an undocumented status | nothing | `EffectUnknown` |
| an answer the provider documents | what it documents | the client's own table |

httpx's client on a transport of our own, which keeps the two apart (`providers.transport` says
why). A POST is never sent twice; a GET may be, on a kept-alive connection found closed.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, NoReturn, cast

import httpx

from operations.errors import Declined, EffectUnknown, KeyMismatch, Unavailable
from operations.guarantees import ProviderProfile
from providers.transport import AiohttpTransport

ANSWER_MAX_BYTES = 1024 * 1024
"""Of one answer, as it is on the wire: a page of a thousand records needs a quarter of it."""

CONNECT_SHARE = 0.5
"""Of the deadline, for getting a connection: what the whole deadline ends has been sent."""

RETRY_AFTER_MAX_SECONDS = 86_400.0
"""A provider that asks for more than a day is asked again after a day."""

PATHS_MAX = 64
"""Addresses kept parsed; a provider has two or three."""

NOTHING_LEFT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)
"""How httpx says that there was no connection."""

LOST = (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError)
"""Everything else. An address that is none is found before the request is sent, so `InvalidURL`
from then on is about the answer: a `Location` that httpx parses although we never follow it."""


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


class _NoCookies(httpx.Cookies):
    """Keeps none: httpx's jar parses every answer, and grows."""

    def extract_cookies(self, response: httpx.Response) -> None:
        """Leave them."""


class _Client(httpx.AsyncClient):
    """httpx's client without its cookie jar."""

    @property
    def cookies(self) -> httpx.Cookies:
        """None, ever."""
        return _NO_COOKIES

    @cookies.setter
    def cookies(self, cookies: object) -> None:
        raise AttributeError(f"a provider is sent no cookies: {cookies}")


_NO_COOKIES = _NoCookies()

_DONE = httpx.ByteStream(b"")
"""Instead of a stream that has been read: httpx's refers back to its response, and a cycle per call
would leave the memory of every call to the garbage collector."""


class HttpCalls:
    """The connections to one provider. Safe to share between tasks of one event loop."""

    def __init__(
        self,
        base_url: str,
        *,
        profile: ProviderProfile,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Talk to `base_url` within the deadlines of `profile`; `now` reads dates in Retry-After.

        Connections are made on the first call, in the event loop of that call. A `transport` of
        another kind (through a proxy, to an application in this process) has to raise
        `NOTHING_LEFT` for what it never sent and for nothing else. It is closed with the calls.
        """
        self._base_url = base_url.rstrip("/")
        self._profile = profile
        self._now = now
        self._headers = [
            (b"Accept", b"application/json"),
            (b"Accept-Encoding", b"identity"),
            (b"User-Agent", b"tallystick"),
        ]
        if token:
            self._headers.append((b"Authorization", b"Bearer " + token.encode()))
        connect_seconds = profile.send_timeout_seconds * CONNECT_SHARE
        timeout = httpx.Timeout(None, connect=connect_seconds, pool=connect_seconds)
        self._extensions = {"timeout": timeout.as_dict()}
        self._address = lru_cache(maxsize=PATHS_MAX)(self._parse_address)
        self._client = _Client(
            transport=AiohttpTransport() if transport is None else transport,
            trust_env=False,  # no proxy between us and the question whether it was sent
            follow_redirects=False,
        )

    async def send(
        self, path: str, *, body: bytes, headers: Mapping[str, str], documented: Documented
    ) -> dict[str, Any]:
        """POST `body` once and return the document of a 2xx.

        Raises Declined, Unavailable, EffectUnknown, KeyMismatch.
        """
        name = self._profile.provider
        try:
            answer = await self._call(self._post(path, body=body, headers=headers))
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
            answer = await self._call(self._get(path, query=query))
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
        await self._client.aclose()

    def _post(self, path: str, *, body: bytes, headers: Mapping[str, str]) -> httpx.Request:
        url, common = self._address(path)
        request = httpx.Request(
            "POST",
            url,
            headers=common,  # copied
            stream=httpx.ByteStream(body),  # a stream: httpx then adds no headers of its own
            extensions=self._extensions,
        )
        request.headers["Content-Type"] = "application/json"
        request.headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            request.headers[name] = value
        return request

    def _get(self, path: str, *, query: Mapping[str, str]) -> httpx.Request:
        url, common = self._address(path)
        return httpx.Request(
            "GET",
            url.copy_merge_params(query) if query else url,
            headers=common,
            stream=httpx.ByteStream(b""),
            extensions=self._extensions,
        )

    def _parse_address(self, path: str) -> tuple[httpx.URL, httpx.Headers]:
        """The whole address, and the headers that every request to it has."""
        try:
            url = httpx.URL(self._base_url + path)
        except httpx.InvalidURL as error:
            raise NotSentError("InvalidURL") from error
        return url, httpx.Headers([(b"Host", url.netloc), *self._headers])

    async def _call(self, request: httpx.Request) -> Answer:
        try:
            async with asyncio.timeout(self._profile.send_timeout_seconds):
                response = await self._client.send(request, stream=True)
                try:
                    body = await _read_bounded(response)
                finally:
                    await response.aclose()
                    response.stream = _DONE
        except NOTHING_LEFT as error:
            raise NotSentError(type(error).__name__) from error
        except LOST as error:
            raise LostError(type(error).__name__) from error
        return Answer(response.status_code, response.headers, _parse(body))

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


async def _read_bounded(response: httpx.Response) -> bytes:
    """The raw body: of the stream itself, because httpx's readers cost more than the reading."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    body = bytearray()
    async for piece in response.stream:
        body += piece
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
