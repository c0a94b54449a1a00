"""httpx over aiohttp's connections, with errors that say whether anything was sent.

Why one of our own: "sent or not sent" decides whether a charge may be repeated. The transport that
`httpx-aiohttp` offers calls a connection that is lost after the request has arrived a
`ConnectTimeout`; httpx's default one is exact, but takes several times the processor time of a
whole call over aiohttp. This one is as exact, and adds little to aiohttp (what httpx's client adds
is the larger part).

| raised | what we know |
|---|---|
| `ConnectError`, `ConnectTimeout`, `UnsupportedProtocol` | there was no connection: nothing left |
| `ReadError`, `ReadTimeout`, `WriteError`, `RemoteProtocolError` | the request may have arrived |
| `LocalProtocolError` | the request is not HTTP; how much of it left is not known |

Nothing but a read is ever repeated. aiohttp repeats the methods that HTTP calls idempotent when a
connection breaks (RFC 9110, section 9.2.2); a lost DELETE that is repeated answers 404, and nobody
knows any more that it worked.
"""

import ssl
from collections.abc import AsyncIterator
from functools import lru_cache

import aiohttp
import httpx
import yarl

READS = frozenset({"GET", "HEAD"})
"""What may be repeated on a new connection when a kept-alive one is found closed."""

CONNECTIONS_MAX = 100

KEEPALIVE_SECONDS = 5.0
"""Shorter than what servers commonly grant: a connection that the server closes while we write to
it leaves the outcome unknown, and that is expensive."""

_AUTOMATIC = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""What aiohttp would add by itself. The httpx request says what is sent."""

_TERMS: tuple[tuple[tuple[type[Exception], ...], type[httpx.TransportError]], ...] = (
    ((aiohttp.ConnectionTimeoutError,), httpx.ConnectTimeout),  # new, or from the pool
    ((aiohttp.ClientConnectorError,), httpx.ConnectError),  # refused, unknown name, no TLS
    ((aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError), httpx.UnsupportedProtocol),
    # From here on there was a connection.
    ((aiohttp.SocketTimeoutError,), httpx.ReadTimeout),
    ((aiohttp.ClientConnectionResetError,), httpx.WriteError),
    (
        (aiohttp.ServerDisconnectedError, aiohttp.ClientResponseError, aiohttp.ClientPayloadError),
        httpx.RemoteProtocolError,
    ),
    ((aiohttp.ClientError, OSError), httpx.ReadError),
    ((ValueError,), httpx.LocalProtocolError),
)
"""aiohttp's errors in httpx's terms; the first that fits."""

_FAILURES = (aiohttp.ClientError, OSError, ValueError)


class AiohttpTransport(httpx.AsyncBaseTransport):
    """An httpx transport on a pool of aiohttp connections, for one event loop.

    Of a request's timeouts, `connect` bounds getting a connection, be it a new one or one from the
    pool, and `read` every wait for more of the answer. Writing is bounded by the caller's own
    deadline, as the whole of a call should be. A request's body is sent from memory; an answer is
    streamed, undecoded. Redirects, cookies, proxies and the environment play no part.
    """

    def __init__(
        self,
        *,
        connections_max: int = CONNECTIONS_MAX,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare; the connections are made by the first request, in its event loop."""
        self._connections_max = connections_max
        self._keepalive_seconds = keepalive_seconds
        self._ssl = True if ssl_context is None else ssl_context
        self._opened: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` once and return its answer, the body still to be read.

        Raises the errors of the table above.
        """
        target = _target(request)
        timeout: dict[str, float | None] = request.extensions.get("timeout", {})
        body = await request.aread()
        try:
            answer = await self._session().request(
                request.method,
                target,
                headers=_headers(request.headers),
                data=body or None,
                timeout=_timeout(timeout.get("connect"), timeout.get("read")),
                allow_redirects=False,
            )
        except _FAILURES as error:
            raise _in_httpx_terms(error, request) from error
        return httpx.Response(
            answer.status,
            headers=answer.raw_headers,
            stream=_AnswerStream(answer, request),
            extensions={
                "http_version": b"HTTP/1.0" if answer.version == (1, 0) else b"HTTP/1.1",
                "reason_phrase": (answer.reason or "").encode(errors="replace"),
            },
        )

    async def aclose(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            await self._opened.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections_max,
                    keepalive_timeout=self._keepalive_seconds,
                    ssl=self._ssl,
                ),
                skip_auto_headers=_AUTOMATIC,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                middlewares=(_once,),
                trust_env=False,  # no proxy between us and the question whether it was sent
            )
        return self._opened


class _AnswerStream(httpx.AsyncByteStream):
    """The raw body of an answer, in the pieces that arrive."""

    def __init__(self, answer: aiohttp.ClientResponse, request: httpx.Request) -> None:
        self._answer = answer
        self._request = request

    def __aiter__(self) -> AsyncIterator[bytes]:
        # An iterator, not a generator: one coroutine less for each piece.
        return self

    async def __anext__(self) -> bytes:
        content = self._answer.content
        if content.at_eof() and content.exception() is None:
            raise StopAsyncIteration
        try:
            piece = await content.readany()
        except _FAILURES as error:
            raise _in_httpx_terms(error, self._request) from error
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        # A complete answer has given its connection back already.
        if not self._answer.closed:
            self._answer.close()


async def _once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating anything but a read: it repeats only on errors it knows."""
    if request.method in READS:
        return await send(request)
    try:
        return await send(request)
    except _FAILURES as error:
        raise _in_httpx_terms(error, None) from error


def _in_httpx_terms(error: Exception, request: httpx.Request | None) -> httpx.TransportError:
    for theirs, ours in _TERMS:
        if isinstance(error, theirs):
            return ours(str(error) or type(error).__name__, request=request)
    raise AssertionError(f"{type(error).__name__} is none of the failures") from error


def _target(request: httpx.Request) -> yarl.URL:
    """The same address for aiohttp, byte for byte; httpx has made a header of its user already."""
    url = request.url.copy_with(userinfo=b"") if request.url.userinfo else request.url
    try:
        return _encoded(str(url))
    except ValueError as error:
        raise httpx.ConnectError(f"no such address: {error}", request=request) from error


@lru_cache(maxsize=256)
def _encoded(url: str) -> yarl.URL:
    target = yarl.URL(url, encoded=True)
    _ = target.port  # parsed on demand: a bad one has to fail before anything is sent
    return target


def _headers(headers: httpx.Headers) -> list[tuple[str, str]]:
    """The same headers for aiohttp, which writes UTF-8. Raises UnicodeDecodeError, a ValueError."""
    return [
        (name.decode(), value.decode())
        for name, value in headers.raw
        if name.lower() != b"transfer-encoding"  # the body is in memory: its length is sent
    ]


@lru_cache(maxsize=64)
def _timeout(connect_seconds: float | None, read_seconds: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, connect=connect_seconds, sock_read=read_seconds)
