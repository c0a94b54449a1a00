"""Uvicorn's HTTP protocol with the bounds it lacks: how large a head may be, and how slow.

Uvicorn on httptools reads header fields of any size, and waits for ever for a first request, for
the rest of a head, and for a body that nobody reads any more.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.observing import HEAD_BYTES_MAX, head_too_large
from api.problems import Problem, ProblemName

HEAD_SECONDS: Final = 10.0
"""From the connection, or the first byte of a request, to the end of its head."""

BODY_SECONDS: Final = 30.0
"""From there to the end of its body: longer than the application's own bound, which comes first
and answers; this one cuts those whose body nobody reads."""


class BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 with a bound on the size and on the time of what comes in."""

    _arriving: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = True
    _has_begun = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._await_end(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless the head is too large."""
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._refuse(head_too_large())

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._has_begun = True
        self._await_end(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        """The head is here; its exact size is judged by the application."""
        self._in_head = False
        self._await_end(BODY_SECONDS)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The whole request is here."""
        self._in_head, self._head_bytes, self._has_begun = True, 0, False
        self._stop_waiting()
        super().on_message_complete()

    def _await_end(self, seconds: float) -> None:
        self._stop_waiting()
        self._arriving = self.loop.call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _give_up(self) -> None:
        """What was to come did not come in time."""
        self._arriving = None
        if self.transport.is_closing():
            return
        earlier: Any = self.cycle
        if not self._has_begun:
            self.transport.close()
        elif self._in_head and (earlier is None or earlier.response_complete):
            detail = f"The head did not arrive within {HEAD_SECONDS:.0f} seconds."
            self._refuse(Problem(ProblemName.REQUEST_TIMEOUT, detail))
        elif self.pipeline or self._in_head:
            self._await_end(HEAD_SECONDS)  # an earlier request of this connection is being answered
        else:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Answer without the application, and close: no more of this connection can be trusted."""
        response = problem.response()
        fields = [field for field in response.raw_headers if field[0] != b"connection"]
        fields.append((b"connection", b"close"))
        head = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
        reason = problem.name.value.replace("-", " ").encode()
        line = b"HTTP/1.1 %d %s\r\n" % (problem.status, reason)
        self.transport.write(line + head + b"\r\n" + bytes(response.body))
        self.transport.close()
