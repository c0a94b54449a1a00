"""Our own API passes all of `tallystick probe`; effects are counted in the provider's books."""

from collections.abc import Sequence
from pathlib import Path

from ledger.access import Role
from runtime.probe import rules
from runtime.probe.configuration import Configuration, load
from runtime.probe.rules import racing
from runtime.probe.run import probe_service
from runtime.probe.verdicts import Outcome, Rule, Verdict
from runtime.wiring import now
from support.service import RunningService
from support.world import World

CONFIGURATION = Path(__file__).parents[2] / "docs" / "probe" / "tallystick.toml"


REFUSED_NUMBERS = "large-numbers"
"""Its numbers are beyond any amount of money: they are refused, which the rule cannot judge."""


async def test_probe_finds_every_rule_kept(lively: RunningService, world: World) -> None:
    other = await lively.ledger.access.issue(
        tenant=f"{lively.tenant}-other", role=Role.CLIENT, now=now()
    )
    environment = {
        "TALLYSTICK_PROBE_KEY": lively.token,
        "TALLYSTICK_PROBE_OTHER_KEY": other.token,
        "TALLYSTICK_PROBE_PROVIDERS": world.urls["admin"],
    }
    configuration = load(CONFIGURATION, environment=environment)
    judged = await _probe(lively, configuration, rules.ALL)
    # A duplicate is only told to come back when it does not wait: the API holds it by default.
    impatient = {**configuration.target.headers, "Prefer": "respond-async"}
    target = configuration.target.model_copy(update={"headers": impatient})
    hurried = configuration.model_copy(update={"target": target})
    judged |= await _probe(lively, hurried, (racing.in_progress_retry_after,))
    odd = {name: found for name, found in judged.items() if found.outcome is not Outcome.PASSED}
    assert set(odd) <= {REFUSED_NUMBERS}, odd
    assert all(found.outcome is Outcome.SKIPPED for found in odd.values())
    assert len(await world.ledger("payments")) > len(rules.ALL)


async def _probe(
    service: RunningService, configuration: Configuration, chosen: Sequence[Rule]
) -> dict[str, Verdict]:
    findings = await probe_service(
        service.url, configuration, rules=chosen, progress=lambda _verdict: None
    )
    return {verdict.rule.id: verdict for verdict in findings.verdicts}
