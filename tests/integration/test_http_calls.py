"""Servers that break HTTP in every way: what the caller may conclude from it."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from operations.errors import Declined, EffectUnknown, ProviderError, Unavailable
from operations.guarantees import Guarantee, ProviderProfile
from providers.http_calls import ANSWER_MAX_BYTES, HttpCalls, Meaning
from providers.transport import AiohttpTransport

PROFILE = ProviderProfile(provider="broken", guarantee=Guarantee.KEYED, send_timeout_seconds=0.4)
PATIENT = PROFILE.model_copy(update={"send_timeout_seconds": 30.0})
"""For answers that take their time to be written, and are not to be timed out."""
DOCUMENTED = {(402, "no"): Meaning.DECLINED, (429, "later"): Meaning.NOT_APPLIED}

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk) -> AsyncGenerator[str]:
    """The address of a server that talks as told."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has seen enough
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def serving(talk: Talk, *, profile: ProviderProfile = PROFILE) -> AsyncGenerator[HttpCalls]:
    """Calls to a server that talks as told."""
    async with listening(talk) as url:
        calls = HttpCalls(url, profile=profile)
        try:
            yield calls
        finally:
            await calls.aclose()


def answering(raw: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(raw)
        await writer.drain()

    return talk


def complete(status: int, body: bytes, headers: bytes = b"") -> bytes:
    head = b"HTTP/1.1 %d Status\r\nContent-Length: %d\r\n%s\r\n"
    return head % (status, len(body), headers) + body


async def send(calls: HttpCalls) -> object:
    return await calls.send("/", body=b"{}", headers={}, documented=DOCUMENTED)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nConte",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"SMTP ready\r\n\r\n",
        complete(200, b"<html>welcome to the hotel network</html>"),
        complete(200, b"[]"),
        complete(200, b"[" * 100_000),
        complete(200, b" " * (ANSWER_MAX_BYTES + 1)),
        complete(302, b"", b"Location: /elsewhere\r\n"),
        complete(302, b"{}", b"Location: mailto:nobody\r\n"),
        complete(307, b"{}", b"Location: http://[\r\n"),
        complete(200, b"\x1f\x8b\x08", b"Content-Encoding: gzip\r\n"),
        complete(400, b"{}"),
        complete(402, b'{"error":{"code":"undocumented"}}'),
        complete(402, b'{"error":"no"}'),
        complete(429, b"slow down"),
        complete(500, b'{"error":{"code":"no"}}'),
        complete(503, b"{}", b"Retry-After: 3\r\n"),
    ],
    ids=range(20),
)
async def test_every_undocumented_answer_leaves_the_effect_unknown(raw: bytes) -> None:
    async with serving(answering(raw)) as calls:
        with pytest.raises(EffectUnknown):
            await send(calls)


@pytest.mark.parametrize(
    ("raw", "raised"),
    [
        (complete(402, b'{"error":{"code":"no","message":"never"}}'), Declined),
        (complete(429, b'{"error":{"code":"later"}}', b"Retry-After: 3\r\n"), Unavailable),
    ],
)
async def test_a_documented_answer_means_what_it_documents(
    raw: bytes, raised: type[ProviderError]
) -> None:
    async with serving(answering(raw)) as calls:
        with pytest.raises(raised):
            await send(calls)


async def test_an_answer_that_trickles_in_ends_at_the_deadline() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(200):  # faster than any timeout between two reads
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with serving(trickle) as calls, asyncio.timeout(2 * PROFILE.send_timeout_seconds):
        with pytest.raises(EffectUnknown, match="TimeoutError"):
            await send(calls)


async def test_a_request_on_a_dying_connection_is_sent_once() -> None:
    received: list[bytes] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"}"))
        writer.write(complete(200, b"{}"))
        await writer.drain()
        received.append(await reader.readuntil(b"}"))  # and hang up without a word

    async with serving(answer_once) as calls:
        await send(calls)
        with pytest.raises(EffectUnknown):
            await send(calls)
        assert len(received) == 2


@pytest.mark.parametrize(("method", "times"), [("DELETE", 1), ("PUT", 1), ("GET", 2)])
async def test_only_a_read_is_repeated_when_its_connection_dies(method: str, times: int) -> None:
    received: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))

    async with listening(hang_up) as url, httpx.AsyncClient(transport=AiohttpTransport()) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.request(method, url)
        assert len(received) == times


async def test_a_complete_answer_gives_its_connection_back_and_a_long_one_does_not() -> None:
    connections: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(0)
        for body in (b"{}", b"{}", b" " * (16 * ANSWER_MAX_BYTES)):
            await reader.readuntil(b"}")
            connections[-1] += 1
            writer.write(complete(200, body, b"Set-Cookie: a=b\r\n"))
            await writer.drain()

    async with serving(talk, profile=PATIENT) as calls:
        for _ in range(2):
            await send(calls)
            await send(calls)
            with pytest.raises(EffectUnknown, match="too long"):
                await send(calls)
    assert connections == [3, 3]


async def test_the_wire_carries_what_was_frozen_and_nothing_of_the_client() -> None:
    received: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"}"))
        writer.write(complete(200, b"{}", b"Set-Cookie: a=b\r\n"))
        await writer.drain()
        await talk(reader, writer)

    async with serving(talk) as calls:
        for _ in range(2):
            await calls.send("/x", body=b'{"a":"\xc3\xa9"}', headers={"K": "v"}, documented={})
    assert received[0] == received[1]
    head, body = received[0].split(b"\r\n\r\n")
    request, *headers = head.split(b"\r\n")
    assert (request, body) == (b"POST /x HTTP/1.1", b'{"a":"\xc3\xa9"}')
    assert {line.split(b":")[0].lower() for line in headers} == {
        b"host", b"accept", b"accept-encoding", b"user-agent", b"content-type", b"content-length",
        b"k",
    }  # fmt: skip
    assert b"Accept-Encoding: identity" in headers


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (httpx.ConnectError("x"), Unavailable),
        (httpx.ConnectTimeout("x"), Unavailable),
        (httpx.PoolTimeout("x"), Unavailable),
        (httpx.ReadTimeout("x"), EffectUnknown),
        (httpx.WriteError("x"), EffectUnknown),
        (httpx.RemoteProtocolError("x"), EffectUnknown),
        (httpx.LocalProtocolError("x"), EffectUnknown),
        (httpx.ProxyError("x"), EffectUnknown),
        (httpx.InvalidURL("x"), EffectUnknown),
        (ConnectionResetError("x"), EffectUnknown),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_another_transport_is_believed_only_about_connections(
    error: Exception, raised: type[ProviderError]
) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error

    calls = HttpCalls("http://p", profile=PROFILE, transport=httpx.MockTransport(fail))
    with pytest.raises(raised) as failed:
        await send(calls)
    assert type(failed.value) is raised
    await calls.aclose()


async def test_a_refused_connection_means_that_nothing_left() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening
        calls = HttpCalls(f"http://127.0.0.1:{closed.getsockname()[1]}", profile=PROFILE)
        with pytest.raises(Unavailable):
            await send(calls)
        await calls.aclose()


async def test_a_connection_that_never_comes_up_means_that_nothing_left() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        queued = [socket.socket() for _ in range(4)]
        for one in queued:  # fill the queue of connections nobody accepts
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        calls = HttpCalls(f"http://127.0.0.1:{full.getsockname()[1]}", profile=PROFILE)
        with pytest.raises(Unavailable, match="ConnectTimeout"):
            await send(calls)
        await calls.aclose()
        for one in queued:
            one.close()


@pytest.mark.parametrize(
    "address",
    [
        "http://[::1",
        "ftp://127.0.0.1",
        "http://127.0.0.1:99999",
        "http://",
        "127.0.0.1",
        "http://nobody.invalid",
    ],
)
async def test_an_address_that_is_none_means_that_nothing_left(address: str) -> None:
    calls = HttpCalls(address, profile=PROFILE)
    with pytest.raises(Unavailable):
        await send(calls)
    await calls.aclose()


@pytest.mark.parametrize("raw", [b"", complete(500, b"{}"), complete(200, b"[]")])
async def test_a_read_that_fails_is_unavailable(raw: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()

    async with serving(talk) as calls:
        with pytest.raises(Unavailable):
            await calls.fetch("/", query={})
