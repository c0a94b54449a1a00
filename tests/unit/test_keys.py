"""The grammar of idempotency keys, and the golden values of what is derived from them."""

import pytest

from operations.keys import (
    KeyMalformed,
    KeyMissing,
    Purpose,
    derived_key,
    format_key_header,
    format_key_path,
    parse_key_header,
    parse_key_path,
    workflow_id,
)

UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"


@pytest.mark.parametrize(
    ("field", "key"),
    [
        (UUID.encode(), UUID),
        (f'"{UUID}"'.encode(), UUID),
        (b"a/b:c", "a/b:c"),
        (b"dGFsbHk=", "dGFsbHk="),
        (b" \tabc\t ", "abc"),
        (b'\t "abc" ', "abc"),
        (rb'"a\"b\\c"', 'a"b\\c'),
        (b'"a,b;c(d)"', "a,b;c(d)"),
        (b"?1", "?1"),
        (b":YWJj:", ":YWJj:"),
        (b"'abc'", "'abc'"),
        (b"a" * 255, "a" * 255),
        (b'"' + b"\\\\" * 255 + b'"', "\\" * 255),
    ],
)
def test_one_key_is_read_in_either_spelling(field: bytes, key: str) -> None:
    assert parse_key_header([field]) == key


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (b"", "empty"),
        (b" \t", "empty"),
        (b'""', "empty"),
        (b"a" * 256, "longer than 255"),
        (b'"' + b"a" * 256 + b'"', "longer than 255"),
        (b'"' + b"\\\\" * 256 + b'"', "longer than 255"),
        (b"a b", "a space"),
        (b'"a b"', "a space"),  # a string of RFC 9651, which http_sf accepts
        (b"a\x00b", "control"),
        (b'"a\x7fb"', "control"),
        (b"abc\r", "control"),
        (b"caf\xc3\xa9", "non-ASCII"),
        (b'"caf\xe9"', "non-ASCII"),
        (b"a,b", "not one value"),
        (b"a;b=1", "not one value"),
        (b"(a)", "not one value"),
        (b'a"b', "not one value"),
        (rb"a\b", "not one value"),
        (b'"a";b=1', "no parameters"),  # an item of RFC 9651, which http_sf accepts
        (b'"a";b', "no parameters"),
        (b'"a","b"', "not one quoted string"),
        (b'"a"b', "not one quoted string"),
        (b'"a', "not one quoted string"),
        (b'"', "not one quoted string"),
        (b'"a\\', "not one quoted string"),
        (rb'"a\b"', "not one quoted string"),
    ],
)
def test_what_is_not_one_key_is_refused_with_the_reason(field: bytes, reason: str) -> None:
    with pytest.raises(KeyMalformed, match=reason) as refused:
        parse_key_header([field])
    assert refused.value.reason == str(refused.value)


def test_repeated_header_lines_are_refused_even_when_equal() -> None:
    with pytest.raises(KeyMalformed, match="more than once"):
        parse_key_header([b"abc", b"abc"])


def test_lines_that_a_proxy_joined_are_refused() -> None:
    for joined in (b"abc, abc", b"abc,abc", b'"abc", "abc"', b'"abc","abc"'):
        with pytest.raises(KeyMalformed):
            parse_key_header([joined])


def test_no_header_line_is_a_missing_key() -> None:
    with pytest.raises(KeyMissing, match="Send one"):
        parse_key_header([])


@pytest.mark.parametrize(
    ("segment", "key"),
    [
        (UUID, UUID),
        ("a%2Fb%2fc", "a/b/c"),
        ("%22abc%22", '"abc"'),
        ("a;b,c=d", "a;b,c=d"),
        ("100%25", "100%"),
        ("%2525", "%25"),
        ("a+b", "a+b"),
        (b"%61bc", "abc"),
        ("%41" * 255, "A" * 255),
    ],
)
def test_a_path_segment_is_the_key_after_decoding_once(segment: str | bytes, key: str) -> None:
    assert parse_key_path(segment) == key


@pytest.mark.parametrize(
    ("segment", "reason"),
    [
        ("", "empty"),
        ("a" * 256, "longer than 255"),
        ("%41" * 256, "longer than 255"),
        ("a" * 9999, "longer than 255"),
        ("a%20b", "a space"),
        ("a b", "a space"),
        ("%00", "control"),
        ("%C3%A9", "non-ASCII"),
        ("é", "non-ASCII"),
        ("100%", "percent"),
        ("%4", "percent"),
        ("%zz", "percent"),
        ("a/b", "percent"),
        ("a?b", "percent"),
    ],
)
def test_a_path_segment_that_is_not_one_key_is_refused(segment: str, reason: str) -> None:
    with pytest.raises(KeyMalformed, match=reason):
        parse_key_path(segment)


def test_a_key_is_echoed_as_a_structured_string() -> None:
    assert format_key_header('a"b\\c') == r'"a\"b\\c"'
    assert format_key_path("a/b c%".replace(" ", "~")) == "a%2Fb~c%25"
    for bad in ("", "a b", "é", "a" * 256, "abc\n"):
        with pytest.raises(ValueError, match="visible ASCII"):
            format_key_header(bad)


def test_a_workflow_id_is_readable_while_it_fits() -> None:
    made = workflow_id(operation="orders.place", tenant="acme", key=UUID)
    assert made == f"orders.place/acme/{UUID}"


def test_a_digest_form_is_one_longer_than_any_readable_form() -> None:
    room = 254 - len("orders.place/acme/")
    longest = workflow_id(operation="orders.place", tenant="acme", key="k" * room)
    digested = workflow_id(operation="orders.place", tenant="acme", key="k" * (room + 1))
    assert len(longest) == 254
    assert longest.endswith("k")
    assert digested == (
        "orders.place/acme/" + "k" * 172 + "~"
        "926e0058964a20cc2ffea37b99d599fca46a63aaddcec3bddcee83ab7f2be818"
    )
    assert len(digested) == 255


@pytest.mark.parametrize("name", ["", "a/b", "A", "é", ".a", "a" * 65, "a\n"])
def test_a_name_that_could_blur_an_id_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        workflow_id(operation=name, tenant="acme", key="k")
    with pytest.raises(ValueError, match="not a name"):
        workflow_id(operation="orders.place", tenant=name, key="k")


@pytest.mark.parametrize(
    ("step", "ordinal", "purpose", "key"),
    [
        ("charge", 0, Purpose.ACTION, "ts1cxqrh44g2hpriakyscp22vfbhgy4wwrb"),
        ("charge", 0, Purpose.UNDO, "ts15lj2wwwyvpvmwlzjase63wf6mvdj6prz"),
        ("charge", 1, Purpose.ACTION, "ts1hbr7gtyiddoha6j57wae5xtwok245any"),
        ("reserve", 0, Purpose.ACTION, "ts17alv4o33t4wqyqttqfob73dczkoaskrb"),
    ],
)
def test_derived_keys_never_change_because_a_new_one_charges_again(
    step: str, ordinal: int, purpose: Purpose, key: str
) -> None:
    made = derived_key(
        workflow_id=f"orders.place/acme/{UUID}", step=step, ordinal=ordinal, purpose=purpose
    )
    assert made == key
    assert len(made) == 35


def test_fields_of_a_derived_key_cannot_flow_into_each_other() -> None:
    def derive(workflow: str, step: str, ordinal: int) -> str:
        return derived_key(workflow_id=workflow, step=step, ordinal=ordinal, purpose=Purpose.ACTION)

    assert len({derive("ab", "c", 1), derive("a", "bc", 1), derive("a", "bc1", 1)}) == 3
    assert derive("a", "b1", 1) != derive("a", "b", 11)


@pytest.mark.parametrize(
    ("workflow", "step", "ordinal"), [("", "s", 0), ("w", "", 0), ("w", "s", -1)]
)
def test_a_derived_key_needs_its_whole_identity(workflow: str, step: str, ordinal: int) -> None:
    with pytest.raises(ValueError, match="needs"):
        derived_key(workflow_id=workflow, step=step, ordinal=ordinal, purpose=Purpose.UNDO)
