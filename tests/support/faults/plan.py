"""What the suite does to the service: every failpoint in every mode, failures of the parts around
it, misbehaving providers, and seeded pairs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatch

from operations.failpoints import Failpoint, Mode


class Need(StrEnum):
    """What has to be seen, or the scenario has proved nothing."""

    FIRED = "fired"
    SUPPRESSED = "suppressed"
    """Something was tried again, and had no second effect."""
    RESOLVED = "resolved"
    """An unknown outcome was found out."""
    PARKED = "parked"


class Infra(StrEnum):
    """Failures of the parts around our programs."""

    NONE = ""
    POSTGRES_KILL = "postgres-kill"
    POSTGRES_IMMEDIATE = "postgres-immediate-stop"
    TEMPORAL_KILL = "temporal-kill"
    PROVIDERS_KILL = "providers-kill"
    API_KILL = "api-kill"
    WORKER_KILL = "worker-kill"
    WORKER_FREEZE = "worker-sigstop"
    DATABASE_CUTS = "database-answers-cut"
    PROVIDER_CUTS = "provider-answers-cut"
    FULL_POOL = "pool-full"
    TERMINATE = "run-terminated"


@dataclass(frozen=True)
class Trouble:
    """A provider that misbehaves."""

    provider: str
    mode: str
    operation: str = "*"
    times: int = 1
    seconds: float = 1.0


@dataclass(frozen=True)
class Scenario:
    """One fault (or a pair), and the operations beside it."""

    name: str
    fault: str
    mode: str
    mix: str = "mixed"
    guarantee: str = "mixed"
    child: str = ""
    arms: str = ""
    infra: Infra = Infra.NONE
    troubles: tuple[Trouble, ...] = ()
    blind: bool = False
    """Whether the acquirer offers no records."""
    needs: frozenset[Need] = frozenset()


API_POINTS = ("claim.*", "local.*", "run.*", "answer.*", "webhook.*", "update.*")
DOUBTFUL = (Trouble("acquirer", "commit_then_drop"), Trouble("acquirer", "rate_limit", seconds=0.3))
"""Makes the legacy charges need a row, a look-up, and a mark that is taken back."""
LAGGING = (
    Trouble("acquirer", "lookup_lag", times=6, seconds=3.0),
    Trouble("acquirer", "commit_then_drop", operation="charge", times=3),
)
"""Makes charges unknown for longer than a webhook takes, and for almost as long as the profile
allows (`rig.FIGURES`): who trusts a look-up earlier, or looks again soon, finds nothing yet."""
SLOW = (Trouble("warehouse", "slow", times=3, seconds=0.8),)
NTH = {
    "claim.*": 3,
    "local.*": 2,
    "run.*": 2,
    "answer.*": 4,
    "send.leaving": 3,
    "send.replied": 3,
    "step.*": 3,
    "completion.*": 2,
    "webhook.*": 4,
    "outbox.*": 3,
}
BY_GUARANTEE = {
    "keyed": ("payments.charge", False),
    "queryable": ("payments.charge_legacy", False),
    "blind": ("payments.charge_legacy", True),
}
SENDS = (Failpoint.SEND_LEAVING, Failpoint.SEND_REPLIED)
RECOVERS = (
    Failpoint.RELAY_TAKEN,
    Failpoint.RELAY_RECOVERING,
    Failpoint.RELAY_RECOVERED,
    Failpoint.RECALLING,
)


def of_failpoints() -> list[Scenario]:
    """Every failpoint with kill, hang and raise; the sends again for every guarantee."""
    scenarios: list[Scenario] = []
    for point in Failpoint:
        for mode in Mode:
            scenarios.append(_at(point, mode))
            if point in SENDS:
                scenarios += [_at_send(point, mode, guarantee) for guarantee in BY_GUARANTEE]
    return scenarios


def _at(point: Failpoint, mode: Mode) -> Scenario:
    nth = next((n for pattern, n in NTH.items() if fnmatch(point, pattern)), 1)
    return Scenario(
        name=f"{point}:{mode}",
        fault=point.value,
        mode=mode.value,
        child="api" if any(fnmatch(point, pattern) for pattern in API_POINTS) else "worker",
        arms=f"{point}:{nth}:{mode}",
        infra=Infra.TERMINATE if point in RECOVERS else Infra.NONE,
        troubles=_troubles(point),
        mix=_mix(point),
        needs=frozenset({Need.FIRED, Need.SUPPRESSED, Need.RESOLVED}),
    )


def _troubles(point: Failpoint) -> tuple[Trouble, ...]:
    """What has to go wrong for the point to be reached."""
    if fnmatch(point, "update.*"):
        return LAGGING
    return DOUBTFUL + SLOW if point in RECOVERS else DOUBTFUL


def _mix(point: Failpoint) -> str:
    """What has to go on beside the operations for the point to be reached."""
    if any(fnmatch(point, pattern) for pattern in ("webhook.*", "update.*", "outbox.*")):
        return "messages"
    reconciling = ("records.*", "findings.*", "remedy.*", "reconciled.*")
    return "reconciled" if any(fnmatch(point, pattern) for pattern in reconciling) else "mixed"


def _at_send(point: Failpoint, mode: Mode, guarantee: str) -> Scenario:
    operation, blind = BY_GUARANTEE[guarantee]
    needs = {Need.FIRED, Need.SUPPRESSED}
    if guarantee == "queryable":
        needs.add(Need.RESOLVED)
    # Frozen for longer than a step may take, its answer is lost; then nobody can tell.
    if guarantee == "blind":
        needs.add(Need.PARKED)
    return Scenario(
        name=f"{point}:{mode}@{guarantee}",
        fault=point.value,
        mode=mode.value,
        mix=operation,
        guarantee=guarantee,
        child="worker",
        arms=f"{point}:3:{mode}",
        blind=blind,
        needs=frozenset(needs),
    )


def of_parts() -> list[Scenario]:
    """Postgres, Temporal, the processes and the network between them."""
    plain = [
        Scenario(infra.value, infra.value, "infrastructure", infra=infra, troubles=DOUBTFUL)
        for infra in Infra
        if infra is not Infra.NONE
    ]
    return [replace(one, needs=frozenset({Need.SUPPRESSED, Need.RESOLVED})) for one in plain]


def of_providers() -> list[Scenario]:
    """Providers that lie, stall and lose answers; and cancels while an outcome is unknown."""
    names = ("payments", "acquirer", "warehouse", "carrier", "mail")
    found: list[Scenario] = []
    for mode, seconds in (
        ("commit_then_drop", 1.0),
        ("commit_then_500", 1.0),
        ("drop_before_commit", 1.0),
        ("late_commit", 1.0),
        ("slow", 1.6),
        ("refuse_connection", 1.0),
        ("rate_limit", 0.5),
    ):
        troubles = tuple(Trouble(name, mode, times=2, seconds=seconds) for name in names)
        needs = frozenset({Need.SUPPRESSED})
        found.append(
            Scenario(f"providers-{mode}", mode, "provider", troubles=troubles, needs=needs)
        )
    found.append(
        Scenario(
            "look-ups-that-lag",
            "lookup_lag",
            "provider",
            mix="payments.charge_legacy",
            guarantee="queryable",
            troubles=LAGGING,
            needs=frozenset({Need.RESOLVED}),
        )
    )
    found.append(
        Scenario(
            "cancelled-while-unknown",
            "cancel",
            "operator",
            mix="cancelled",
            troubles=(
                Trouble("warehouse", "commit_then_drop", operation="reserve", times=4),
                Trouble("warehouse", "lookup_lag", times=4, seconds=3.0),
            ),
            needs=frozenset({Need.RESOLVED}),
        )
    )
    return found


def of_pairs(seed: int, *, count: int) -> list[Scenario]:
    """Two faults at once, chosen by `seed`: the same seed, the same pairs."""
    chance = random.Random(seed)
    singles = [one for one in of_failpoints() if one.mix == "mixed" and not one.blind]
    parts = [Infra.POSTGRES_KILL, Infra.TEMPORAL_KILL, Infra.WORKER_KILL, Infra.API_KILL]
    parts += [Infra.PROVIDER_CUTS, Infra.TERMINATE, Infra.PROVIDERS_KILL, Infra.NONE]
    pairs: list[Scenario] = []
    for number in range(count):
        first, infra = chance.choice(singles), chance.choice(parts)
        arms = first.arms
        if infra is Infra.NONE:
            same = [one for one in singles if one.child == first.child and one is not first]
            arms = f"{arms},{chance.choice(same).arms}"
        if first.infra is not Infra.NONE:
            infra = first.infra
        what = arms if infra is Infra.NONE else f"{arms}+{infra}"
        pairs.append(
            replace(
                first,
                name=f"pair {number + 1}: {what}",
                fault=what,
                mode="pair",
                arms=arms,
                infra=infra,
                troubles=DOUBTFUL + SLOW,
                needs=frozenset({Need.FIRED, Need.SUPPRESSED}),
            )
        )
    return pairs


def whole(seed: int, *, pairs: int) -> list[Scenario]:
    """Everything. The acquirer changes its nature by a restart: those scenarios come last."""
    everything = [*of_parts(), *of_providers(), *of_failpoints(), *of_pairs(seed, count=pairs)]
    return sorted(everything, key=lambda scenario: scenario.blind)


SHORT = (
    "claim.committed:kill",
    "send.replied:kill@queryable",
    "completion.committed:raise",
)


def short() -> list[Scenario]:
    """The fixed selection that `make test` runs: an API, a worker and a receipt that are lost."""
    named = {scenario.name: scenario for scenario in of_failpoints()}
    return [named[name] for name in SHORT]


def matching(scenarios: Sequence[Scenario], pattern: str) -> list[Scenario]:
    """Those whose name fits `pattern`."""
    return [one for one in scenarios if fits(one.name, pattern)]


def fits(name: str, pattern: str) -> bool:
    """Whether `name` fits one of the shell patterns that `pattern` joins by `|`."""
    return any(fnmatch(name, one) for one in pattern.split("|"))


def repeated(scenarios: Sequence[Scenario], *, times: int) -> list[Scenario]:
    """Each of them `times` times, one round after the other."""
    again = [
        replace(one, name=f"{one.name} #{n}") for n in range(2, times + 1) for one in scenarios
    ]
    return [*scenarios, *again]
