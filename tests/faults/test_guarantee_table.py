"""Every guarantee, every fault, first send and undo: what becomes of the effect and the operation,
and what then stands in the provider's own books.

How to read a row. `provider` is who is under test and what it promises. `call` is the first send of
a step, or the undo of it (after which the operation is compensated). `faults` are what the
simulated provider does to it, in order. Then: the state of that effect, where the operation stands
at the end, and what stands in the ledger of the provider, as `done-undone`.
`parked` is where a run waits for a person, by `docs/guarantees.md`. A void that finds nothing to
take back counts as nothing undone.

Every send may take 0.6 s, "absent" counts after 1.5 s, and a late commit lands after 1 s.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from operations.contracts import EffectRecord
from operations.declaration import SagaOperation
from operations.keys import Purpose
from operations.states import ClaimState
from runtime.embedded.postgres import EmbeddedPostgres
from runtime.settings import Settings
from support.databases import cloned_database
from support.saga_bench import Begun, SagaBench, saga_bench
from support.stepping import (
    DELIVERABLE,
    OVER_ACQUIRER,
    OVER_CLEARING,
    OVER_MAIL,
    OVER_PAYMENTS,
    OVER_VOIDS,
    OVER_WAREHOUSE,
    UNDELIVERABLE,
)
from support.world import World

TABLE = """
provider             | call  | faults                              | effect      | operation   | net
keyed payments       | first | -                                   | confirmed   | succeeded   | 1-0
keyed payments       | first | decline                             | rejected    | declined    | 0-0
keyed payments       | first | refuse_connection                   | confirmed   | succeeded   | 1-0
keyed payments       | first | drop_before_commit                  | confirmed   | succeeded   | 1-0
keyed payments       | first | commit_then_drop                    | confirmed   | succeeded   | 1-0
keyed payments       | first | commit_then_500                     | confirmed   | succeeded   | 1-0
keyed payments       | first | slow                                | confirmed   | succeeded   | 1-0
keyed payments       | first | late_commit                         | confirmed   | succeeded   | 1-0
keyed payments       | first | rate_limit                          | confirmed   | succeeded   | 1-0
keyed payments       | first | drop_before_commit, decline         | rejected    | declined    | 0-0
keyed payments       | first | refuse_connection, decline          | rejected    | declined    | 0-0
keyed payments       | first | commit_then_drop, key_forgotten     | confirmed   | succeeded   | 1-0
keyed payments       | first | commit_then_500, key_forgotten      | confirmed   | succeeded   | 1-0
short-keyed payments | first | slow, key_forgotten                 | confirmed   | succeeded   | 1-0
short-keyed payments | first | slow, lookup_lag                    | confirmed   | succeeded   | 1-0
short-keyed payments | first | rate_limit                          | parked      | parked      | 0-0
keyed payments       | undo  | -                                   | confirmed   | compensated | 1-1
keyed payments       | undo  | decline                             | parked      | parked      | 1-0
keyed payments       | undo  | refuse_connection                   | confirmed   | compensated | 1-1
keyed payments       | undo  | drop_before_commit                  | confirmed   | compensated | 1-1
keyed payments       | undo  | commit_then_drop                    | confirmed   | compensated | 1-1
keyed payments       | undo  | commit_then_500                     | confirmed   | compensated | 1-1
keyed payments       | undo  | slow                                | confirmed   | compensated | 1-1
keyed payments       | undo  | late_commit                         | confirmed   | compensated | 1-1
keyed payments       | undo  | rate_limit                          | confirmed   | compensated | 1-1
keyed payments       | undo  | commit_then_drop, key_forgotten     | confirmed   | compensated | 1-1
short-keyed payments | undo  | slow, key_forgotten                 | confirmed   | compensated | 1-1
short-keyed payments | undo  | slow, lookup_lag                    | confirmed   | compensated | 1-1
queryable warehouse  | first | -                                   | confirmed   | succeeded   | 1-0
queryable warehouse  | first | decline                             | rejected    | declined    | 0-0
queryable warehouse  | first | refuse_connection                   | confirmed   | succeeded   | 1-0
queryable warehouse  | first | drop_before_commit                  | confirmed   | succeeded   | 1-0
queryable warehouse  | first | commit_then_drop                    | confirmed   | succeeded   | 1-0
queryable warehouse  | first | commit_then_500                     | confirmed   | succeeded   | 1-0
queryable warehouse  | first | slow                                | confirmed   | succeeded   | 1-0
queryable warehouse  | first | late_commit                         | confirmed   | succeeded   | 1-0
queryable warehouse  | first | rate_limit                          | confirmed   | succeeded   | 1-0
queryable warehouse  | first | key_forgotten                       | confirmed   | succeeded   | 1-0
queryable warehouse  | first | commit_then_drop, lookup_lag        | confirmed   | succeeded   | 1-0
queryable warehouse  | first | drop_before_commit, decline         | rejected    | declined    | 0-0
queryable warehouse  | first | drop_before_commit,commit_then_drop | confirmed   | succeeded   | 1-0
queryable warehouse  | undo  | -                                   | confirmed   | compensated | 1-1
queryable warehouse  | undo  | decline                             | parked      | parked      | 1-0
queryable warehouse  | undo  | refuse_connection                   | confirmed   | compensated | 1-1
queryable warehouse  | undo  | drop_before_commit                  | confirmed   | compensated | 1-1
queryable warehouse  | undo  | commit_then_drop                    | confirmed   | compensated | 1-1
queryable warehouse  | undo  | commit_then_500                     | confirmed   | compensated | 1-1
queryable warehouse  | undo  | slow                                | confirmed   | compensated | 1-1
queryable warehouse  | undo  | late_commit                         | confirmed   | compensated | 1-1
queryable warehouse  | undo  | rate_limit                          | confirmed   | compensated | 1-1
queryable warehouse  | undo  | key_forgotten                       | confirmed   | compensated | 1-1
queryable warehouse  | undo  | commit_then_drop, lookup_lag        | confirmed   | compensated | 1-1
natural warehouse    | first | -                                   | confirmed   | succeeded   | 1-0
natural warehouse    | first | decline                             | rejected    | declined    | 0-0
natural warehouse    | first | refuse_connection                   | confirmed   | succeeded   | 1-0
natural warehouse    | first | drop_before_commit                  | confirmed   | succeeded   | 1-0
natural warehouse    | first | commit_then_drop                    | confirmed   | succeeded   | 1-0
natural warehouse    | first | commit_then_500                     | confirmed   | succeeded   | 1-0
natural warehouse    | first | slow                                | confirmed   | succeeded   | 1-0
natural warehouse    | first | late_commit                         | confirmed   | succeeded   | 1-0
natural warehouse    | first | rate_limit                          | confirmed   | succeeded   | 1-0
natural warehouse    | first | commit_then_drop, lookup_lag        | confirmed   | succeeded   | 1-0
natural warehouse    | first | drop_before_commit, decline         | rejected    | declined    | 0-0
natural warehouse    | first | commit_then_drop, decline           | confirmed   | succeeded   | 1-0
natural warehouse    | undo  | -                                   | confirmed   | compensated | 1-1
natural warehouse    | undo  | decline                             | parked      | parked      | 1-0
natural warehouse    | undo  | refuse_connection                   | confirmed   | compensated | 1-1
natural warehouse    | undo  | drop_before_commit                  | confirmed   | compensated | 1-1
natural warehouse    | undo  | commit_then_drop                    | confirmed   | compensated | 1-1
natural warehouse    | undo  | commit_then_500                     | confirmed   | compensated | 1-1
natural warehouse    | undo  | slow                                | confirmed   | compensated | 1-1
natural warehouse    | undo  | late_commit                         | confirmed   | compensated | 1-1
natural warehouse    | undo  | rate_limit                          | confirmed   | compensated | 1-1
natural warehouse    | undo  | commit_then_drop, decline           | confirmed   | compensated | 1-1
blind acquirer       | first | -                                   | confirmed   | succeeded   | 1-0
blind acquirer       | first | decline                             | rejected    | declined    | 0-0
blind acquirer       | first | refuse_connection                   | confirmed   | succeeded   | 1-0
blind acquirer       | first | drop_before_commit                  | parked      | parked      | 0-0
blind acquirer       | first | commit_then_drop                    | parked      | parked      | 1-0
blind acquirer       | first | commit_then_500                     | parked      | parked      | 1-0
blind acquirer       | first | slow                                | parked      | parked      | 1-0
blind acquirer       | first | late_commit                         | parked      | parked      | 1-0
blind acquirer       | first | rate_limit                          | confirmed   | succeeded   | 1-0
blind acquirer       | first | key_forgotten                       | confirmed   | succeeded   | 1-0
blind acquirer       | first | lookup_lag                          | confirmed   | succeeded   | 1-0
blind acquirer       | undo  | -                                   | confirmed   | compensated | 1-1
blind acquirer       | undo  | decline                             | parked      | parked      | 1-0
blind acquirer       | undo  | refuse_connection                   | confirmed   | compensated | 1-1
blind acquirer       | undo  | drop_before_commit                  | parked      | parked      | 1-0
blind acquirer       | undo  | commit_then_drop                    | parked      | parked      | 1-1
blind acquirer       | undo  | commit_then_500                     | parked      | parked      | 1-1
blind acquirer       | undo  | slow                                | parked      | parked      | 1-1
blind acquirer       | undo  | late_commit                         | parked      | parked      | 1-1
blind acquirer       | undo  | rate_limit                          | confirmed   | compensated | 1-1
blind acquirer       | undo  | key_forgotten                       | confirmed   | compensated | 1-1
blind acquirer       | undo  | lookup_lag                          | confirmed   | compensated | 1-1
voidable acquirer    | first | -                                   | confirmed   | succeeded   | 1-0
voidable acquirer    | first | decline                             | rejected    | declined    | 0-0
voidable acquirer    | first | refuse_connection                   | confirmed   | succeeded   | 1-0
voidable acquirer    | first | drop_before_commit                  | compensated | compensated | 0-0
voidable acquirer    | first | commit_then_drop                    | compensated | compensated | 1-1
voidable acquirer    | first | commit_then_500                     | compensated | compensated | 1-1
voidable acquirer    | first | slow                                | compensated | compensated | 1-1
voidable acquirer    | first | late_commit                         | compensated | compensated | 1-1
voidable acquirer    | first | rate_limit                          | confirmed   | succeeded   | 1-0
voidable acquirer    | undo  | -                                   | confirmed   | compensated | 1-1
voidable acquirer    | undo  | decline                             | parked      | parked      | 1-0
voidable acquirer    | undo  | refuse_connection                   | confirmed   | compensated | 1-1
voidable acquirer    | undo  | drop_before_commit                  | parked      | parked      | 1-0
voidable acquirer    | undo  | commit_then_drop                    | parked      | parked      | 1-1
voidable acquirer    | undo  | commit_then_500                     | parked      | parked      | 1-1
voidable acquirer    | undo  | slow                                | parked      | parked      | 1-1
voidable acquirer    | undo  | late_commit                         | parked      | parked      | 1-1
voidable acquirer    | undo  | rate_limit                          | confirmed   | compensated | 1-1
informing mail       | first | -                                   | confirmed   | succeeded   | 1-0
informing mail       | first | decline                             | rejected    | succeeded   | 0-0
informing mail       | first | refuse_connection                   | confirmed   | succeeded   | 1-0
informing mail       | first | drop_before_commit                  | confirmed   | succeeded   | 1-0
informing mail       | first | commit_then_drop                    | confirmed   | succeeded   | 2-0
informing mail       | first | commit_then_500                     | confirmed   | succeeded   | 2-0
informing mail       | first | slow                                | confirmed   | succeeded   | 2-0
informing mail       | first | late_commit                         | confirmed   | succeeded   | 2-0
informing mail       | first | rate_limit                          | confirmed   | succeeded   | 1-0
informing mail       | first | key_forgotten                       | confirmed   | succeeded   | 1-0
informing mail       | first | lookup_lag                          | confirmed   | succeeded   | 1-0
informing mail       | first | slow, slow, slow                    | unknown     | succeeded   | 3-0
"""

SECONDS = {
    "refuse_connection": 0.4,
    "slow": 1.0,
    "late_commit": 1.0,
    "rate_limit": 1.0,
    "lookup_lag": 1.0,
}
FIGURES: dict[str, Any] = {
    "send_timeout_seconds": 0.6,
    "lookup_horizon_seconds": 1.5,
    "lookup_interval_seconds": 0.3,
}
SHORT_KEYS = {"key_lifetime_seconds": 0.9, "key_margin_seconds": 0.1}
"""Over before the pause after a timeout is: what timed out is not sent again under that key."""

NATURAL = {"guarantee": "natural"}

SUBJECTS: dict[str, tuple[SagaOperation, str, str | None]] = {
    "payments": (OVER_PAYMENTS, "charge", "refund"),
    "warehouse": (OVER_WAREHOUSE, "reserve", "release"),
    "acquirer": (OVER_ACQUIRER, "charge", "refund"),
    "mail": (OVER_MAIL, "send", None),
    # The same providers in another role: what only releases stock, and what is voided by reference.
    "natural warehouse first": (OVER_CLEARING, "release", None),
    "voidable acquirer first": (OVER_VOIDS, "charge", "void"),
    "voidable acquirer undo": (OVER_VOIDS, "charge", "void"),
}
PROVIDERS = ("payments", "warehouse", "acquirer", "mail")
PINNED = {"short-keyed": SHORT_KEYS, "natural": NATURAL}
"""What is pinned instead of the provider's own promise."""
ROW_SECONDS = 20.0


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    promise: str
    provider: str
    call: str
    faults: tuple[str, ...]
    effect: str
    operation: str
    ledger: str

    @classmethod
    def read(cls, line: str) -> "Row":
        """Read one line."""
        who, call, faults, effect, operation, ledger = (cell.strip() for cell in line.split("|"))
        promise, provider = who.split()
        named = () if faults == "-" else tuple(fault.strip() for fault in faults.split(","))
        return cls(promise, provider, call, named, effect, operation, ledger)

    @property
    def subject(self) -> tuple[SagaOperation, str, str | None]:
        """The operation, and what its first step does and undoes."""
        role = SUBJECTS.get(f"{self.promise} {self.provider} {self.call}")
        return role or SUBJECTS[self.provider]

    def __str__(self) -> str:
        """Its name in a test report."""
        return f"{self.promise}-{self.provider}-{self.call}-{'+'.join(self.faults) or 'nothing'}"


ROWS = [Row.read(line) for line in TABLE.strip().splitlines()[1:]]


@dataclass(frozen=True)
class Seen:
    """What came of one row."""

    effect: str
    operation: str
    ledger: str


class Trial:
    """Runs rows, one after the other, at one provider."""

    def __init__(self, bench: SagaBench, world: World) -> None:
        """Nothing has run yet."""
        self._bench = bench
        self._world = world

    async def run(self, row: Row) -> Seen:
        """Begin an operation, let the faults meet the call, and see what comes of it."""
        operation, action, undo = row.subject
        undoing = row.call == "undo"
        if not undoing:
            await self._arm(row, action)
        pinned = PINNED.get(row.promise)
        begun = await self._bench.begin(
            operation,
            {
                "address": UNDELIVERABLE if undoing else DELIVERABLE,
                "gated": undoing,
                "about": await self._something_to_release() if action == "release" else "",
            },
            profiles=None if pinned is None else {row.provider: pinned},
        )
        if undoing:
            await self._bench.ask(begun, "arrive")
            assert undo is not None
            await self._arm(row, undo)
            await self._bench.ask(begun, "open")
        return await self._settled(row, begun)

    async def _something_to_release(self) -> str:
        [reservation] = await self._world.seed("warehouse", [{"operation": "reserve"}])
        return reservation

    async def _arm(self, row: Row, action: str) -> None:
        for mode in row.faults:
            target = "*" if mode == "refuse_connection" else action
            seconds = SECONDS.get(mode, 0.0)
            await self._world.faults(row.provider, mode, operation=target, seconds=seconds)

    async def _settled(self, row: Row, begun: Begun) -> Seen:
        claim = await self._bench.now(begun)
        async with asyncio.timeout(ROW_SECONDS):
            while claim.state not in {ClaimState.DONE, ClaimState.PARKED}:
                await asyncio.sleep(0.03)
                claim = await self._bench.now(begun)
        if claim.state is ClaimState.PARKED:
            await begun.handle.terminate("its row is over")
            await asyncio.sleep(SECONDS["late_commit"] if "late_commit" in row.faults else 0)
        for fault in await self._world.armed():
            assert fault["mode"] in {"key_forgotten", "lookup_lag", "decline"} or (
                fault["provider"] != row.provider
            ), f"{fault} met nothing"
        purpose = Purpose.UNDO if row.call == "undo" else Purpose.ACTION
        effects = await self._bench.effects(begun)
        [effect] = [e for e in effects if (e.step, e.purpose) == ("first", purpose)]
        return Seen(
            effect=effect.state.value,
            operation=(claim.outcome or claim.state).value,
            ledger=await self._books(row, effects),
        )

    async def _books(self, row: Row, effects: tuple[EffectRecord, ...]) -> str:
        """What the provider committed of this operation: done-undone."""
        _, action, undo = row.subject
        ours = {effect.key for effect in effects}
        books = [r for r in await self._world.ledger(row.provider) if r["reference"] in ours]
        done = sum(record["operation"] == action for record in books)
        undone = sum(record["operation"] == undo and bool(record["target"]) for record in books)
        return f"{done}-{undone}"


@pytest.fixture(scope="module")
async def seen(
    postgres: EmbeddedPostgres, template: str, temporal_address: str, parts: Any
) -> AsyncGenerator[dict[Row, Seen | BaseException]]:
    """What came of every row: one after the other at each provider, the providers side by side."""
    world: World = parts.world
    await world.clear_faults()
    await world.wipe()
    await world.temperament("blind")
    async with AsyncExitStack() as resources:
        url = await resources.enter_async_context(cloned_database(postgres.url, template=template))
        settings = Settings.model_validate(
            {
                "database_url": url,
                "temporal_address": temporal_address,
                "temporal_task_queue": f"q-{uuid.uuid4().hex[:10]}",
                "acquirer_blind": True,
                "provider_profiles": dict.fromkeys(PROVIDERS, FIGURES),
                "worker_drain_seconds": 1,
                **{f"{name}_url": at for name, at in world.urls.items() if name != "admin"},
            }
        )
        bench = await resources.enter_async_context(
            saga_bench(settings, tenant=f"t-{uuid.uuid4().hex[:10]}")
        )
        results: dict[Row, Seen | BaseException] = {}

        async def at(provider: str) -> None:
            trial = Trial(bench, world)
            for row in (row for row in ROWS if row.provider == provider):
                try:
                    results[row] = await trial.run(row)
                except (AssertionError, TimeoutError) as error:
                    results[row] = error

        await asyncio.gather(*(at(provider) for provider in PROVIDERS))
        yield results
    await world.temperament("consistent")
    await world.clear_faults()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_row_comes_true(row: Row, seen: dict[Row, Seen | BaseException]) -> None:
    assert seen[row] == Seen(row.effect, row.operation, row.ledger)
