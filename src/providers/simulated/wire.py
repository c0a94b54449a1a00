"""Sockets and answers: a port that can be closed and reopened, a connection that can be reset."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

BODY_MAX_BYTES = 64 * 1024
"""Of a request to a provider; the documented answer beyond it is 413, not applied."""

ADMIN_BODY_MAX_BYTES = 16 * 1024 * 1024
"""Ten thousand seeded records need about three."""

NOTICE_SECONDS = 0.02
"""Clients on this machine see their connections cut before the one who shut the port goes on."""

BACKLOG_CONNECTIONS = 1_024

_WRITE_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def now_us() -> int:
    """The time now, in microseconds since 1970, UTC."""
    return to_us(datetime.now(UTC))


def to_us(moment: datetime) -> int:
    """Microseconds since 1970 of an aware time, exactly."""
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_us(moment_us: int) -> str:
    """RFC 3339, UTC, with microseconds."""
    seconds, micros = divmod(moment_us, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Answer:
    """A JSON answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def as_response(self) -> web.Response:
        """What aiohttp sends."""
        return web.Response(
            status=self.status,
            body=self.body,
            headers=self.headers,
            content_type="application/json",
        )


def answer(status: int, document: object, *, headers: Mapping[str, str] | None = None) -> Answer:
    """A JSON answer of `document`."""
    return Answer(status, _WRITE_JSON(document).encode(), headers or {})


def refusal(
    status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
) -> Answer:
    """The one form of every refusal: `{"error": {"code", "message"}}`."""
    return answer(status, {"error": {"code": code, "message": message}}, headers=headers)


def reset(request: web.BaseRequest) -> web.Response:
    """Reset the request's TCP connection (RST, not FIN), and return what will never be sent."""
    transport = request.transport
    if transport is not None:
        _reset(transport)
    return web.Response(status=500)


def _reset(transport: asyncio.WriteTransport) -> None:
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()


def _bounded_requests(body_max_bytes: int) -> Callable[..., web.BaseRequest]:
    def request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any):
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=body_max_bytes
        )

    return request


Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Door:
    """One listening port, which can be shut and opened again."""

    def __init__(
        self, respond: Respond, *, host: str, port: int, body_max_bytes: int = BODY_MAX_BYTES
    ) -> None:
        """Let `respond` answer what comes in at `host` and `port` (0 = any free one)."""
        self._host = host
        self._port = port
        self._http = web.Server(
            respond,
            request_factory=_bounded_requests(body_max_bytes),
            access_log=None,
            keepalive_timeout=75.0,
        )
        self._listening: asyncio.Server | None = None
        self._reopening: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Its address, once opened."""
        return f"http://{self._host}:{self._port}"

    async def open(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        if self._listening is not None:
            return
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(
            self._http,
            self._host,
            self._port,
            backlog=BACKLOG_CONNECTIONS,
            reuse_address=True,
        )
        self._port = self._listening.sockets[0].getsockname()[1]

    async def refuse(self, *, seconds: float, then: Callable[[], Any]) -> None:
        """Stop listening and reset all connections; open the same port after `seconds`."""
        await self._stop_reopening()
        self._shut()
        await asyncio.sleep(NOTICE_SECONDS)
        self._reopening = asyncio.create_task(self._reopen(seconds, then))

    async def reopen_now(self) -> None:
        """End a refusal early."""
        await self._stop_reopening()
        await self.open()

    async def close(self) -> None:
        """Stop listening for good; requests in progress get half a second to end."""
        await self._stop_reopening()
        if self._listening is not None:
            self._listening.close()
        await self._http.shutdown(0.5)

    def _shut(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in tuple(self._http.connections):
            if connection.transport is not None:
                _reset(connection.transport)

    async def _reopen(self, seconds: float, then: Callable[[], Any]) -> None:
        await asyncio.sleep(seconds)
        await self.open()
        then()

    async def _stop_reopening(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
            self._reopening = None
