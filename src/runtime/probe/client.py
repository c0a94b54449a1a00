"""HTTP/1.1 as the probe needs it: exact header bytes, simultaneous sends, deliberate hang-ups.

An ordinary client library refuses to send what some rules are about (control bytes, repeated lines)
and hides when a request is on the wire. So the request is written byte by byte here, one connection
per request; h11 reads the answer.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import h11

# The longest answer read is the list of effects; a service's whole history is not needed for it.
ANSWER_LIMIT_BYTES = 16_777_216
_CHUNK_BYTES = 65_536


class UnreachableError(Exception):
    """No connection could be made: nothing was sent."""


class NoAnswerError(Exception):
    """The request was sent, and no whole answer came in time."""


class CutOffError(NoAnswerError):
    """The service closed the connection before it had answered."""


class BudgetSpentError(Exception):
    """The bound on the number of requests is reached."""


@dataclass(frozen=True)
class Request:
    """One request as it will be on the wire; `headers` are raw bytes, in order, with repeats."""

    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    """A whole answer. Header names are lower-case."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    seconds: float

    @property
    def succeeded(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """Whether the status is 4xx."""
        return 400 <= self.status < 500

    def header(self, name: str) -> str | None:
        """The values of `name`, joined by a comma as RFC 9110 allows; None when absent."""
        values = [value for key, value in self.headers if key == name.lower()]
        return ", ".join(values) if values else None

    def document(self) -> object:
        """The body as JSON; None when it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Client:
    """Sends requests to one origin. Counts them, and never more than its budget."""

    def __init__(self, origin: str, *, timeout_seconds: float, budget_requests: int) -> None:
        """For `origin` (scheme, host, port; the rest of the URL is ignored).

        Raises ValueError for anything but http and https with a host.
        """
        parts = urlsplit(origin)
        plain = origin.isascii() and origin.isprintable() and " " not in origin
        if not plain or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{origin!r} is not an http or https URL")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._authority = parts.netloc.rpartition("@")[2].encode("ascii")
        self._timeout_seconds = timeout_seconds
        self._budget_requests = budget_requests
        self.sent_requests = 0

    async def exchange(self, request: Request) -> Answer:
        """Send `request` and read its answer.

        Raises UnreachableError, NoAnswerError, BudgetSpentError.
        """
        return (await self.exchange_together([request]))[0]

    async def exchange_together(self, requests: Sequence[Request]) -> list[Answer]:
        """Connect for all `requests` first, then send them at once.

        Raises as `exchange`, for the first that fails.
        """
        lines: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        try:
            for _ in requests:
                lines.append(await self._connect())  # noqa: PERF401 (those made must be closed)
            pairs = zip(lines, requests, strict=True)
            return await asyncio.gather(*(self._converse(line, request) for line, request in pairs))
        finally:
            for _, writer in lines:
                writer.transport.abort()

    async def hang_up(self, request: Request, *, sent_share: float, wait_seconds: float) -> None:
        """Send a share (0 to 1) of `request`'s bytes, wait, and reset the connection.

        Raises UnreachableError, BudgetSpentError.
        """
        _, writer = await self._connect()
        try:
            content = self._bytes(request)
            writer.write(content[: max(1, int(len(content) * sent_share))])
            await writer.drain()
            await asyncio.sleep(wait_seconds)
        except ConnectionError:
            pass  # the service closed first: the client is gone either way
        finally:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.sent_requests >= self._budget_requests:
            raise BudgetSpentError(f"the bound of {self._budget_requests} requests is reached")
        self.sent_requests += 1
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer to the connection attempt"
            raise UnreachableError(f"{self._host}:{self._port}: {reason}") from error

    async def _converse(
        self, line: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: Request
    ) -> Answer:
        reader, writer = line
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                writer.write(self._bytes(request))
                return await _read_answer(reader, request.method, started=started)
        except TimeoutError as error:
            raise NoAnswerError(f"no answer within {self._timeout_seconds:g} s") from error
        except (OSError, h11.RemoteProtocolError) as error:
            raise CutOffError(
                f"no whole answer: {str(error) or 'the connection closed'}"
            ) from error

    def _bytes(self, request: Request) -> bytes:
        fixed = [(b"Host", self._authority), (b"Connection", b"close")]
        if request.body or request.method not in ("GET", "HEAD"):
            fixed.append((b"Content-Length", str(len(request.body)).encode()))
        lines = [name + b": " + value for name, value in (*fixed, *request.headers)]
        start = f"{request.method} {request.path} HTTP/1.1".encode("ascii")
        return b"\r\n".join([start, *lines, b"", request.body])


async def _read_answer(reader: asyncio.StreamReader, method: str, *, started: float) -> Answer:
    parser = h11.Connection(h11.CLIENT)
    # h11 pairs answers with requests; what it is told here never goes on the wire.
    parser.send(h11.Request(method=method, target="/", headers=[("host", "probe")]))
    parser.send(h11.EndOfMessage())
    head: h11.Response | None = None
    body = bytearray()
    while True:
        for event in _events(parser):
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = tuple((k.decode("latin-1"), v.decode("latin-1")) for k, v in head.headers)
                return Answer(head.status_code, headers, bytes(body), time.monotonic() - started)
        if len(body) > ANSWER_LIMIT_BYTES:
            raise h11.RemoteProtocolError(f"the answer is longer than {ANSWER_LIMIT_BYTES} bytes")
        parser.receive_data(await reader.read(_CHUNK_BYTES))


def _events(parser: h11.Connection) -> Iterator[h11.Event]:
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return
        assert isinstance(event, h11.Event)
        if isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the connection closed before an answer")
        yield event
        if isinstance(event, h11.EndOfMessage):
            return
