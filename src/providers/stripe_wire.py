"""One HTTP request to Stripe over httpx, and whether it can have arrived.

| what happened | we know | as |
|---|---|---|
| name unknown, connection refused, no TLS, no connection in time | nothing left | `NotSent` |
| anything later: a timeout, a reset, a cut-off or endless answer | nothing | `Lost` |
| a complete answer | what it says | `Reply` |

A POST is sent once: `providers.transport` repeats nothing but reads. A call has one deadline.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx

from providers.transport import AiohttpTransport

ANSWER_MAX_BYTES = 8 * 1024 * 1024
"""Of one answer: a page of a hundred objects, each with fifty metadata values of 500 characters,
which is the most that Stripe allows (docs.stripe.com/api/metadata), and as much again."""

CONNECTIONS_MAX = 50
"""Stripe's own limit is about a hundred requests a second for an account
(docs.stripe.com/rate-limits); more connections would only queue there."""

KEEPALIVE_SECONDS = 20.0
"""A connection is given up before servers commonly do: one that they close while we write to it
leaves the outcome unknown, and that is expensive."""

CONNECT_SHARE = 0.5
"""Of the deadline, for getting a connection: what the whole deadline ends counts as sent."""

NOTHING_LEFT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)
"""How httpx says that there was no connection. `InvalidURL` is not among them: httpx also raises it
for the `Location` of an answer."""

LOST = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, OSError)
"""What may go wrong once there was one. `TimeoutError`, our own deadline, is an OSError."""


@dataclass(frozen=True)
class Reply:
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    """Looked up without regard to case."""
    document: dict[str, Any] | None
    """The body, a JSON object; None when it is something else."""


@dataclass(frozen=True)
class NotSent:
    """There was no connection: nothing has left."""

    why: str


@dataclass(frozen=True)
class Lost:
    """The request may have arrived, and there is no usable answer."""

    why: str


class StripeWire:
    """The connections to one Stripe account. Safe to share between tasks of one event loop."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        timeout_seconds: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Send `headers` with every request to `base_url`; no wait is longer than
        `timeout_seconds`. `transport` replaces the network, for tests."""
        connect_seconds = timeout_seconds * CONNECT_SHARE
        self._timeout_seconds = timeout_seconds
        self._client = httpx.AsyncClient(
            base_url=base_url,
            headers=dict(headers),
            transport=transport
            or AiohttpTransport(
                connections_max=CONNECTIONS_MAX, keepalive_seconds=KEEPALIVE_SECONDS
            ),
            timeout=httpx.Timeout(timeout_seconds, connect=connect_seconds, pool=connect_seconds),
            follow_redirects=False,
            trust_env=False,  # no proxy between us and the question whether something was sent
        )

    async def post(
        self, path: str, *, body: bytes, headers: Mapping[str, str]
    ) -> Reply | NotSent | Lost:
        """POST a form, once."""
        form = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        return await self._call("POST", path, content=body, headers=form)

    async def get(self, path: str, *, query: Mapping[str, str]) -> Reply | NotSent | Lost:
        """GET an object or a list."""
        return await self._call("GET", path, params=dict(query))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _call(self, method: str, path: str, **request: Any) -> Reply | NotSent | Lost:
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._client.stream(method, path, **request) as response,
            ):
                body = await _read_bounded(response.aiter_bytes())
        except NOTHING_LEFT as error:
            return NotSent(type(error).__name__)
        except LOST as error:
            return Lost(type(error).__name__)
        if body is None:
            return Lost("the answer is too long")
        return Reply(response.status_code, response.headers, _parse(body))


async def _read_bounded(chunks: AsyncIterator[bytes]) -> bytes | None:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > ANSWER_MAX_BYTES:
            return None
    return bytes(body)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else None
