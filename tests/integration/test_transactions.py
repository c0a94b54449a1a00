"""What a keyed run costs in Postgres: the claim, and the completion."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from ledger.database import Connection, Database
from operations.orders_place import ORDERS_PLACE
from operations.payments_charge import PAYMENTS_CHARGE
from operations.states import Outcome
from runtime.settings import Settings
from support.saga_bench import saga_bench
from support.service import CHARGE, ORDER


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Database]:
    """The pool of every connection taken in this process: each is one transaction."""
    seen: list[Database] = []
    original = Database.connection

    @asynccontextmanager
    async def counted(self: Database) -> AsyncGenerator[Connection]:
        seen.append(self)
        async with original(self) as connection:
            yield connection

    monkeypatch.setattr(Database, "connection", counted)
    return seen


async def test_a_keyed_run_takes_two_transactions(
    settings: Settings, tenant: str, taken: list[Database]
) -> None:
    async with saga_bench(settings, tenant=tenant, announce=lambda _: None) as bench:
        begun = await bench.begin(PAYMENTS_CHARGE, CHARGE)
        assert (await begun.ended()).outcome is Outcome.SUCCEEDED
        assert taken.count(bench.ledger.database) == 2, "the claim and the completion"


async def test_each_step_that_takes_no_key_adds_one(
    settings: Settings, tenant: str, taken: list[Database]
) -> None:
    async with saga_bench(settings, tenant=tenant, announce=lambda _: None) as bench:
        begun = await bench.begin(ORDERS_PLACE, ORDER)
        assert (await begun.ended()).outcome is Outcome.SUCCEEDED
        count = taken.count(bench.ledger.database)
        assert count == 4, "the warehouse's row and the mail's are committed before the send"
