"""What a body may be, and what it may not."""

import gc
import threading
import time
from decimal import Decimal, localcontext

import pytest
from pydantic import StrictInt, TypeAdapter, ValidationError

from operations.money import Money
from operations.strict_json import EXPONENT_MAX, JsonMalformed, JsonValue, read_json

BODY_BYTES_MAX = 256 * 1024


def same(first: JsonValue, second: JsonValue) -> bool:
    return repr(first) == repr(second)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"null", None),
        (b" \t\r\n[true, false] \n", [True, False]),
        (b'{"a": {"": []}}', {"a": {"": []}}),
        (rb'"\"\\\/\b\f\n\r\t\u00e9"', '"\\/\b\f\n\r\té'),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\\ud800"', "\\ud800"),
        (rb'"\\\\ud800\u0000"', "\\\\ud800\0"),
        ('"é\u2028\x7f"'.encode(), "é\u2028\x7f"),
        (b"-0", 0),
        (b"-0.0e5", 0),
        (b"0e99999999999999999999999", 0),
        (b"2400", 2400),
        (b"2400.0", 2400),
        (b"24e2", 2400),
        (b"24E+02", 2400),
        (b"240000e-2", 2400),
        (b"-24.50", Decimal("-24.5")),
        (b"9007199254740993", 9007199254740993),
        (b"9007199254740993.0", 9007199254740993),
        (b"1e37", 10**37),
        (b"1e38", Decimal("1E+38")),
        (b"1" + b"0" * 38, Decimal("1E+38")),
        (b"-" + b"9" * 38, 1 - 10**38),
        (b"1e400", Decimal("1E+400")),
        (b"1e-0000000000000000000000400", Decimal("1E-400")),
        (b"1e1000000000000000", Decimal(f"1E+{EXPONENT_MAX}")),
        (b"0.1e1000000000000001", Decimal(f"1E+{EXPONENT_MAX}")),
    ],
)
def test_json_is_read_exactly(body: bytes, value: JsonValue) -> None:
    assert same(read_json(body), value)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b" ", "not JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "UTF-8"),
        ("{}".encode("utf-16-le"), "not JSON"),
        (b'"\xff"', "UTF-8"),
        (b'"\xc0\x80"', "UTF-8"),
        (b'"\xed\xa0\x80"', "UTF-8"),
        (b"{} {}", "not JSON"),
        (b"{}\x00", "not JSON"),
        (b"{}\x0b", "not JSON"),
        (b"\xc2\xa0{}", "not JSON"),
        (b"[1,]", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b"{a:1}", "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{1:"a"}', "not JSON"),
        (b"[1 2]", "not JSON"),
        (b"/**/1", "not JSON"),
        (b"True", "not JSON"),
        (b"NaN", "not a JSON number"),
        (b"[Infinity]", "not a JSON number"),
        (b'{"a": -Infinity}', "not a JSON number"),
        (b"01", "not JSON"),
        (b"-", "not JSON"),
        (b"+1", "not JSON"),
        (b".5", "not JSON"),
        (b"1.", "not JSON"),
        (b"1.e5", "not JSON"),
        (b"1e", "not JSON"),
        (b"0x10", "not JSON"),
        (b"1_0", "not JSON"),
        ("\u0661".encode(), "not JSON"),
        (b'"a\nb"', "not JSON"),
        (b'"\x00"', "not JSON"),
        (rb'"\x41"', "not JSON"),
        (rb'"\u12"', "not JSON"),
        (rb'"\u 123"', "not JSON"),
        (rb'"\u0x41"', "not JSON"),
        (b'"abc', "not JSON"),
        (b'{"a":1,"a":1}', "appears twice"),
        (b'[{"b":{"a":1,"c":2,"\\u0061":2}}]', "appears twice"),
        (rb'"\ud800"', "surrogate"),
        (rb'"\ude00\ud83d"', "surrogate"),
        (rb'"\ud83d\ud83d\ude00"', "surrogate"),
        (rb'"\ud83dx\ude00"', "surrogate"),
        (rb'"\ud83d\\ude00"', "surrogate"),
        (rb'{"\udfff": 1}', "surrogate"),
        (rb'{"\uDBFF": 1, "\uDBFF": 1}', "appears twice"),
        (b"1e1000000000000001", "exponent"),
        (b"1e-1000000000000001", "exponent"),
        (b"1e99999999999999999999999999", "exponent"),
    ],
)
def test_what_readers_disagree_about_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(JsonMalformed, match=reason) as refused:
        read_json(body)
    refused.value.reason.encode("utf-8")


@pytest.mark.parametrize(
    ("body", "position"),
    [
        ('"é" x'.encode(), 5),
        (b'["a\xff"]', 3),
        (rb'["\ud83d\ude00", "\ud800"]', 18),
        ('["éé\\ud800"]'.encode(), 6),
    ],
)
def test_the_position_is_in_bytes(body: bytes, position: int) -> None:
    with pytest.raises(JsonMalformed) as refused:
        read_json(body)
    assert refused.value.position == position


def test_a_refusal_shows_no_value_and_only_the_start_of_a_name() -> None:
    name = "n" * 1000
    with pytest.raises(JsonMalformed) as refused:
        read_json(f'{{"{name}": "secret", "{name}": "secret"}}'.encode())
    assert "secret" not in str(refused.value)
    assert len(str(refused.value)) < 120


def test_depth_is_bounded_exactly() -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        deepest = opening * 31 + b"[]" + closing * 31
        assert read_json(deepest) is not None
        with pytest.raises(JsonMalformed, match="deeper than 32"):
            read_json(opening * 32 + b"{}" + closing * 32)
    assert read_json(b"1", max_depth=0) == 1
    with pytest.raises(JsonMalformed, match="deeper than 0"):
        read_json(b"[]", max_depth=0)


def test_brackets_in_strings_and_siblings_are_not_depth() -> None:
    assert read_json(b'"' + b"[{" * 1000 + b'"') == "[{" * 1000
    assert read_json(b"[" + b"[]," * 1000 + b"[]]") == [[]] * 1001


@pytest.mark.parametrize(
    "body",
    [
        b"[" * BODY_BYTES_MAX,
        b'{"":' * (BODY_BYTES_MAX // 4),
        b"[" * (BODY_BYTES_MAX // 2) + b"]" * (BODY_BYTES_MAX // 2),
    ],
)
def test_an_abyss_is_refused(body: bytes) -> None:
    with pytest.raises(JsonMalformed, match="deeper than 32"):
        read_json(body)


def test_a_body_of_one_number_is_exact_whatever_the_decimal_context() -> None:
    digits = "7" * (BODY_BYTES_MAX - 2)
    with localcontext() as context:
        context.prec = 3
        assert read_json(digits.encode()) == Decimal(digits)
        assert read_json(f"0.{digits}".encode()) == Decimal(f"0.{digits}")
    assert read_json(b"1e" + b"0" * 100_000 + b"2") == 100


@pytest.mark.parametrize(
    "unit",
    [b"9" * 640, b"1e37", b"[]", b'{"a":1}', b'"\\ud83d\\ude00\\n\\u0041"'],
)
def test_the_largest_body_is_read_in_linear_time(
    unit: bytes, request: pytest.FixtureRequest
) -> None:
    # A collection goes through all that the test process holds: that is no time for reading.
    gc.disable()
    request.addfinalizer(gc.enable)

    def seconds(size_bytes: int) -> float:
        body = b"[" + b",".join([unit] * (size_bytes // (len(unit) + 1))) + b"]"
        best = float("inf")
        for _ in range(5):
            started = time.thread_time()
            read_json(body)
            best = min(best, time.thread_time() - started)
        return best

    # 16 times the size takes 16 times as long, or 256 times if it were quadratic.
    assert seconds(BODY_BYTES_MAX) < 100 * max(seconds(BODY_BYTES_MAX // 16), 0.000_1)


def test_threads_share_the_reader() -> None:
    body = b'{"a": [' + b",".join(b'{"id": %d, "x": 1.50}' % i for i in range(300)) + b"]}"
    expected = read_json(body)
    seen: list[bool] = []

    def read() -> None:
        seen.extend(read_json(body) == expected for _ in range(20))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 80


@pytest.mark.parametrize("number", ["2400", "2400.0", "24e2", "0.24E4"])
def test_numbers_of_one_value_validate_equally(number: str) -> None:
    request = read_json(f'{{"minor": {number}, "currency": "EUR"}}'.encode())
    assert Money.model_validate(request) == Money(minor=2400, currency="EUR")


@pytest.mark.parametrize("number", [b"24.5", b"1e38", b"1e999999999", b"1e-999999999", b"9" * 5000])
def test_a_strict_integer_refuses_the_rest_at_once(number: bytes) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter[int](StrictInt).validate_python(read_json(number))
