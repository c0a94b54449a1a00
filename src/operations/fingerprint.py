"""What a request means, as bytes: equal requests have equal fingerprints, others never do."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from json.encoder import encode_basestring

from operations.strict_json import EXPONENT_MAX, JsonValue

FINGERPRINT_VERSION = 1
"""The first byte of every fingerprint. Whoever changes the canonical form or the hash raises it;
else a retry that meets a claim of the older form would be told that its content differs."""

POINTER_CHARACTERS_MAX = 256
"""A pointer that would be longer names the nearest parent that fits instead."""

_PLAIN_DIGITS_MAX = 18
"""Up to here trailing zeros are written out, for people who read a frozen request. A larger bound
would let a short 1e99 grow on every repetition."""

_LEADING_ZEROS_MAX = 6  # 0.0000001 and smaller are written with an exponent
_PLAIN_BELOW = 10**_PLAIN_DIGITS_MAX
_LITERALS = {True: "true", False: "false", None: "null"}


def canonical_bytes(value: JsonValue) -> bytes:
    """The canonical form of `value`: equal JSON values give equal bytes, different ones never do.

    It is JSON in UTF-8 without white space, which `read_json` reads back to an equal value, so it
    is also what is stored as the frozen request. Members are in order of their names' code points
    (not of UTF-16 units, as RFC 8785 has it), strings are the code points themselves, never
    normalised, and a number's text is a function of its exact decimal value: `1`, `1.0` and `10e-1`
    are `1`, and an exponent is never expanded. For values of `read_json` the result is at most four
    times as long as the body.

    Raises TypeError for anything but the types of JsonValue, a float above all; ValueError for a
    lone surrogate, a Decimal that is not finite, or one beyond `strict_json.EXPONENT_MAX`.
    """
    return _canonical(value).encode("utf-8")


def fingerprint(*, operation: str, canonical: bytes) -> bytes:
    """33 bytes: the version, and the SHA-256 of the operation's name and its canonical request."""
    name = operation.encode("utf-8")
    # The length of the name marks where the request begins.
    digest = hashlib.sha256(len(name).to_bytes(4, "big") + name + canonical).digest()
    return bytes([FINGERPRINT_VERSION]) + digest


def differing_pointers(first: JsonValue, second: JsonValue, *, limit: int = 20) -> tuple[str, ...]:
    """Where two requests differ, as JSON pointers (RFC 6901), sorted, without any of their values.

    A pointer names a value that changed, or a member or item that only one side has; `""` is the
    whole document. Numbers of one decimal value do not differ. At most `limit` are returned, the
    first in the order of names and indices, and none is longer than `POINTER_CHARACTERS_MAX`.
    """
    found: dict[str, None] = {}
    for pointer in _differences(first, second, at=_Place()):
        if len(found) == limit:
            break
        found[pointer] = None
    return tuple(sorted(found))


def _canonical(value: JsonValue) -> str:
    # By exact type, the frequent ones first: this runs for every request, and a subclass may carry
    # another meaning of equality.
    if type(value) is str:
        return encode_basestring(value)
    if type(value) is int:
        return str(value) if -_PLAIN_BELOW < value < _PLAIN_BELOW else _number(Decimal(value))
    if type(value) is dict:
        members = [f"{encode_basestring(name)}:{_canonical(value[name])}" for name in sorted(value)]
        return f"{{{','.join(members)}}}"
    if type(value) is list:
        return f"[{','.join([_canonical(item) for item in value])}]"
    if type(value) is Decimal:
        return _number(value)
    if type(value) is bool or value is None:
        return _LITERALS[value]
    raise TypeError(f"{type(value).__name__} is not a JSON value that is kept exactly.")


def _number(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("Only finite numbers have a canonical form.")
    # Formatting without a precision never rounds, whatever the context; normalize() would.
    mantissa, _, exponent = f"{value:E}".partition("E")
    sign = "-" if mantissa.startswith("-") else ""
    written = mantissa.removeprefix("-").replace(".", "")
    digits = written.rstrip("0")
    if not digits:
        return "0"
    power = int(exponent) - len(digits) + 1  # of ten, by which the digits are multiplied
    point = len(digits) + power  # how many digits stand before the decimal point
    if abs(power) > EXPONENT_MAX:
        raise ValueError("The number's exponent is beyond what is read back.")
    if power == 0 or 0 < power <= _PLAIN_DIGITS_MAX - len(digits):
        return f"{sign}{digits}{'0' * power}"
    if power < 0 < point:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -_LEADING_ZEROS_MAX <= point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits}e{power}"


def _differences(first: JsonValue, second: JsonValue, *, at: "_Place") -> Iterator[str]:
    if isinstance(first, dict) and isinstance(second, dict):
        for name in sorted(first.keys() | second.keys()):
            place = at.below(name)
            if name in first and name in second:
                yield from _differences(first[name], second[name], at=place)
            else:
                yield place.pointer
    elif isinstance(first, list) and isinstance(second, list):
        shared = min(len(first), len(second))
        for index in range(shared):
            yield from _differences(first[index], second[index], at=at.below(str(index)))
        for index in range(shared, max(len(first), len(second))):
            yield at.below(str(index)).pointer
    elif not _is_same(first, second):
        yield at.pointer


def _is_same(first: JsonValue, second: JsonValue) -> bool:
    if isinstance(first, (list, dict)) or isinstance(second, (list, dict)):
        return False  # of different kinds, or they would have been compared member by member
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second  # Python has True == 1
    return first == second


@dataclass(frozen=True, slots=True)
class _Place:
    """A pointer, and whether it stands for all below it because a longer one is too long."""

    pointer: str = ""
    is_cut: bool = False

    def below(self, token: str) -> "_Place":
        if self.is_cut:
            return self
        # Judged before it is built: a long name would be copied for every item below it.
        if len(self.pointer) + 1 + len(token) <= POINTER_CHARACTERS_MAX:
            pointer = f"{self.pointer}/{token.replace('~', '~0').replace('/', '~1')}"
            if len(pointer) <= POINTER_CHARACTERS_MAX:
                return _Place(pointer)
        return _Place(self.pointer, is_cut=True)
