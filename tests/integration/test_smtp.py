"""SmtpMail against aiosmtpd: what is delivered, and what each way of failing tells us."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.policy import SMTP as SMTP_POLICY
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from operations.errors import Declined, EffectUnknown, Unavailable
from operations.guarantees import Guarantee
from providers.contract import Provider, ProviderRecord
from providers.smtp import PROFILE, MailServer, Security, SmtpMail, smtp_mail

KEY = "c0ffee" * 6
REQUEST = {
    "reference": KEY,
    "to": "ada@example.org",
    "subject": "Your order: grün",
    "text": "It is on its way.\n.\nÅse\n",
}
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Desk:
    """What the server does with a message; `reply` decides, at the stage it is given for."""

    def __init__(self, **replies: str) -> None:
        self.replies = replies
        self.accepted: list[Envelope] = []
        self.silent = asyncio.Event()
        self.cut: asyncio.Transport | None = None

    async def handle_MAIL(self, *call: Any) -> str:  # noqa: N802 aiosmtpd names it
        _, _, envelope, address, _ = call
        envelope.mail_from = address
        return self.replies.get("MAIL", "250 OK")

    async def handle_RCPT(self, *call: Any) -> str:  # noqa: N802
        server, _, envelope, address, _ = call
        if self.replies.get("RCPT") == "cut":
            server.transport.abort()
            return "250 OK"
        envelope.rcpt_tos.append(address)
        return self.replies.get("RCPT", "250 OK")

    async def handle_DATA(self, *call: Any) -> str:  # noqa: N802
        server, _, envelope = call
        reply = self.replies.get("DATA", "250 Accepted")
        if reply.startswith("250") or reply in {"cut", "silence"}:
            self.accepted.append(envelope)
        if reply == "cut":
            server.transport.abort()
        if reply == "silence":
            await self.silent.wait()
        return reply


@asynccontextmanager
async def serving(desk: Desk, **options: Any) -> AsyncGenerator[int]:
    """aiosmtpd on a free port: the port."""
    connections: list[SMTP] = []

    def connect() -> SMTP:
        connections.append(SMTP(desk, hostname="localhost", **options))
        return connections[-1]

    server = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        desk.silent.set()
        for connection in connections:
            if connection.transport is not None:
                connection.transport.close()
        await server.wait_closed()


def mail(
    port: int,
    *,
    seconds: float = 5.0,
    security: Security = Security.NONE,
    trusting: ssl.SSLContext | None = None,
    password: str | None = None,
) -> SmtpMail:
    server = MailServer(
        "localhost",
        port,
        security=security,
        username="shop" if password else None,
        password=password,
        tls_context=trusting,
    )
    profile = PROFILE.model_copy(update={"send_timeout_seconds": seconds})
    return SmtpMail(server, sender="shop@example.com", profile=profile, now=lambda: NOON)


def content(envelope: Envelope) -> bytes:
    assert isinstance(envelope.content, bytes)
    return envelope.content


async def send(client: Provider) -> ProviderRecord:
    return await client.perform("send", key=KEY, body=client.freeze("send", REQUEST))


async def test_a_message_arrives_whole_with_our_reference_as_its_identity() -> None:
    desk = Desk()
    async with serving(desk) as port:
        record = await send(mail(port))

    [envelope] = desk.accepted
    assert (envelope.mail_from, envelope.rcpt_tos) == ("shop@example.com", ["ada@example.org"])
    message = message_from_bytes(content(envelope), policy=SMTP_POLICY)
    assert message["Message-ID"] == record.id == f"<{KEY}@example.com>"
    assert (message["Subject"], message["To"]) == (REQUEST["subject"], REQUEST["to"])
    assert message["Date"].datetime == NOON
    assert message.get_content().replace("\r\n", "\n") == REQUEST["text"]
    assert (record.action, record.reference, record.state) == ("send", KEY, "accepted")


async def test_two_copies_differ_in_their_date_line_only() -> None:
    desk = Desk()
    async with serving(desk) as port:
        first, later = mail(port), mail(port)
        later._now = lambda: NOON + timedelta(hours=1)
        body = first.freeze("send", REQUEST)
        assert body == later.freeze("send", dict(reversed(REQUEST.items())))
        for client in (first, later):
            await client.perform("send", key=KEY, body=body)

    one, two = (content(envelope).split(b"\r\n") for envelope in desk.accepted)
    assert one[0] != two[0]
    assert one[0].startswith(b"Date: ")
    assert one[1:] == two[1:]
    assert b"\r\n".join(one[1:]) == body


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        pytest.param({"MAIL": "451 later"}, Unavailable, id="sender, not now"),
        pytest.param({"MAIL": "530 log in"}, Unavailable, id="a login is wanted"),
        pytest.param({"MAIL": "550 not you"}, Declined, id="sender refused"),
        pytest.param({"RCPT": "450 greylisted"}, Unavailable, id="recipient, not now"),
        pytest.param({"RCPT": "550 unknown"}, Declined, id="recipient refused"),
        pytest.param({"RCPT": "cut"}, Unavailable, id="cut before DATA"),
        pytest.param({"DATA": "452 full"}, Unavailable, id="message, not now"),
        pytest.param({"DATA": "554 spam"}, Declined, id="message refused"),
        pytest.param({"DATA": "cut"}, EffectUnknown, id="cut after the last dot"),
        pytest.param({"DATA": "299 what"}, EffectUnknown, id="a reply that means nothing"),
    ],
)
async def test_a_reply_says_what_we_know_of_the_message(
    replies: dict[str, str], expected: type[Exception]
) -> None:
    desk = Desk(**replies)
    async with serving(desk) as port:
        with pytest.raises(Exception, match="mail server") as raised:
            await send(mail(port))
    assert type(raised.value) is expected
    if expected is not EffectUnknown:
        assert desk.accepted == []


async def test_silence_after_the_last_dot_is_unknown_and_the_message_may_be_there() -> None:
    desk = Desk(DATA="silence")
    async with serving(desk) as port:
        with pytest.raises(EffectUnknown):
            await send(mail(port, seconds=0.5))
        assert len(desk.accepted) == 1


async def test_without_a_server_nothing_was_sent() -> None:
    async with serving(Desk()) as port:
        pass
    with pytest.raises(Unavailable):
        await send(mail(port))


def certificate(directory: Path) -> ssl.SSLContext:
    """A server context with a certificate of its own making for localhost; `ca.pem` beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    (directory / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "ca.pem", directory / "key.pem")
    return context


def knows(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
    known = (given.login, given.password) == (b"shop", b"secret")
    return AuthResult(success=known, handled=False)


async def test_mail_is_handed_in_over_starttls_and_with_the_right_login_only(
    tmp_path: Path,
) -> None:
    desk = Desk()
    context = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    options = {"tls_context": context, "require_starttls": True, "auth_required": True}
    starttls = Security.STARTTLS
    async with serving(desk, authenticator=knows, **options) as port:
        for refused in (
            mail(port, security=starttls, trusting=trusting, password="guess"),
            mail(port, security=starttls, trusting=trusting),
            mail(port, security=starttls, password="secret"),  # nobody vouches for this certificate
        ):
            with pytest.raises(Unavailable):
                await send(refused)
        assert desk.accepted == []
        await send(mail(port, security=starttls, trusting=trusting, password="secret"))
    assert len(desk.accepted) == 1


def test_a_login_is_never_sent_in_the_clear() -> None:
    with pytest.raises(ValueError, match="TLS"):
        mail(25, password="secret")


async def test_a_server_that_does_not_offer_tls_gets_nothing() -> None:
    desk = Desk()
    async with serving(desk) as port:
        with pytest.raises(Unavailable):
            await send(mail(port, security=Security.STARTTLS))
    assert desk.accepted == []


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"subject": "order\r\nBcc: eve@example.net"}, id="header in the subject"),
        pytest.param({"to": "a@example.org\nBcc: eve@example.net"}, id="header in the recipient"),
        pytest.param({"to": "a@example.org, b@example.org"}, id="two recipients"),
        pytest.param({"to": "<a@example.org>"}, id="an address in brackets"),
        pytest.param({"to": "åse@example.org"}, id="outside ASCII"),
        pytest.param({"to": "ada"}, id="no address"),
        pytest.param({"reference": "a@b>\r\nX: y"}, id="header in the reference"),
        pytest.param({"text": 7}, id="no text"),
        pytest.param({"text": "x" * 100_001}, id="too long"),
        pytest.param({"cc": "eve@example.net"}, id="an unknown member"),
    ],
)
def test_nothing_can_be_smuggled_into_a_message(changes: dict[str, Any]) -> None:
    client = mail(25)
    with pytest.raises(ValueError, match=r"mail|subject|send|text|reference"):
        client.freeze("send", {**REQUEST, **changes})


async def test_mail_promises_nothing_and_shows_nothing() -> None:
    client: Provider = smtp_mail(host="localhost", sender="shop@example.com")
    assert client.profile.guarantee is Guarantee.BLIND
    assert not client.profile.can_look_up
    with pytest.raises(Unavailable):
        await client.look_up("send", key=KEY)
    with pytest.raises(Unavailable):
        await client.list_records(since=NOON, until=NOON, cursor=None, limit=1)
    await client.aclose()
