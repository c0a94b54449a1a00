"""Encryption of payloads: nothing readable, keys that rotate, and errors that say what to do."""

import base64
import os

import pytest
from pydantic import SecretStr, ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from runtime.codec import EncryptingCodec, PayloadKeys, PayloadUnreadable, data_converter
from runtime.settings import Settings


def key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def codec(text: str) -> EncryptingCodec:
    return EncryptingCodec(PayloadKeys.parse(text))


SECRET = Payload(metadata={"encoding": b"json/plain"}, data=b'{"card":"tok_visa"}')


async def test_a_payload_comes_back_as_it_was_and_nothing_of_it_can_be_read() -> None:
    ours = codec(f"k1:{key()}")
    (sealed,) = await ours.encode([SECRET])
    assert b"tok_visa" not in sealed.SerializeToString()
    assert b"json/plain" not in sealed.SerializeToString()
    assert await ours.decode([sealed]) == [SECRET]


async def test_the_same_payload_twice_does_not_look_the_same() -> None:
    first, second = await codec(f"k1:{key()}").encode([SECRET, SECRET])
    assert first.data != second.data


async def test_a_new_key_encrypts_and_the_old_one_is_still_read() -> None:
    old, new = key(), key()
    (before,) = await codec(f"2026:{old}").encode([SECRET])
    rotated = codec(f"2027:{new},2026:{old}")
    (after,) = await rotated.encode([SECRET])
    assert after.metadata["tallystick-key"] == b"2027"
    assert await rotated.decode([before, after]) == [SECRET, SECRET]


async def test_a_payload_from_before_encryption_is_read() -> None:
    assert await codec(f"k1:{key()}").decode([SECRET]) == [SECRET]


async def test_an_unknown_key_is_named() -> None:
    (sealed,) = await codec(f"2026:{key()}").encode([SECRET])
    with pytest.raises(PayloadUnreadable, match=r"'2026'.*TALLYSTICK_PAYLOAD_KEYS \(2027\)"):
        await codec(f"2027:{key()}").decode([sealed])


async def test_another_key_under_the_same_name_and_a_changed_payload_are_told_of() -> None:
    ours = codec(f"k1:{key()}")
    (sealed,) = await ours.encode([SECRET])
    with pytest.raises(PayloadUnreadable, match="does not fit"):
        await codec(f"k1:{key()}").decode([sealed])
    sealed.data = sealed.data[:-1] + bytes([sealed.data[-1] ^ 1])
    with pytest.raises(PayloadUnreadable, match="does not fit"):
        await ours.decode([sealed])
    sealed.data = b"short"
    with pytest.raises(PayloadUnreadable, match="does not fit"):
        await ours.decode([sealed])


async def test_failures_are_encrypted_too() -> None:
    converter = data_converter(f"k1:{key()}")
    failure = Failure()
    await converter.encode_failure(ApplicationError("card tok_visa refused"), failure)
    assert b"tok_visa" not in failure.SerializeToString()
    error = await converter.decode_failure(failure)
    assert "tok_visa" in str(error)


@pytest.mark.parametrize(
    "text",
    ["", "k1", ":aaaa", "k1:%%%", "k1:YWJj", f"k 1:{key()}", f"k1:{key()},"],
    ids=["empty", "no_key", "no_id", "not_base64", "too_short", "id_with_a_space", "empty_entry"],
)
def test_keys_that_cannot_be_read_are_refused_at_the_start(text: str) -> None:
    with pytest.raises(ValidationError, match="TALLYSTICK_PAYLOAD_KEYS"):
        Settings(payload_keys=SecretStr(text))


def test_two_keys_of_one_name_are_refused_and_no_key_is_shown() -> None:
    secret = key()
    with pytest.raises(ValueError, match="twice") as refused:
        PayloadKeys.parse(f"k1:{secret},k1:{secret}")
    assert secret not in str(refused.value)
    assert secret not in repr(PayloadKeys.parse(f"k1:{secret}"))
