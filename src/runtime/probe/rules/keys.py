"""The key itself: its grammar, its length, its bytes."""

from runtime.probe.client import Answer, CutOffError, Request
from runtime.probe.rules.judging import Relation, expect_effects, happened_again, relate
from runtime.probe.trial import Key, Trial
from runtime.probe.verdicts import Rule, Seen, Severity, Source, fails, passes, rule, skipped, warns

# Stripe documents keys of up to 255 characters, so 255 has to fit and 256 is the first doubt; at
# 10,000 whatever silently truncates has truncated, and usual servers still take the header.
STRIPE_LENGTH_CHARACTERS = 255


@rule(
    "missing-key",
    "A required key that is missing is answered 400",
    source=Source.DRAFT.at("section 2.7"),
)
async def missing_key(trial: Trial) -> Seen:
    """No key header at all."""
    answer = await trial.send(trial.request(Key.ABSENT))
    if answer.refused:
        counted = await expect_effects(trial, 0)
        seen = f"answered {answer.status}; {counted}"
        return passes(seen) if answer.status == 400 else warns(f"{seen}; the draft says 400")
    if trial.configuration.target.key_required:
        return fails(f"served without a key ({answer.status})")
    return passes(f"served without a key ({answer.status}), as configured")


@rule(
    "empty-key",
    "An empty key is not a key that all clients share",
    source=Source.DRAFT.at("section 2.2"),
)
async def empty_key(trial: Trial) -> Seen:
    """An empty header value, then the same with other content."""
    related = await relate(trial, b"", b"")
    match related.relation:
        case Relation.REFUSED:
            return passes(f"refused: {related.seen}")
        case Relation.SAME:
            return fails(f"two requests with an empty key were taken for one: {related.seen}")
        case Relation.INDEPENDENT | Relation.UNKNOWN:
            return warns(f"an empty key is served as if there were none: {related.seen}")


@rule(
    "key-quoting",
    "A quoted key and a bare one are the same key",
    source=f"{Source.DRAFT.at('section 2.1')}; {Source.FIELDS.at('section 3.3.3')}",
    severity=Severity.SHOULD,
)
async def key_quoting(trial: Trial) -> Seen:
    """`"K"`, which the draft prescribes, and `K`, which most clients send."""
    key = trial.new_key().encode("ascii")
    return await _second_spelling(trial, (b'"' + key + b'"', "quoted"), (key, "bare"))


@rule(
    "key-parameters",
    "Parameters on a key are refused or ignored",
    source=Source.FIELDS.at("section 3.1.2"),
    severity=Severity.SHOULD,
)
async def key_parameters(trial: Trial) -> Seen:
    """`"K"` and `"K";v=1`."""
    key = trial.new_key().encode("ascii")
    plain, parameterised = b'"' + key + b'"', b'"' + key + b'";v=1'
    return await _second_spelling(trial, (plain, "plain"), (parameterised, "parameterised"))


async def _second_spelling(trial: Trial, one: tuple[bytes, str], two: tuple[bytes, str]) -> Seen:
    """Send one spelling of a key, then another, with the same content."""
    first = await trial.settle(trial.request(one[0]), conflict_is_progress=False)
    if not first.succeeded:
        return skipped(f"the {one[1]} key was answered {first.status}")
    second = await trial.settle(trial.request(two[0]), conflict_is_progress=False)
    if second.refused:
        return passes(f"the {two[1]} key is refused ({second.status}), not taken for another")
    if await happened_again(trial, first, second):
        return fails(f"the {two[1]} key is another key: the request ran again")
    return passes(f"the {two[1]} key got the {one[1]} one's answer")


@rule(
    "key-case",
    "Keys are compared exactly, letter case included",
    source=Source.DRAFT.at("section 2.2"),
    severity=Severity.SHOULD,
)
async def key_case(trial: Trial) -> Seen:
    """Two keys that differ in letter case only."""
    key = trial.new_key()
    related = await relate(trial, key.lower(), key.upper())
    match related.relation:
        case Relation.SAME:
            return fails(f"two keys that differ in case were taken for one: {related.seen}")
        case Relation.REFUSED:
            return skipped(f"the key was refused: {related.seen}")
        case Relation.UNKNOWN:
            return skipped(f"the answers cannot be told apart: {related.seen}")
        case Relation.INDEPENDENT:
            return passes(f"two keys: {related.seen}")


def _length_rule(characters: int) -> Rule:
    @rule(
        f"key-length-{characters}",
        f"Keys of {characters:,} characters are refused or kept whole",
        source=Source.STRIPE.at("keys are up to 255 characters"),
    )
    async def key_length(trial: Trial) -> Seen:
        """Two keys that differ in their last character only."""
        stem = trial.new_key().ljust(characters - 1, "x")
        related = await relate(trial, f"{stem}a", f"{stem}b")
        match related.relation:
            case Relation.SAME:
                return fails(f"two keys with a shared beginning were taken for one: {related.seen}")
            case Relation.UNKNOWN:
                return skipped(f"the answers cannot be told apart: {related.seen}")
            case Relation.INDEPENDENT:
                return passes(f"kept whole: {related.seen}")
            case Relation.REFUSED if characters <= STRIPE_LENGTH_CHARACTERS:
                return warns(f"refused ({related.seen}), though clients of Stripe may send it")
            case Relation.REFUSED:
                return passes(f"refused: {related.seen}")

    return key_length


key_length_255 = _length_rule(255)
key_length_256 = _length_rule(256)
key_length_10000 = _length_rule(10_000)


@rule(
    "key-bytes",
    "Control and non-ASCII bytes in a key are refused or kept apart",
    source=Source.FIELDS.at("section 3.3.3"),
)
async def key_bytes(trial: Trial) -> Seen:
    """Pairs of keys that become one when odd bytes are dropped or replaced."""
    accepted: list[str] = []
    pairs = ((b"\x01", b"\x02", "control"), (b"\x7f", b"\x1f", "control"))
    pairs += ((b"\xe9", b"\xe8", "Latin-1"), ("ä".encode(), "ö".encode(), "UTF-8"))
    for one, two, name in pairs:
        async with Trial(trial.service, label="key-bytes") as inner:
            stem = inner.new_key().encode("ascii")
            related = await relate(inner, stem + one + b"z", stem + two + b"z")
        if related.relation is Relation.SAME:
            return fails(f"two keys that differ in {name} bytes were taken for one: {related.seen}")
        if related.relation is not Relation.REFUSED and name not in accepted:
            accepted.append(name)
    if accepted:
        return warns(f"{' and '.join(accepted)} bytes are accepted; RFC 9651 strings are ASCII")
    return passes("control, Latin-1 and UTF-8 bytes are refused")


@rule(
    "key-repeated",
    "Two key header lines do not make a third key",
    source=f"{Source.HTTP.at('section 5.3')}; {Source.FIELDS.at('section 3.3')}",
)
async def key_repeated(trial: Trial) -> Seen:
    """Two lines with two keys, then each of them alone."""
    one, two = trial.new_key().encode("ascii"), trial.new_key().encode("ascii")
    both = await _refusable(trial, trial.request((one, two)))
    if both is None or both.refused:
        how = "the connection was closed" if both is None else f"answered {both.status}"
        return passes(f"refused: {how}")
    first_alone = await trial.settle(trial.request(one), conflict_is_progress=False)
    if not await happened_again(trial, both, first_alone):
        return warns(f"accepted ({both.status}): the first line counts")
    async with Trial(trial.service, label="key-repeated") as inner:
        again = await inner.settle(inner.request((one + b"2", two + b"2")))
        last_alone = await inner.settle(inner.request(two + b"2"), conflict_is_progress=False)
        if not await happened_again(inner, again, last_alone):
            return warns(f"accepted ({both.status}): the last line counts")
    return fails("accepted, and neither of the two keys is known afterwards: the request ran again")


async def _refusable(trial: Trial, request: Request) -> Answer | None:
    try:
        return await trial.settle(request)
    except CutOffError:
        return None
