"""The canonical form that claims are compared by: golden values, refusals, pointers."""

from decimal import Decimal
from typing import Any

import pytest

from operations.fingerprint import (
    POINTER_CHARACTERS_MAX,
    canonical_bytes,
    differing_pointers,
    fingerprint,
)
from operations.strict_json import EXPONENT_MAX, JsonValue, read_json


@pytest.mark.parametrize(
    ("body", "canonical"),
    [
        (
            b'{ "b" : [1, 2.50, true, null], "a" : "\\u00e9\\n" }',
            '{"a":"é\\n","b":[1,2.5,true,null]}',
        ),
        # By code point: UTF-16 units would put the emoji first.
        ('{"\U0001f600": 1, "\uff5e": 2}'.encode(), '{"\uff5e":2,"\U0001f600":1}'),
        ('["\u00e9", "e\u0301"]'.encode(), '["\u00e9","e\u0301"]'),
        (rb'"\u0000\u001f\u007f\/\u2028"', '"\\u0000\\u001f\x7f/\u2028"'),
        (b"[-0, -0.0, 0e9]", "[0,0,0]"),
        (b"[1, 1.0, 10e-1, 0.1e1]", "[1,1,1,1]"),
        (
            b"[24.50, 0.5, -0.05, 0.0000001234, 0.00000001234]",
            "[24.5,0.5,-0.05,0.0000001234,1234e-11]",
        ),
        (b"[1e17, 1e18, 12e17, -1e400, 1e-400]", "[100000000000000000,1e18,12e17,-1e400,1e-400]"),
        (
            b"[1234567890123456789012345678901234567890]",
            "[123456789012345678901234567890123456789e1]",
        ),
        (b"[123456789012345678901234567890.5]", "[123456789012345678901234567890.5]"),
    ],
)
def test_the_canonical_form_is_stored_so_it_never_changes(body: bytes, canonical: str) -> None:
    assert canonical_bytes(read_json(body)).decode() == canonical


@pytest.mark.parametrize("power", [15, 16, 17, 18, 19, 36, 37, 38, 39, 640, 5000])
def test_integers_and_decimals_share_one_form(power: int) -> None:
    for number in (10**power, 10**power - 1, -(10**power), 12 * 10**power):
        assert canonical_bytes(number) == canonical_bytes(Decimal(number))


def test_a_fingerprint_is_versioned_and_golden() -> None:
    made = fingerprint(operation="orders.place", canonical=b'{"sku":"MUG-1"}')
    assert made.hex() == "01bb4fd4bdabaa285eace3515016d4f0d506ae779b0d98f5640651f8b87acc813e"
    assert len(made) == 33


def test_operation_and_request_cannot_flow_into_each_other() -> None:
    assert fingerprint(operation="a", canonical=b"1") != fingerprint(operation="a1", canonical=b"")
    assert fingerprint(operation="a", canonical=b"1") != fingerprint(operation="b", canonical=b"1")


@pytest.mark.parametrize("value", [1.0, (1,), b"a", {1: 2}, [object()], {"a": 0.5}])
def test_what_is_not_exact_json_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(TypeError):
        canonical_bytes(value)


@pytest.mark.parametrize(
    "value",
    [
        Decimal("NaN"),
        Decimal("-Infinity"),
        "\ud800",
        {"\udfff": 1},
        Decimal(f"1E+{EXPONENT_MAX + 1}"),
    ],
)
def test_what_could_not_be_read_back_has_no_canonical_form(value: JsonValue) -> None:
    with pytest.raises(ValueError, match=r"finite|surrogates|exponent"):
        canonical_bytes(value)


def pointers(first: str, second: str) -> tuple[str, ...]:
    return differing_pointers(read_json(first.encode()), read_json(second.encode()))


@pytest.mark.parametrize(
    ("first", "second", "differing"),
    [
        ("1", "1.0", ()),
        ("1", "2", ("",)),
        ("1", "true", ("",)),
        ("0", "false", ("",)),
        ("null", "{}", ("",)),
        ("[]", "{}", ("",)),
        ('"1"', "1", ("",)),
        ("1e999999999", "10e999999998", ()),
        ("1e999999999", "1e999999998", ("",)),
        ('{"a": 1, "b": 2}', '{"b": 20e-1, "a": 1.0}', ()),
        ('{"a": 1, "b": 2}', '{"b": 3, "c": 1}', ("/a", "/b", "/c")),
        (
            '{"amount": {"minor": 1, "currency": "EUR"}}',
            '{"amount": {"minor": 2}}',
            ("/amount/currency", "/amount/minor"),
        ),
        ("[1, 2, 3]", "[1, 9]", ("/1", "/2")),
        ('{"a": [{"b": null}]}', '{"a": [{}]}', ("/a/0/b",)),
        ('{"a/b": 1, "~": [1], "": 0}', '{"a/b": 2, "~": [2], "": 1}', ("/", "/a~1b", "/~0/0")),
        ('{"é": 1}', '{"e\u0301": 1}', ("/e\u0301", "/é")),
    ],
)
def test_pointers_name_what_differs(first: str, second: str, differing: tuple[str, ...]) -> None:
    assert pointers(first, second) == differing
    assert pointers(second, first) == differing


def test_pointers_are_bounded_in_number() -> None:
    zeros: list[JsonValue] = [0] * 1000
    ones: list[JsonValue] = [1] * 1000
    assert len(differing_pointers(zeros, ones)) == 20
    assert differing_pointers(zeros, ones, limit=2) == ("/0", "/1")
    assert differing_pointers(zeros, ones, limit=0) == ()


def test_a_pointer_too_long_names_its_nearest_parent_that_fits() -> None:
    long = "n" * POINTER_CHARACTERS_MAX
    slashes = "/" * (POINTER_CHARACTERS_MAX - 10)
    zeros: list[JsonValue] = [0] * 100
    ones: list[JsonValue] = [1] * 100
    first: dict[str, JsonValue] = {long: zeros, slashes: 0, "b": 0}
    second: dict[str, JsonValue] = {long: ones, slashes: 1, "b": 1}
    assert differing_pointers({"a": first, long: 1}, {"a": second, long: 1}) == ("/a", "/a/b")
    assert differing_pointers({long: 0}, {}) == ("",)
