"""Idempotency keys: the client's, and those derived from it for workflows and providers.

Every key here outlives the process that made it, so the encodings below are part of the contract:
changing one would turn a retry into a new operation, or a resend into a second charge.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum

import http_sf

KEY_BYTES_MAX = 255
"""What the contract allows. It is also what fits the column that holds the key."""

WORKFLOW_ID_CHARACTERS_MAX = 255
"""Temporal on Postgres keeps a workflow ID in 255 characters."""

NAME_CHARACTERS_MAX = 64
"""Operations and tenants: two of them leave room for a readable part of the key."""

_QUOTED_BYTES_MAX = 2 * KEY_BYTES_MAX + 2  # every character escaped, and the two quotes
_VISIBLE = re.compile(rb"[\x21-\x7e]*")
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
# Visible ASCII without DQUOTE ( ) , ; and backslash.
_BARE = re.compile(rb"[\x21\x23-\x27\x2a\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]{1,255}")
# Visible ASCII without # / ? that is not a percent sign, or a complete percent-encoded byte.
_SEGMENT = re.compile(rb"(?:[\x21\x22\x24\x26-\x2e\x30-\x3e\x40-\x7e]|%[0-9A-Fa-f]{2})*+")
_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_DERIVED_PREFIX = "ts1"
_DERIVED_DOMAIN = b"tallystick/derived-key/1"


class Purpose(StrEnum):
    """What a provider call is for. An undo has its own key: it is another effect."""

    ACTION = "action"
    UNDO = "undo"
    DUPLICATE = "duplicate"
    """The undo of an effect that was found twice."""


class KeyMissing(ValueError):
    """The request carries no idempotency key. `reason` says what to do."""

    def __init__(self) -> None:
        """The reason is always the same."""
        self.reason = (
            "There is no Idempotency-Key header. Send one with a value that is new for every "
            'operation and repeated on every retry of it, such as "8e03978e-40d5-43dd-bc93".'
        )
        super().__init__(self.reason)


class KeyMalformed(ValueError):
    """The key cannot be read as one key. `reason` says what to do, without the key itself."""

    def __init__(self, reason: str) -> None:
        """Keep `reason`, one or two sentences for the person who wrote the client."""
        super().__init__(reason)
        self.reason = reason


def parse_key_header(values: Sequence[bytes]) -> str:
    """The key in the raw values of all Idempotency-Key header lines.

    The value is a structured-field string (RFC 9651, section 3.3.3) or the same characters bare:

        field  = OWS ( quoted / bare ) OWS                ; OWS = *( SP / HTAB )
        quoted = DQUOTE 1*255( plain / escape ) DQUOTE
        plain  = %x21 / %x23-5B / %x5D-7E                 ; visible ASCII but not DQUOTE, backslash
        escape = "\\" ( DQUOTE / "\\" )                     ; counts as one of the 255
        bare   = 1*255( %x21 / %x23-27 / %x2A-2B / %x2D-3A / %x3C-5B / %x5D-7E )
                                                          ; plain but not ( ) , ;

    So `"abc"` and `abc` are one key, and UUIDs, `a/b:c` and padded base64 need no quotes. What a
    bare key may not hold is what makes a list, an inner list, a parameter, a string or an escape of
    a structured field: those are refused rather than guessed at. A bare `:YWJj:` or `?1` is its own
    characters, never the byte sequence or boolean it would be elsewhere.

    Raises KeyMissing without a header line, and KeyMalformed for everything else that is not
    exactly one key. Nothing is truncated.
    """
    if not values:
        raise KeyMissing
    if len(values) > 1:
        raise KeyMalformed(
            "The Idempotency-Key header was sent more than once. Send exactly one line."
        )
    field = values[0].strip(b" \t")
    if field.startswith(b'"'):
        return _parse_quoted(field)
    if _BARE.fullmatch(field) is None:
        _check_characters(field)
        raise KeyMalformed(
            "The idempotency key is not one value: without quotes it may not hold any of "
            '" \\ ( ) , ; (a list or parameters are not a key). Send it as a quoted string.'
        )
    return field.decode("ascii")


def parse_key_path(segment: str | bytes) -> str:
    """The key in one raw path segment, before any percent-decoding.

        segment = 1*255( character / "%" HEXDIG HEXDIG )
        character = %x21-22 / %x24 / %x26-2E / %x30-3E / %x40-7E   ; visible ASCII but not # % / ?

    A path has no quotes: after decoding, the key is the characters as they are, any of visible
    ASCII. Decoding happens once, and a percent sign that encodes nothing is refused (RFC 3986,
    section 2.1).

    Raises KeyMalformed.
    """
    try:
        raw = segment.encode("ascii") if isinstance(segment, str) else segment
    except UnicodeEncodeError:
        raise KeyMalformed(
            "The key in the path holds non-ASCII characters. Use 1 to 255 bytes of visible ASCII."
        ) from None
    if _SEGMENT.fullmatch(raw) is None:
        _check_characters(raw, bytes_max=3 * KEY_BYTES_MAX)
        raise KeyMalformed(
            "The key in the path is not one percent-encoded segment: write each of % / ? # as a "
            "percent sign and two hexadecimal digits."
        )
    key = _ENCODED.sub(lambda match: bytes.fromhex(match[1].decode("ascii")), raw)
    _check_characters(key)
    return key.decode("ascii")


def format_key_header(key: str) -> str:
    """`key` as a structured-field string, for echoing. `parse_key_header` reads it back.

    Raises ValueError when `key` is not 1 to 255 characters of visible ASCII.
    """
    return http_sf.ser(_checked_key(key))


def format_key_path(key: str) -> str:
    """`key` as one path segment, for links. `parse_key_path` reads it back.

    The keys `.` and `..` are written as they are: URL libraries remove those segments, also when
    they are percent-encoded (RFC 3986, section 5.2.4), so such a key is only reachable by header.

    Raises ValueError when `key` is not 1 to 255 characters of visible ASCII.
    """
    return "".join(
        chr(byte) if byte in _UNRESERVED else f"%{byte:02X}"
        for byte in _checked_key(key).encode("ascii")
    )


def workflow_id(*, operation: str, tenant: str, key: str) -> str:
    """`operation/tenant/key`, in at most 255 characters. Different arguments, different IDs.

    An ID of up to 254 characters is readable as it stands. A longer one is cut and ends in a
    SHA-256 digest of the whole; it is then exactly 255 characters long, so no readable ID, however
    its key was chosen, can equal it. Names hold no `/`, so the first two always end the names.

    Raises ValueError when a name is not 1 to 64 of `a-z 0-9 . _ -` with a letter or digit first, or
    the key not 1 to 255 characters of visible ASCII.
    """
    readable = f"{checked_name(operation)}/{checked_name(tenant)}/{_checked_key(key)}"
    if len(readable) < WORKFLOW_ID_CHARACTERS_MAX:
        return readable
    digest = hashlib.sha256(readable.encode("ascii")).hexdigest()
    return f"{readable[: WORKFLOW_ID_CHARACTERS_MAX - len(digest) - 1]}~{digest}"


def derived_key(*, workflow_id: str, step: str, ordinal: int, purpose: Purpose) -> str:
    """The key a provider sees for one effect: 35 lower-case ASCII letters and digits.

    It depends on nothing that changes on a retry or a reset. It starts with `ts1`, so that our
    records stand out in a provider's books; the rest is 160 bits of a SHA-256 in base 32, which
    survives systems that fold case, allow letters and digits only, or take 35 characters (as
    ISO 20022 references do). A new `ordinal`, from 0, is an explicit decision to try a new effect.

    Raises ValueError for an empty `workflow_id` or `step`, or a negative `ordinal`.
    """
    if not workflow_id or not step or ordinal < 0:
        raise ValueError("A derived key needs a workflow ID, a step and an ordinal from 0.")
    digest = hashlib.sha256(_DERIVED_DOMAIN)
    for field in (workflow_id, step, str(ordinal), purpose.value):
        encoded = field.encode("utf-8")
        # The length keeps ("a", "bc") apart from ("ab", "c").
        digest.update(len(encoded).to_bytes(4, "big"))
        digest.update(encoded)
    return _DERIVED_PREFIX + base64.b32encode(digest.digest()[:20]).decode("ascii").lower()


def checked_name(name: str) -> str:
    """`name` itself, when it may name an operation or a tenant.

    Raises ValueError when it is not 1 to 64 of `a-z 0-9 . _ -` with a letter or digit first.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"{name[:80]!r} is not a name: use 1 to {NAME_CHARACTERS_MAX} of a-z 0-9 . _ - "
            "with a letter or digit first."
        )
    return name


def _parse_quoted(field: bytes) -> str:
    # http_sf follows RFC 9651, and a key is narrower: the RFC also allows parameters after the
    # string, spaces inside it, the empty string and any length. Those four are refused here.
    if len(field) > _QUOTED_BYTES_MAX:
        raise KeyMalformed(_too_long())
    try:
        item = http_sf.parse(field, tltype="item")
    except ValueError:
        _check_characters(field, bytes_max=_QUOTED_BYTES_MAX)
        raise KeyMalformed(
            "The idempotency key is not one quoted string: end it with a quote, put a backslash "
            'before each inner " and \\, and send nothing after it.'
        ) from None
    key, parameters = item if isinstance(item, tuple) else (None, None)
    if not isinstance(key, str) or parameters:
        raise KeyMalformed("The idempotency key takes no parameters. Send the string alone.")
    _check_characters(key.encode("ascii"))
    return key


def _check_characters(key: bytes, *, bytes_max: int = KEY_BYTES_MAX) -> None:
    if not key:
        raise KeyMalformed("The idempotency key is empty. Use 1 to 255 bytes of visible ASCII.")
    if _VISIBLE.fullmatch(key) is None:
        raise KeyMalformed(
            "The idempotency key holds a space, a control character or a non-ASCII byte. Use 1 to "
            "255 bytes of visible ASCII, such as a UUID."
        )
    if len(key) > bytes_max:
        raise KeyMalformed(_too_long())


def _too_long() -> str:
    return (
        f"The idempotency key is longer than {KEY_BYTES_MAX} bytes, and is never cut. Send a "
        "shorter one, such as a UUID or a hash."
    )


def _checked_key(key: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise ValueError("A key is 1 to 255 characters of visible ASCII.")
    return key
