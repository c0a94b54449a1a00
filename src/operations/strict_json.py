"""Strict, lossless reading of JSON (RFC 8259), in linear time.

The grammar is left to CPython's own scanner, which is exact but for the constants it adds. What
I-JSON (RFC 7493) forbids and readers disagree about is refused on top: duplicate member names and
lone surrogates. Numbers never pass through binary floating point.
"""

import json
import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Never, TypeAlias

JsonValue: TypeAlias = "bool | int | Decimal | str | list[JsonValue] | dict[str, JsonValue] | None"
"""What `read_json` returns. How a number was spelled is gone: its type depends on its value alone.

An integral number below 10**38 is an `int`, also when written `2400.0` or `24e2`; every other
number is a `Decimal` without trailing zeros. So numbers that are equal, and which the fingerprint
therefore calls equal, are validated equally: a strict integer field takes `24e2` as 2400.
"""

DEPTH_MAX = 32
"""Deeper than any request we take, and far from every recursion limit."""

INT_DIGITS_MAX = 38
"""Holds any 128-bit integer. Beyond it a short spelling such as 1e999999999 would fill memory."""

EXPONENT_MAX = 10**15
"""Bounds the power of ten of a number's last digit that is not zero. `Decimal` is exact far beyond;
RFC 8259, section 9, allows a bound, and this one depends on the value, not on its spelling."""

_EXPONENT_DIGITS_MAX = 17  # no mantissa that fits in memory brings a longer one back into bounds
_SHORT_CHARACTERS_MAX = 17  # the exponent has at most 15 digits, so it is within EXPONENT_MAX
_ROOMY = Context(prec=_SHORT_CHARACTERS_MAX, Emin=MIN_EMIN, Emax=MAX_EMAX)  # rounds nothing short
_NAME_SHOWN_CHARACTERS_MAX = 40
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# As much text as holds no lone surrogate. Possessive, so it never backtracks.
_PAIRED = re.compile(
    r"(?:[^\\]++"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\(?!u[dD][89a-fA-F]).)*+",
    re.DOTALL,
)


class JsonMalformed(ValueError):
    """The body is not JSON that can be read in one way only."""

    def __init__(self, reason: str, *, position: int | None = None) -> None:
        """Keep `reason`, a sentence without contents of the body but the start of a member name,
        and `position`, the offset in bytes where it is known."""
        super().__init__(reason if position is None else f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


def read_json(body: bytes, *, max_depth: int = DEPTH_MAX) -> JsonValue:
    """The one JSON value in `body`, with every number exact.

    `max_depth` bounds how many arrays and objects may be open at once, 0 to some hundreds. The
    caller bounds the length of `body`; time and memory grow linearly with it.

    Raises JsonMalformed for anything but UTF-8 without a byte order mark, any deviation from the
    grammar, contents after the value, NaN and Infinity, a member name twice in one object, a
    surrogate without its other half, deeper nesting, and a number beyond `EXPONENT_MAX`.
    """
    if body.startswith(_BOM):
        raise JsonMalformed("The body starts with a byte order mark. Leave it out.", position=0)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonMalformed("The body is not UTF-8.", position=error.start) from None
    try:
        value: JsonValue = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise JsonMalformed(
            f"The body is not JSON: {error.msg.removesuffix(' at').rstrip(': ')}.",
            position=_bytes(text, error.pos),
        ) from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    # So many brackets are needed to nest deeper; most bodies have fewer, and need no walk.
    if body.count(b"[") + body.count(b"{") > max_depth and _is_deeper(value, max_depth):
        raise _too_deep(max_depth)
    if b"\\u" in body and _SURROGATE.search(text) is not None:
        paired = _PAIRED.match(text)
        if paired is not None and paired.end() != len(text):
            raise JsonMalformed(
                "A string holds half of a surrogate pair, which is no character.",
                position=_bytes(text, paired.end()),
            )
    return value


def _int(text: str) -> int | Decimal:
    # int() is quadratic in its digits and refuses long texts, so only short ones reach it.
    return int(text) if len(text) <= INT_DIGITS_MAX else _number(text)


def _number(text: str) -> int | Decimal:
    return _short(text) if len(text) <= _SHORT_CHARACTERS_MAX else _long(text)


def _short(text: str) -> int | Decimal:
    # What _long does, in a fifth of the time.
    number = _ROOMY.normalize(Decimal(text))
    if number.adjusted() < INT_DIGITS_MAX and number == number.to_integral_value():
        return int(number)
    return number


def _long(text: str) -> int | Decimal:
    mantissa, _, exponent = text.replace("E", "e").partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    coefficient = digits.rstrip("0")
    if not coefficient:
        return 0
    written = exponent.lstrip("+-").lstrip("0")
    if len(written) > _EXPONENT_DIGITS_MAX:
        raise _too_large()
    power = int(written or "0") * (-1 if exponent.startswith("-") else 1)
    power += len(digits) - len(coefficient) - len(fraction)
    if 0 <= power <= INT_DIGITS_MAX - len(coefficient):
        return int(f"{sign}{coefficient}{'0' * power}")
    if abs(power) > EXPONENT_MAX:
        raise _too_large()
    return Decimal(f"{sign}{coefficient}E{power}")


def _object(members: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    read = dict(members)
    if len(read) != len(members):
        raise JsonMalformed(f"The member name {_repeated(members)} appears twice in one object.")
    return read


def _repeated(members: list[tuple[str, JsonValue]]) -> str:
    seen: set[str] = set()
    for name, _ in members:
        if name in seen:
            # ascii(): a name may hold what no answer could be encoded with.
            shown = ascii(name[:_NAME_SHOWN_CHARACTERS_MAX])
            return shown if len(name) <= _NAME_SHOWN_CHARACTERS_MAX else f"{shown}…"
        seen.add(name)
    raise AssertionError("called for members with a repeated name")


def _constant(text: str) -> Never:
    raise JsonMalformed(f"{text} is not a JSON number.")


def _is_deeper(value: JsonValue, max_depth: int) -> bool:
    level = [value] if isinstance(value, (list, dict)) else []
    for _ in range(max_depth):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (list, dict))
        ]
    return bool(level)


def _bytes(text: str, characters: int) -> int:
    return len(text[:characters].encode("utf-8"))


def _too_deep(max_depth: int) -> JsonMalformed:
    return JsonMalformed(f"Arrays and objects are nested deeper than {max_depth}.")


def _too_large() -> JsonMalformed:
    return JsonMalformed("A number's exponent is beyond what is kept exactly, ±10 to the 15th.")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_number, parse_int=_int, parse_constant=_constant
)
