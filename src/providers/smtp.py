"""Mail over SMTP (RFC 5321, aiosmtplib): BLIND, because nobody can be asked what was delivered.

| what happened | we know | raised |
|---|---|---|
| no connection, no TLS, no login, or a reply of 4yz to anything | not accepted | `Unavailable` |
| 5yz to the sender, the recipient or the message | refused for good | `Declined` |
| the connection or the time ended before `DATA` | not accepted | `Unavailable` |
| it ended after `DATA`, without a reply | nothing: it may be on its way | `EffectUnknown` |

**The message is frozen, its `Date` is not.** Everything that a reader sees comes from the request;
the reference is the left part of the Message-ID, so two copies can be told to be one message. RFC
5322, section 3.6, demands a `Date`, and a submission server only *may* add it (RFC 6409, section
8.2). A date cannot come from the request, so that one line is put in front of the frozen bytes when
they are sent. Two copies of a message differ in that line and in nothing else.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import message_from_bytes
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime
from enum import StrEnum
from typing import Any

import aiosmtplib

from operations.errors import Declined, EffectUnknown, ProviderError, Unavailable
from operations.guarantees import Guarantee, ProviderProfile
from providers.contract import ProviderRecord, RecordPage

PROFILE = ProviderProfile(
    provider="mail",
    guarantee=Guarantee.BLIND,
    can_look_up=False,
    # RFC 5321, section 4.5.3.2.6, grants a server ten minutes after the last dot, and warns that
    # impatience makes duplicates. A worker cannot wait that long; servers answer within seconds.
    send_timeout_seconds=60.0,
    blind_resends=2,  # a third copy informs nobody better
)
"""What SMTP promises: nothing after an answer is lost."""

TEXT_MAX_CHARACTERS = 100_000
QUIT_SECONDS = 2.0
"""The message is accepted by then; a server that does not say goodbye is left."""

NOT_ABOUT_THE_MESSAGE = frozenset({530, 534, 535, 538})
"""Replies about our login (RFC 4954, section 6): put right in the settings, not in the message."""

_MEMBERS = ("reference", "to", "subject", "text")
_REFERENCE = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What may stand left of the @ in a Message-ID as it is (RFC 5322, section 3.6.4: dot-atom)."""
_LINE = re.compile(r"[^\x00-\x1f\x7f]{1,500}")
"""One line: no CR, LF or NUL can start a header of its own."""
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


class Security(StrEnum):
    """How the connection is protected. Never "if the server offers it": that is no protection."""

    TLS = "tls"
    """From the first byte (RFC 8314, port 465)."""
    STARTTLS = "starttls"
    """Before anything else is said, or not at all (RFC 3207, port 587)."""
    NONE = "none"
    """For a server on this machine."""


@dataclass(frozen=True)
class MailServer:
    """Where mail is handed in, and as whom."""

    host: str
    port: int
    security: Security = Security.STARTTLS
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls_context: ssl.SSLContext | None = None
    """Which certificates are trusted; the system's by default."""


class SmtpMail:
    """A `providers.contract.Provider`. Action: `send` {reference, to, subject, text}.

    `look_up` and `list_records` always raise Unavailable.
    """

    def __init__(
        self,
        server: MailServer,
        *,
        sender: str,
        domain: str | None = None,
        profile: ProviderProfile = PROFILE,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Hand in at `server`, from the address `sender`, with Message-IDs under `domain`, which is
        the sender's by default. `now` makes the `Date`.

        Raises ValueError for unusable addresses, half a login, and a login without TLS.
        """
        self._server = server
        self._sender = _address(sender)
        self._domain = domain or self._sender.domain
        if not _DOMAIN.fullmatch(self._domain):
            raise ValueError("the domain of Message-IDs is none")
        if (server.username is None) != (server.password is None):
            raise ValueError("a mail login needs a user name and a password")
        if server.password is not None and server.security is Security.NONE:
            raise ValueError("a mail login needs TLS: without it anybody on the way reads it")
        self._profile = profile
        self._now = now

    @property
    def profile(self) -> ProviderProfile:
        """What SMTP promises."""
        return self._profile

    def freeze(self, action: str, request: Mapping[str, Any]) -> bytes:
        """The message without its `Date`: RFC 5322, all ASCII, one plain text part, no boundary.

        Raises ValueError for an unknown action, a missing, unknown or mistyped member, more than
        one recipient, an address outside ASCII, and a CR or LF where a header would take it.
        """
        _require_send(action)
        if sorted(request) != sorted(_MEMBERS):
            raise ValueError(f"send needs exactly {', '.join(_MEMBERS)}")
        values = [request[name] for name in _MEMBERS]
        if not all(isinstance(value, str) for value in values):
            raise ValueError("send needs texts only")
        reference, to, subject, text = (str(value) for value in values)
        if not _REFERENCE.fullmatch(reference):
            raise ValueError("the reference cannot stand in a Message-ID")
        if not _LINE.fullmatch(subject):
            raise ValueError("the subject has to be one line")
        if len(text) > TEXT_MAX_CHARACTERS:
            raise ValueError(f"the text is longer than {TEXT_MAX_CHARACTERS} characters")
        return self._compose(reference, to=_address(to), subject=subject, text=text)

    async def perform(self, action: str, *, key: str, body: bytes) -> ProviderRecord:
        """Hand in `body` once, to the recipient it names. The record's id is the Message-ID.

        Raises Declined, Unavailable, EffectUnknown, and ValueError for bytes not frozen by us.
        """
        _require_send(action)
        sender, recipient, message_id = _envelope(body)
        now = self._now()
        dated = b"Date: " + format_datetime(now).encode() + b"\r\n" + body
        client = self._client()
        deadline = asyncio.get_running_loop().time() + self._profile.send_timeout_seconds
        try:
            await self._introduce(client, sender, recipient, deadline=deadline)
            await self._hand_in(client, dated, deadline=deadline)
            await _say_goodbye(client)
        finally:
            client.close()
        return ProviderRecord(
            id=message_id, action="send", reference=key, state="accepted", created_at=now
        )

    async def look_up(self, action: str, *, key: str) -> tuple[ProviderRecord, ...]:
        """SMTP keeps no records. Raises Unavailable."""
        del action, key  # whatever is asked
        raise Unavailable("mail keeps no records we can read")

    async def list_records(
        self, *, since: datetime, until: datetime, cursor: str | None, limit: int
    ) -> RecordPage:
        """SMTP keeps no records. Raises Unavailable."""
        del since, until, cursor, limit  # whatever is asked
        raise Unavailable("mail keeps no records we can read")

    async def aclose(self) -> None:
        """Nothing is kept open between messages."""

    def _compose(self, reference: str, *, to: Address, subject: str, text: str) -> bytes:
        message = EmailMessage(policy=SMTP_POLICY)
        message["From"] = self._sender
        message["To"] = to
        message["Subject"] = subject
        message["Message-ID"] = f"<{reference}@{self._domain}>"
        message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office replies, please
        message.set_content(text, charset="utf-8", cte="quoted-printable")
        return message.as_bytes()

    def _client(self) -> aiosmtplib.SMTP:
        server = self._server
        return aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            username=server.username,
            password=server.password,
            local_hostname=self._domain,
            use_tls=server.security is Security.TLS,
            start_tls=server.security is Security.STARTTLS,
            tls_context=server.tls_context,
            timeout=self._profile.send_timeout_seconds,
        )

    async def _introduce(
        self, client: aiosmtplib.SMTP, sender: str, recipient: str, *, deadline: float
    ) -> None:
        """Everything before the message: whatever goes wrong here, nothing was handed in."""
        try:
            async with asyncio.timeout_at(deadline):
                try:
                    await client.connect()
                except aiosmtplib.SMTPResponseException as error:
                    raise Unavailable(f"mail server: {error.code} before any message") from error
                await client.mail(sender)
                await client.rcpt(recipient)
        except aiosmtplib.SMTPResponseException as error:
            raise _refusal(error.code) from error
        except (aiosmtplib.SMTPException, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"mail server: {type(error).__name__} before the message") from error

    async def _hand_in(self, client: aiosmtplib.SMTP, message: bytes, *, deadline: float) -> None:
        """`DATA`. Without a reply the server may have taken the message: its reply got lost."""
        try:
            async with asyncio.timeout_at(deadline):
                await client.data(message)
        except aiosmtplib.SMTPResponseException as error:
            raise _refusal(error.code) from error
        except (aiosmtplib.SMTPException, TimeoutError, OSError) as error:
            raise EffectUnknown(f"mail server: {type(error).__name__} after DATA") from error


async def _say_goodbye(client: aiosmtplib.SMTP) -> None:
    with contextlib.suppress(aiosmtplib.SMTPException, TimeoutError, OSError):
        async with asyncio.timeout(QUIT_SECONDS):
            await client.quit()


def _refusal(code: int) -> ProviderError:
    """What a reply other than the hoped-for one means (RFC 5321, section 4.2.1)."""
    if code in NOT_ABOUT_THE_MESSAGE:
        return Unavailable(f"mail server: {code}, it wants another login")
    if 400 <= code < 500:
        return Unavailable(f"mail server: {code}, not now")
    if 500 <= code < 600:
        return Declined(f"mail server: {code}, refused", code=f"smtp_{code}")
    return EffectUnknown(f"mail server: {code}, which means nothing here")


def _address(text: str) -> Address:
    """One address, in ASCII: others need a server that takes SMTPUTF8 (RFC 6531)."""
    if not (text.isascii() and text.isprintable()):
        raise ValueError("a mail address has to be printable ASCII")
    try:
        address = Address(addr_spec=text)
    except (ValueError, IndexError, MessageError) as error:
        raise ValueError("this is not one mail address") from error
    if not address.username or not _DOMAIN.fullmatch(address.domain):
        raise ValueError("a mail address needs a local part and a domain")
    return address


def _envelope(body: bytes) -> tuple[str, str, str]:
    """Sender, recipient and Message-ID of a frozen message."""
    message = message_from_bytes(body, policy=SMTP_POLICY)
    try:
        [sender] = message["From"].addresses
        [recipient] = message["To"].addresses
        return sender.addr_spec, recipient.addr_spec, str(message["Message-ID"])
    except (AttributeError, ValueError) as error:
        raise ValueError("these bytes are no frozen message") from error


def _require_send(action: str) -> None:
    if action != "send":
        raise ValueError(f"mail has no action {action}")


def smtp_mail(
    *,
    host: str,
    sender: str,
    port: int = 587,
    security: Security = Security.STARTTLS,
    username: str | None = None,
    password: str | None = None,
    domain: str | None = None,
    adjust: Callable[[ProviderProfile], ProviderProfile] = lambda profile: profile,
) -> SmtpMail:
    """The client that the settings ask for; `adjust` puts a deployment's figures into its profile.

    Raises ValueError for unusable addresses, half a login, and a login without TLS.
    """
    return SmtpMail(
        MailServer(host, port, security=security, username=username, password=password),
        sender=sender,
        domain=domain,
        profile=adjust(PROFILE),
    )
