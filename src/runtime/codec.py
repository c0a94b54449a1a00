"""Encryption of what Temporal keeps: payloads and failure messages, with AES-GCM (SP 800-38D).

The key's identifier stands in each payload's metadata, so keys can be rotated: the first key of
`TALLYSTICK_PAYLOAD_KEYS` encrypts, all of them decrypt. Workflow IDs, search attributes, activity
names and times are not payloads and stay readable: see `docs/encryption.md`.
"""

import base64
import binascii
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)

ENCODING = b"binary/tallystick-aes-gcm"
KEY_ID = "tallystick-key"
"""The name, in a payload's metadata, of the identifier of its key."""

KEY_BYTES = 32
NONCE_BYTES = 12
"""Random ones of 96 bits: one key is good for 2**32 payloads (SP 800-38D, section 8.3)."""

_KEY_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class PayloadUnreadable(Exception):
    """A payload that cannot be decrypted: its key is not configured, or it was tampered with."""


@dataclass(frozen=True, slots=True)
class PayloadKeys:
    """The keys by their identifiers; the active one encrypts."""

    active: str
    keys: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "PayloadKeys":
        """Read `id:base64key,id:base64key`, the active one first.

        Raises ValueError that says which entry is wrong, and never shows a key.
        """
        keys: dict[str, bytes] = {}
        for position, entry in enumerate(text.split(","), start=1):
            name, _, encoded = entry.strip().partition(":")
            if _KEY_NAME.fullmatch(name) is None:
                raise ValueError(f"key {position} is not written as id:base64")
            if name in keys:
                raise ValueError(f"the key identifier {name} stands there twice")
            keys[name] = _decoded(name, encoded)
        return cls(active=next(iter(keys)), keys=MappingProxyType(keys))


def _decoded(name: str, encoded: str) -> bytes:
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"the key {name} is not base64") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key {name} has {len(key)} bytes; AES-256 takes {KEY_BYTES}")
    return key


class EncryptingCodec(PayloadCodec):
    """Encrypts every payload, and reads those that were written before it was turned on."""

    def __init__(self, keys: PayloadKeys) -> None:
        """Encrypt with the active key."""
        self._active = keys.active
        self._ciphers = {name: AESGCM(key) for name, key in keys.keys.items()}

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt whole payloads, their metadata included."""
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt what is encrypted, and leave what is not. Raises PayloadUnreadable."""
        return [self._decrypt(payload) for payload in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        name = self._active.encode()
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self._active].encrypt(nonce, payload.SerializeToString(), name)
        return Payload(metadata={"encoding": ENCODING, KEY_ID: name}, data=nonce + sealed)

    def _decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        name = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise PayloadUnreadable(
                f"A payload is encrypted with the key {name!r}, which is not among "
                f"TALLYSTICK_PAYLOAD_KEYS ({', '.join(self._ciphers)}): add it"
            )
        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            plain = cipher.decrypt(nonce, sealed, name.encode())
        except (InvalidTag, ValueError):
            raise PayloadUnreadable(
                f"A payload does not fit the key {name!r}: another key has this identifier, or the "
                "payload was changed"
            ) from None
        return Payload.FromString(plain)


_CONVERTERS = tuple(PydanticPayloadConverter().converters.values())


class PayloadConverter(CompositePayloadConverter):
    """pydantic's, around converters that are made once.

    The SDK makes a payload converter for every run, and two for every activation. pydantic's own
    builds a serializer each time, and starts with no type adapter known.
    """

    def __init__(self) -> None:
        """Share the converters: they keep nothing but type adapters."""
        super().__init__(*_CONVERTERS)


_PLAIN = DataConverter(payload_converter_class=PayloadConverter)


def data_converter(keys: str | None) -> DataConverter:
    """The converter of every client and worker: with encryption when `keys` are given.

    Raises ValueError for keys that cannot be read.
    """
    if keys is None:
        return _PLAIN
    return replace(
        _PLAIN,
        payload_codec=EncryptingCodec(PayloadKeys.parse(keys)),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )
