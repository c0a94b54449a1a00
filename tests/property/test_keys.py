"""Keys survive the header and the path, and no two operations ever share an ID."""

import http_sf
from hypothesis import given, settings
from hypothesis import strategies as st

from operations.keys import (
    KeyMalformed,
    Purpose,
    derived_key,
    format_key_header,
    format_key_path,
    parse_key_header,
    parse_key_path,
    workflow_id,
)
from operations.preferences import WAIT_SECONDS_MAX, parse_prefer

PROOF = settings(derandomize=True, database=None, deadline=None, max_examples=200)

VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
KEYS = (
    st.text(VISIBLE, min_size=1, max_size=30)
    | st.text("k/", min_size=1, max_size=255)
    | st.text('/~"\\', min_size=1, max_size=9)
)
NAMES = st.sampled_from(
    [
        "a",
        "0",
        "a-b",
        "a.b",
        "orders.place",
        "payments.charge",
        "acme",
        "globex",
        "n" * 63,
        "n" * 64,
    ]
)
IDENTITIES = st.tuples(NAMES, NAMES, KEYS)


def identify(identity: tuple[str, str, str]) -> str:
    operation, tenant, key = identity
    return workflow_id(operation=operation, tenant=tenant, key=key)


@PROOF
@given(KEYS)
def test_an_echoed_key_is_read_back(key: str) -> None:
    assert parse_key_header([format_key_header(key).encode()]) == key
    assert parse_key_path(format_key_path(key)) == key
    assert http_sf.parse(format_key_header(key).encode(), tltype="item") == (key, {})


@PROOF
@given(KEYS)
def test_a_bare_key_is_its_quoted_self_or_refused(key: str) -> None:
    try:
        bare = parse_key_header([key.encode()])
    except KeyMalformed:
        assert set(key) & set('"\\(),;')
    else:
        assert bare == key or key.startswith('"')


@PROOF
@given(
    st.binary(max_size=300)
    | st.text(VISIBLE + ' \t"\\', max_size=20).map(str.encode)
    | st.text(VISIBLE + ' "\\;=', max_size=20).map(lambda text: f'"{text}'.encode())
)
def test_every_field_value_is_one_key_or_malformed(field: bytes) -> None:
    for parse in (lambda: parse_key_header([field]), lambda: parse_key_path(field)):
        try:
            key = parse()
        except KeyMalformed:
            continue
        else:
            assert 1 <= len(key) <= 255
            assert set(key) <= set(VISIBLE)


@PROOF
@given(IDENTITIES, IDENTITIES)
def test_different_operations_have_different_workflow_ids(
    one: tuple[str, str, str], two: tuple[str, str, str]
) -> None:
    assert (identify(one) == identify(two)) is (one == two)
    assert len(identify(one)) <= 255


@PROOF
@given(NAMES, NAMES, KEYS)
def test_a_key_made_to_look_like_another_id_does_not_become_it(
    operation: str, tenant: str, key: str
) -> None:
    """A client that knows how IDs are made chooses its key to end in another ID's digest."""
    target = identify((operation, tenant, key + "x" * (255 - len(key))))
    assert len(target) == 255
    forged = target.removeprefix(f"{operation}/{tenant}/")
    assert identify((operation, tenant, forged)) != target
    assert identify((operation, tenant, forged[:-1])) != target


@PROOF
@given(
    st.lists(
        st.tuples(
            KEYS, st.text(min_size=1, max_size=5), st.integers(0, 99), st.sampled_from(Purpose)
        ),
        min_size=2,
        max_size=6,
        unique=True,
    )
)
def test_different_effects_have_different_derived_keys(
    effects: list[tuple[str, str, int, Purpose]],
) -> None:
    keys = {
        derived_key(workflow_id=workflow, step=step, ordinal=ordinal, purpose=purpose)
        for workflow, step, ordinal, purpose in effects
    }
    assert len(keys) == len(effects)
    assert all(len(key) == 35 and key.isascii() and key.isalnum() for key in keys)


@PROOF
@given(st.lists(st.text('wait=respond-async,; "\\059x', max_size=30) | st.text(max_size=20)))
def test_no_prefer_header_is_an_error(lines: list[str]) -> None:
    preferences = parse_prefer(lines)
    assert 0 <= preferences.wait_at_most_seconds <= WAIT_SECONDS_MAX
