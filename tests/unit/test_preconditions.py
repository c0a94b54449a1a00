"""Entity tags as RFC 9110, section 8.8.3, writes them, and how conditions on them are judged."""

import pytest

from operations.preconditions import PreconditionMalformed, Tags, Verdict, parse_preconditions


def tags(*lines: str) -> Tags | None:
    return parse_preconditions(if_match=lines, if_none_match=[]).if_match


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), None),
        (("*",), Tags(any=True)),
        ((" * ",), Tags(any=True)),
        (("",), Tags()),
        ((" , ,",), Tags()),
        (('"a"',), Tags(tags=('"a"',))),
        (('""',), Tags(tags=('""',))),
        (('"a", W/"b",\t"c,d"',), Tags(tags=('"a"', 'W/"b"', '"c,d"'))),
        (('"a"', '"b"'), Tags(tags=('"a"', '"b"'))),
        (('"\xfc"',), Tags(tags=('"\xfc"',))),
    ],
)
def test_a_field_is_read_as_the_grammar_says(lines: tuple[str, ...], expected: Tags | None) -> None:
    assert tags(*lines) == expected


@pytest.mark.parametrize(
    "lines",
    [
        ("a",),
        ('"a',),
        ('"a""b"',),
        ('"a" "b"',),
        ('"a b"',),
        ('"a",b',),
        ('*, "a"',),
        ("*", "*"),
        ('w/"a"',),
        ('W/ "a"',),
        ("x" * 5000,),
    ],
)
def test_what_the_grammar_does_not_know_is_malformed(lines: tuple[str, ...]) -> None:
    with pytest.raises(PreconditionMalformed):
        tags(*lines)


@pytest.mark.parametrize(
    ("if_match", "if_none_match", "current", "read", "write"),
    [
        (None, None, None, Verdict.GO_ON, Verdict.GO_ON),
        ("*", None, None, Verdict.FAILED, Verdict.FAILED),
        ("*", None, '"a"', Verdict.GO_ON, Verdict.GO_ON),
        ('W/"a"', None, '"a"', Verdict.FAILED, Verdict.FAILED),
        ("", None, '"a"', Verdict.FAILED, Verdict.FAILED),
        (None, "*", None, Verdict.GO_ON, Verdict.GO_ON),
        (None, "*", '"a"', Verdict.NOT_MODIFIED, Verdict.FAILED),
        (None, 'W/"a"', '"a"', Verdict.NOT_MODIFIED, Verdict.FAILED),
        (None, "", '"a"', Verdict.GO_ON, Verdict.GO_ON),
        ('"b"', '"a"', '"a"', Verdict.FAILED, Verdict.FAILED),
        ('"a"', '"a"', '"a"', Verdict.NOT_MODIFIED, Verdict.FAILED),
    ],
)
def test_conditions_are_judged_in_the_order_of_the_rfc(
    if_match: str | None,
    if_none_match: str | None,
    current: str | None,
    read: Verdict,
    write: Verdict,
) -> None:
    conditions = parse_preconditions(
        if_match=[] if if_match is None else [if_match],
        if_none_match=[] if if_none_match is None else [if_none_match],
    )
    assert conditions.judge(current, is_read=True) is read
    assert conditions.judge(current, is_read=False) is write
