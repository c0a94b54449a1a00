"""Equal JSON values have one canonical form under every spelling, and no two values share one.

The oracle is independent of the code under test: values are trees whose numbers are pairs
(coefficient, power of ten), compared with integers only, and their spellings are drawn.
"""

import json
import random
from dataclasses import dataclass
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from operations.fingerprint import canonical_bytes, differing_pointers, fingerprint
from operations.strict_json import DEPTH_MAX, EXPONENT_MAX, JsonMalformed, JsonValue, read_json

PROOF = settings(derandomize=True, database=None, deadline=None, max_examples=100)


@dataclass(frozen=True)
class Number:
    """`coefficient * 10**power`, as drawn: the same number has many pairs."""

    coefficient: int
    power: int

    @property
    def identity(self) -> tuple[int, int]:
        """The one pair of this number whose coefficient does not end in a zero."""
        coefficient, power = self.coefficient, self.power
        if coefficient == 0:
            return (0, 0)
        while coefficient % 10 == 0:
            coefficient, power = coefficient // 10, power + 1
        return (coefficient, power)


Tree = None | bool | str | Number | tuple["Tree", ...] | dict[str, "Tree"]

CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS, max_size=8) | st.sampled_from(
    ["", "\0", "é", "e\u0301", "/", "~", '"', "\\", "\\ud800", "\U0001f600", "\uff5e", "\u2028"]
)
COEFFICIENTS = st.one_of(
    st.integers(-30, 30),
    st.integers(-(10**45), 10**45),
    st.sampled_from([2**53, 2**53 + 1, 10**17, 10**18, 10**38 - 1, 10**38, 10**300 + 1]),
)
POWERS = st.one_of(
    st.integers(-4, 4),
    st.integers(-400, 400),
    st.integers(-(10**14), 10**14),
    st.sampled_from([999_999_999, -999_999_999, 10**14, -(10**14)]),
)
NUMBERS = st.builds(Number, COEFFICIENTS, POWERS)
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.none() | st.booleans() | TEXTS | NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple) | st.dictionaries(TEXTS, inner, max_size=4)
    ),
    max_leaves=12,
)


def identity(tree: Tree) -> object:
    """What makes two JSON values the same, in types that Python compares without mixing them up."""
    match tree:
        case Number():
            return ("number", tree.identity)
        case tuple():
            return ("array", tuple(identity(item) for item in tree))
        case dict():
            return ("object", frozenset((name, identity(value)) for name, value in tree.items()))
        case _:
            return (type(tree).__name__, tree)


class Spelling:
    """Writes a tree as JSON text in one of its many ways."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def write(self, tree: Tree) -> str:
        match tree:
            case Number():
                text = self._number(tree)
            case tuple():
                text = f"[{','.join(map(self.write, tree)) or self._space()}]"
            case dict():
                members = list(tree.items())
                self._random.shuffle(members)
                text = ",".join(
                    f"{self._space()}{self._string(name)}{self._space()}:{self.write(value)}"
                    for name, value in members
                )
                text = f"{{{text or self._space()}}}"
            case str():
                text = self._string(tree)
            case _:
                text = json.dumps(tree)
        return f"{self._space()}{text}{self._space()}"

    def _space(self) -> str:
        return self._random.choice(["", "", " ", "\n\t", "\r\n"])

    def _string(self, text: str) -> str:
        return f'"{"".join(map(self._character, text))}"'

    def _character(self, character: str) -> str:
        short = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f", "/": "\\/"}
        units = character.encode("utf-16-be").hex()
        if self._random.random() < 0.5:
            units = units.upper()
        spellings = ["".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))]
        if character in short:
            spellings.append(short[character])
        if character in '"\\':
            spellings.append(f"\\{character}")
        elif ord(character) >= 0x20:
            spellings.append(character)
        return self._random.choice(spellings)

    def _number(self, number: Number) -> str:
        zeros = self._random.choice([0, 0, 1, 3, 40])
        digits = str(abs(number.coefficient)) + "0" * zeros
        power = number.power - zeros
        sign = "-" if number.coefficient < 0 else self._random.choice(["", "", "-"])
        if number.coefficient > 0:
            sign = ""
        if 0 <= power <= 50 and self._random.random() < 0.5:
            return sign + str(int(digits) * 10**power)
        places = self._random.randint(0, len(digits) + 2)  # behind the decimal point
        padded = digits.rjust(places + 1, "0")
        whole, fraction = padded[: len(padded) - places], padded[len(padded) - places :]
        whole = whole.lstrip("0") or "0"
        power += places
        exponent = f"{abs(power):0{self._random.choice([1, 3, 30])}d}"
        plus = "-" if power < 0 else self._random.choice(["", "+"])
        letter = self._random.choice("eE")
        written = "" if power == 0 and self._random.random() < 0.5 else f"{letter}{plus}{exponent}"
        return f"{sign}{whole}{'.' + fraction if fraction else ''}{written}"


def changed(tree: Tree, *, chance: random.Random) -> Tree:
    """A close relative of `tree`, often differing in one place."""
    match tree:
        case Number():
            return chance.choice(
                [
                    Number(tree.coefficient + 1, tree.power),
                    Number(tree.coefficient, tree.power + 1),
                    Number(-tree.coefficient, tree.power),
                    Number(tree.coefficient * 10, tree.power - 1),
                    Number(tree.coefficient * 10**40 + 1, tree.power - 40),
                    str(tree.coefficient),
                ]
            )
        case str():
            return chance.choice([tree + "\0", tree + "\u0301", tree[1:], tree.upper(), (tree,)])
        case () | {} if not tree:
            return chance.choice([{}, (), (None,), ((),), {"": None}, "", None])
        case tuple():
            at = chance.randrange(len(tree))
            inner = changed(tree[at], chance=chance)
            return chance.choice([(*tree[:at], inner, *tree[at + 1 :]), tree[:-1], tree[::-1]])
        case dict():
            name = chance.choice(list(tree))
            rest = {other: value for other, value in tree.items() if other != name}
            moved = {**rest, name + "\0": tree[name]}
            return chance.choice([{**tree, name: changed(tree[name], chance=chance)}, rest, moved])
        case _:
            return chance.choice(
                [None, True, False, Number(0, 0), Number(1, 0), "null", "true", ""]
            )


def canonical_of(text: str) -> bytes:
    return canonical_bytes(read_json(text.encode("utf-8")))


@PROOF
@given(TREES, st.integers(0, 2**32), st.integers(0, 2**32))
def test_every_spelling_of_a_value_has_one_fingerprint(tree: Tree, one: int, two: int) -> None:
    first, second = canonical_of(Spelling(one).write(tree)), canonical_of(Spelling(two).write(tree))
    assert first == second
    made = fingerprint(operation="orders.place", canonical=first)
    assert made == fingerprint(operation="orders.place", canonical=second)


@PROOF
@given(TREES, TREES, st.integers(0, 2**32))
def test_two_values_are_equal_exactly_when_their_canonical_forms_are(
    tree: Tree, other: Tree, seed: int
) -> None:
    for relative in (other, changed(tree, chance=random.Random(seed))):
        texts = Spelling(seed).write(tree), Spelling(seed + 1).write(relative)
        is_equal = identity(tree) == identity(relative)
        assert (canonical_of(texts[0]) == canonical_of(texts[1])) is is_equal
        values = [read_json(text.encode("utf-8")) for text in texts]
        assert (differing_pointers(values[0], values[1]) == ()) is is_equal


@PROOF
@given(NUMBERS, NUMBERS)
def test_two_numbers_are_equal_exactly_when_their_canonical_forms_are(
    one: Number, two: Number
) -> None:
    for other in (two, Number(one.coefficient + 1, one.power), Number(one.coefficient, two.power)):
        texts = Spelling(1).write(one), Spelling(2).write(other)
        is_equal = one.identity == other.identity
        assert (canonical_of(texts[0]) == canonical_of(texts[1])) is is_equal


@PROOF
@given(TREES, st.integers(0, 2**32))
def test_a_frozen_request_reads_back_as_itself(tree: Tree, seed: int) -> None:
    value = read_json(Spelling(seed).write(tree).encode("utf-8"))
    frozen = canonical_bytes(value)
    again = read_json(frozen)
    assert repr(ordered(again)) == repr(ordered(value))
    assert canonical_bytes(again) == frozen
    assert differing_pointers(value, again) == ()


@PROOF
@given(TREES, st.integers(0, 2**32))
def test_the_value_read_is_the_value_written(tree: Tree, seed: int) -> None:
    assert identity(as_tree(read_json(Spelling(seed).write(tree).encode("utf-8")))) == identity(
        tree
    )


@PROOF
@given(st.binary(max_size=30) | st.text(alphabet='[]{}:,"\\u0dD8.eE+-19 \nNatrufls', max_size=30))
def test_whatever_is_sent_is_read_like_the_standard_reader_or_refused(sent: bytes | str) -> None:
    body = sent if isinstance(sent, bytes) else sent.encode("utf-8")
    try:
        value = read_json(body)
    except JsonMalformed:
        return
    standard = json.loads(body.decode("utf-8"), parse_float=Decimal)
    assert value == standard
    json.dumps(standard, default=str, ensure_ascii=False).encode("utf-8")  # no lone surrogate


@PROOF
@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,4})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,15})?", fullmatch=True)
)
def test_a_short_spelling_is_read_like_a_long_one(number: str) -> None:
    mantissa, _, exponent = number.lower().partition("e")
    sign = "-" if exponent.startswith("-") else "+"
    longer = f"{mantissa}e{sign}{exponent.lstrip('+-').rjust(30, '0')}"
    short, long = (read_json(text.encode()) for text in (number, longer))
    assert repr(short) == repr(long)


@PROOF
@given(st.lists(st.sampled_from("[{"), min_size=1, max_size=2 * DEPTH_MAX))
def test_depth_is_refused_exactly_beyond_the_bound(opened: list[str]) -> None:
    pairs = {"[": ("[", "]"), "{": ('{"a":', "}")}
    body = "".join(pairs[kind][0] for kind in opened) + "1"
    body += "".join(pairs[kind][1] for kind in reversed(opened))
    try:
        read_json(body.encode())
    except JsonMalformed:
        assert len(opened) > DEPTH_MAX
    else:
        assert len(opened) <= DEPTH_MAX


@PROOF
@given(
    st.integers(-(10**20), 10**20).filter(bool),
    st.integers(-3, 3),
    st.sampled_from([1, -1]),
    st.integers(0, 2**32),
)
def test_whether_a_number_is_too_large_depends_on_its_value_alone(
    coefficient: int, off: int, sign: int, seed: int
) -> None:
    number = Number(coefficient, sign * (EXPONENT_MAX + off))
    in_bounds = abs(number.identity[1]) <= EXPONENT_MAX
    body = Spelling(seed).write(number).encode()
    try:
        value = read_json(body)
    except JsonMalformed:
        assert not in_bounds
    else:
        assert in_bounds
        assert read_json(canonical_bytes(value)) == value


def ordered(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: ordered(value[name]) for name in sorted(value)}
    return [ordered(item) for item in value] if isinstance(value, list) else value


def as_tree(value: JsonValue) -> Tree:
    match value:
        case dict():
            return {name: as_tree(item) for name, item in value.items()}
        case list():
            return tuple(as_tree(item) for item in value)
        case Decimal():
            sign, digits, power = value.as_tuple()
            assert isinstance(power, int)
            return Number(int("".join(map(str, digits))) * (-1 if sign else 1), power)
        case bool() | str() | None:
            return value
        case int():
            return Number(value, 0)
