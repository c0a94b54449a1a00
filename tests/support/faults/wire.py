"""TCP proxies: they note every write to a provider, and cut connections where they are told to."""

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from support.checker.evidence import Request

CHUNK_BYTES = 65536


@dataclass
class Proxy:
    """Forwards one port of the loopback address to another.

    `cut_every`: of every nth connection the answer to its nth exchange is withheld and both sides
    are reset: the server has done what it was asked, and the client does not know. 0 cuts nothing.
    """

    target_port: int
    heard: Callable[[bytes], None] | None = None
    """Gets what a client sends, connection by connection, as it comes."""
    cut_every: int = 0
    cuts: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _exchanges: int = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            _reset(writer)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        asked = _Asked()
        out = asyncio.create_task(self._outward(reader, their_writer, asked))
        back = asyncio.create_task(self._inward(their_reader, writer, asked))
        try:
            await asyncio.wait({out, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (out, back):
                task.cancel()
            await asyncio.gather(out, back, return_exceptions=True)
            _reset(their_writer)

    async def _outward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: "_Asked"
    ) -> None:
        while piece := await reader.read(CHUNK_BYTES):
            asked.note(piece)
            if self.heard is not None:
                for whole in asked.requests():
                    self.heard(whole)
            writer.write(piece)
            await writer.drain()

    async def _inward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: "_Asked"
    ) -> None:
        while piece := await reader.read(CHUNK_BYTES):
            if self.cut_every and asked.writes():
                self._exchanges += 1
                if self._exchanges % self.cut_every == 0:
                    self.cuts += 1
                    return
            writer.write(piece)
            await writer.drain()


class _Asked:
    """What one connection has asked for: HTTP requests, or PostgreSQL messages."""

    def __init__(self) -> None:
        self._buffer = b""
        self._last = b""

    def note(self, piece: bytes) -> None:
        """Take in what was sent."""
        self._buffer = (self._buffer + piece)[-4 * CHUNK_BYTES :]
        self._last = piece

    def writes(self) -> bool:
        """Whether the latest request changes something, so that its answer is worth losing."""
        return self._last.startswith(b"POST ") or self._last[:1] in {b"B", b"Q"}

    def requests(self) -> list[bytes]:
        """Whole HTTP requests that are complete now, each once."""
        found: list[bytes] = []
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = 0
            if (at := head.find(b"content-length:")) >= 0:
                length = int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._buffer) < end + 4 + length:
                break
            found.append(self._buffer[: end + 4 + length])
            self._buffer = self._buffer[end + 4 + length :]
            self._last = found[-1]
        return found


def read_request(provider: str, raw: bytes) -> Request | None:
    """A write to a provider as evidence; None for a read."""
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *headers = head.decode("latin-1").split("\r\n")
    if not line.startswith("POST "):
        return None
    named = dict(header.lower().split(": ", 1) for header in headers if ": " in header)
    document: dict[str, Any] = json.loads(body)
    reference = str(document.get("reference") or document.get("message_id", ""))
    return Request(
        provider=provider,
        at=time.time(),
        reference=reference.removeprefix("<").partition("@")[0],
        header_key=named.get("idempotency-key"),
        body=hashlib.sha256(line.encode() + body).hexdigest()[:24],
    )


class Wire:
    """A noting proxy in front of every provider."""

    def __init__(self) -> None:
        """Nothing was sent yet."""
        self.proxies: dict[str, Proxy] = {}
        self.requests: list[Request] = []

    async def start(self, targets: dict[str, str]) -> dict[str, str]:
        """Stand in front of `targets` (by provider: URL); returns the addresses to use instead."""
        for provider, url in targets.items():
            port = urlsplit(url).port
            assert port is not None
            proxy = Proxy(port, heard=lambda raw, name=provider: self._note(name, raw))
            await proxy.start()
            self.proxies[provider] = proxy
        return {name: f"http://127.0.0.1:{proxy.port}" for name, proxy in self.proxies.items()}

    async def stop(self) -> None:
        """Stop all of them."""
        await asyncio.gather(*(proxy.stop() for proxy in self.proxies.values()))

    def cut_every(self, n: int) -> None:
        """Lose every nth answer of every provider; 0 for none."""
        for proxy in self.proxies.values():
            proxy.cut_every = n

    def _note(self, provider: str, raw: bytes) -> None:
        request = read_request(provider, raw)
        if request is not None:
            self.requests.append(request)


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        transport = writer.transport
        transport.abort()
