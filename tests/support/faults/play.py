"""Plays one scenario: faults, operations, settling, evidence, verdict."""

import asyncio
import contextlib
import signal
import time
import traceback
from collections import Counter

from operations.keys import workflow_id
from support.checker.evidence import Evidence, Expected, Run
from support.checker.invariants import Violation, check
from support.checker.report import Outcome, counted, lines_of
from support.faults import gather, neighbours
from support.faults.client import Client
from support.faults.mixes import ACCOUNTS, jobs_of
from support.faults.plan import Infra, Need, Scenario
from support.faults.rig import HANG_SECONDS, Rig

SETTLE_SECONDS = 60.0
"""From the first request to the last receipt, the fault in between."""

REST_SECONDS = 100.0
"""From the last receipt until events and messages rest. A worker that dies with an event takes its
lease of 30 s with it, and an attempt: two refusals of the endpoint later the pause is 30 s, too."""

FAULT_AFTER_SECONDS = 0.3
"""Operations are under way by then."""

ROUNDS_MAX = 4
"""How often operations are submitted until what is armed has fired: a quick machine may be done
with them before, say, the relay looks for claims again."""

CUT_EVERY = 9


class Player:
    """Plays scenarios on one rig, one after the other."""

    def __init__(self, rig: Rig, *, replay: bool = True) -> None:
        """`replay`: whether recorded histories are replayed (not those of planted mutants)."""
        self.rig = rig
        self.replay = replay
        self.evidence_file = rig.directory / "evidence.json"
        """Of the latest scenario."""
        self._number = 0
        self._keys: set[str] = set()
        """Every derived key that a claim of this run may use."""
        self._blind = False
        self._endpoint: neighbours.Endpoint | None = None

    async def prepare(self) -> None:
        """Open the accounts that transfers move money between."""
        async with gather.connected(self.rig.stack.postgres.url) as connection:
            for account in ACCOUNTS:
                await connection.execute(
                    "INSERT INTO accounts (tenant, id, currency, created_at)"
                    " VALUES ('acme', $1, 'EUR', now()) ON CONFLICT DO NOTHING",
                    account,
                )

    async def play(self, scenario: Scenario) -> Outcome:
        """Play it, and say what came of it; a suite that cannot go on is no good outcome either."""
        began = time.monotonic()
        try:
            return await self._play(scenario)
        except Exception as error:  # noqa: BLE001 - the other scenarios are still worth playing
            traceback.print_exc()
            return Outcome(
                scenario=scenario.name,
                fault=scenario.fault,
                mode=scenario.mode,
                guarantee=scenario.guarantee,
                seconds=time.monotonic() - began,
                missing=(f"the suite failed: {type(error).__name__}: {error}",),
            )

    async def _play(self, scenario: Scenario) -> Outcome:
        self._number += 1
        self.evidence_file.unlink(missing_ok=True)
        prefix = f"s{self._number:03d}-"
        began = time.monotonic()
        client = Client(
            url=self.rig.stack.api_url,
            tokens=self.rig.stack.keys,
            log=self.rig.directory / "client.jsonl",
        )
        try:
            await self._break(scenario)
            left = await self._operate(scenario, client, prefix)
            evidence = await self._evidence(client, prefix, left)
            if scenario.mix == "reconciled" and evidence.settled_within_bound:
                evidence = await self._reconciled(evidence, client, prefix)
            if scenario.mix == "messages":
                url = self.rig.stack.postgres.url
                told = await gather.deliveries(url, evidence.records)
                evidence = evidence.but(deliveries=told)
            self.evidence_file.write_text(evidence.model_dump_json(indent=1))
        finally:
            await client.close()
            fired = self.rig.fired()
            await self._mend(scenario)
        return self._outcome(scenario, evidence, fired=fired, seconds=time.monotonic() - began)

    async def _break(self, scenario: Scenario) -> None:
        """Everything that is prepared before the first request."""
        self.rig.wire.requests.clear()
        if scenario.blind is not self._blind:
            self._blind = scenario.blind
            self.rig.shared["TALLYSTICK_ACQUIRER_BLIND"] = str(scenario.blind).lower()
            for child in ("api", "worker"):
                self.rig.set(child, {})
            await self.rig.restart("api", "worker")
        if scenario.mix == "messages":
            self._endpoint = neighbours.Endpoint()
            await neighbours.introduce(self.rig, self._endpoint)
        if scenario.arms:
            self.rig.arm(scenario.child, scenario.arms)
        match scenario.infra:
            case Infra.DATABASE_CUTS:
                await self.rig.through_a_proxy(cut_every=CUT_EVERY)
            case Infra.PROVIDER_CUTS:
                self.rig.wire.cut_every(3)
            case Infra.FULL_POOL:
                for child in ("api", "worker"):
                    small = {"DATABASE_CONNECTIONS": "2", "DATABASE_WAIT_SECONDS": "0.02"}
                    self.rig.set(child, {f"TALLYSTICK_{k}": v for k, v in small.items()})
                await self.rig.restart("api", "worker")
            case _:
                pass

    async def _operate(self, scenario: Scenario, client: Client, prefix: str) -> list[str]:
        """Have operations done, the fault amid them, until it has struck and all have come to rest;
        returns those that have not."""
        left: list[str] = []
        for number in range(ROUNDS_MAX):
            of_round = f"{prefix}{number}-"
            await self._trouble(scenario)
            jobs = jobs_of(scenario.mix, of_round)
            submitting = asyncio.create_task(client.run(jobs, seconds=SETTLE_SECONDS))
            await self._interfere(scenario, of_round)
            await submitting
            left = await self._settle(scenario, of_round)
            stuck = left or client.unsettled
            # What is armed for reconciliation fires in it: later, and once.
            if stuck or scenario.mix == "reconciled" or self._has_struck(scenario):
                break
        return left

    async def _trouble(self, scenario: Scenario) -> None:
        """Have providers misbehave."""
        await self.rig.admin("DELETE", "/admin/faults")
        for trouble in scenario.troubles:
            await self.rig.fault(
                trouble.provider,
                trouble.mode,
                operation=trouble.operation,
                times=trouble.times,
                seconds=trouble.seconds,
            )

    def _has_struck(self, scenario: Scenario) -> bool:
        """Whether everything that was armed has fired."""
        return not scenario.arms or self.rig.fired() > scenario.arms.count(",")

    async def _interfere(self, scenario: Scenario, prefix: str) -> None:
        """What happens while operations are under way."""
        kills = {
            Infra.POSTGRES_KILL: ("postgres", signal.SIGKILL),
            Infra.POSTGRES_IMMEDIATE: ("postgres", signal.SIGQUIT),
            Infra.TEMPORAL_KILL: ("temporal", signal.SIGKILL),
            Infra.PROVIDERS_KILL: ("providers", signal.SIGKILL),
            Infra.API_KILL: ("api", signal.SIGKILL),
            Infra.WORKER_KILL: ("worker", signal.SIGKILL),
        }
        if scenario.infra in kills:
            await asyncio.sleep(FAULT_AFTER_SECONDS)
            child, number = kills[scenario.infra]
            pid = self.rig.kill(child, number)
            await self.rig.back(child, after_pid=pid)
        elif scenario.infra is Infra.WORKER_FREEZE:
            await asyncio.sleep(FAULT_AFTER_SECONDS)
            self.rig.kill("worker", signal.SIGSTOP)
            await asyncio.sleep(HANG_SECONDS)
            self.rig.kill("worker", signal.SIGCONT)
        elif scenario.infra is Infra.TERMINATE:
            await self._terminate(prefix)

    async def _terminate(self, prefix: str) -> None:
        """Terminate two runs as soon as they run."""
        for key in (f"{prefix}order-1", f"{prefix}legacy-1"):
            operation = "orders.place" if "order" in key else "payments.charge_legacy"
            run = workflow_id(operation=operation, tenant="acme", key=key)
            for _ in range(100):
                with contextlib.suppress(Exception):
                    await self.rig.temporal.get_workflow_handle(run).terminate("by the suite")
                    break
                await asyncio.sleep(0.05)

    async def _reconciled(self, evidence: Evidence, client: Client, prefix: str) -> Evidence:
        """Plant duplicates, have the books compared, and gather everything anew."""
        seeds, undos = await neighbours.seed_duplicates(
            self.rig, evidence.effects, evidence.records, prefix=prefix
        )
        left = await neighbours.reconcile(self.rig, prefix=prefix)
        after = await self._evidence(client, prefix, left, undos=tuple(undos))
        subjects = [record.id for record in after.records]
        subjects += [effect.key for effect in after.effects]
        found = await gather.findings(self.rig.stack.postgres.url, subjects)
        return after.but(reconciled=True, seeds=tuple(seeds), findings=found)

    async def _settle(self, scenario: Scenario, prefix: str) -> list[str]:
        """Wait until every claim has come to rest; returns those that have not."""
        left, until = ["everything"], time.monotonic() + REST_SECONDS
        while left and time.monotonic() < until:
            with contextlib.suppress(OSError):
                left = await gather.open_claims(self.rig.stack.postgres.url, prefix=prefix)
                if scenario.mix == "messages":
                    left += await gather.undelivered(self.rig.stack.postgres.url)
                    left += await neighbours.untold(self.rig, prefix=prefix)
            if left:
                await asyncio.sleep(0.3)
        return left

    async def _evidence(
        self,
        client: Client,
        prefix: str,
        left: list[str],
        *,
        undos: tuple[Expected, ...] = (),
    ) -> Evidence:
        await self.rig.ready()
        ledger = await gather.from_ledger(self.rig.stack.postgres.url, prefix=prefix)
        ledger = ledger.but(expected=(*ledger.expected, *undos))
        records = await gather.from_providers(self.rig.stack.providers_url)
        keys = {expected.key for expected in ledger.expected}
        self._keys |= keys
        runs: list[Run] = await gather.from_temporal(
            self.rig.temporal, ledger.claims, replay=self.replay
        )
        return ledger.but(
            attempts=tuple(client.attempts),
            # Those of this scenario, and those of nobody.
            records=tuple(
                record
                for record in records
                if record.reference in keys or record.reference not in self._keys
            ),
            requests=tuple(self.rig.wire.requests),
            runs=tuple(runs),
            settled_within_bound=not left and not client.unsettled,
            unsettled=(*left, *client.unsettled),
        )

    async def _mend(self, scenario: Scenario) -> None:
        """Leave the rig whole, and nothing armed that may still fire."""
        with contextlib.suppress(Exception):
            await self.rig.admin("DELETE", "/admin/faults")
        self.rig.wire.cut_every(0)
        if self._endpoint is not None:
            await neighbours.take_leave(self.rig, self._endpoint)
            self._endpoint = None
        if scenario.infra is Infra.DATABASE_CUTS:
            await self.rig.without_a_proxy()
        elif scenario.infra is Infra.FULL_POOL:
            for child in ("api", "worker"):
                self.rig.set(child, {})
            await self.rig.restart("api", "worker")
        elif scenario.arms:
            self.rig.set(scenario.child, {})

    def _outcome(
        self, scenario: Scenario, evidence: Evidence, *, fired: int, seconds: float
    ) -> Outcome:
        violations: tuple[Violation, ...] = check(evidence)
        figures = counted(evidence)
        seen = {
            Need.FIRED: fired > scenario.arms.count(",") if scenario.arms else True,
            Need.SUPPRESSED: figures["unknown"] + figures["interruptions"] + figures["resolved"],
            Need.RESOLVED: figures["resolved"],
            Need.PARKED: figures["parked"],
        }
        ended = Counter(claim.outcome or claim.state for claim in evidence.claims)
        return Outcome(
            scenario=scenario.name,
            fault=scenario.fault,
            mode=scenario.mode,
            guarantee=scenario.guarantee,
            seconds=round(seconds, 1),
            fired=fired,
            outcomes=dict(ended),
            missing=tuple(
                f"nothing was {need}" for need in sorted(scenario.needs) if not seen[need]
            ),
            violations=lines_of(violations),
            **figures,
        )
