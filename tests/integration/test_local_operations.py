"""`accounts.transfer` on real parts: claim, double entry and receipt are one, or nothing."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, seed
from hypothesis import settings as examples
from hypothesis import strategies as st

from ledger import local
from ledger.claims import Claim, Intent
from ledger.local import EFFECTS
from operations.accounts_transfer import ACCOUNTS_TRANSFER, TransferRequest
from operations.declaration import LocalOperation
from operations.fingerprint import canonical_bytes, fingerprint
from operations.registry import OPERATIONS
from runtime.settings import Settings
from support.service import RunningService, running_service

TRANSFER = "accounts.transfer"


def transfer(payer: str, payee: str, minor: int, *, currency: str = "EUR") -> dict[str, Any]:
    return {"from": payer, "to": payee, "amount": {"minor": minor, "currency": currency}}


async def open_account(
    service: RunningService, name: str, *, floor: int | None = 0, currency: str = "EUR"
) -> None:
    terms = {"currency": currency, "floor_minor": floor}
    answer = await service.http.put(f"/v1/accounts/{name}", json=terms)
    assert answer.status_code == 201


async def balance(service: RunningService, name: str) -> int:
    answer = await service.http.get(f"/v1/accounts/{name}")
    minor: int = answer.json()["balance_minor"]
    return minor


@pytest.fixture
async def service(settings: Settings, tenant: str) -> AsyncGenerator[RunningService]:
    """An API without a worker: nothing here needs a run."""
    async with running_service(settings, tenant=tenant, with_worker=False) as running:
        yield running


@pytest.fixture
async def bank(service: RunningService) -> RunningService:
    """A service with two accounts: `cash`, which may be overdrawn, and `sales`, which may not."""
    await open_account(service, "cash", floor=None)
    await open_account(service, "sales")
    return service


@asynccontextmanager
async def connected(service: RunningService) -> AsyncGenerator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(service.settings.database_url.get_secret_value())
    try:
        yield connection
    finally:
        await connection.close()


async def books(service: RunningService) -> tuple[int, int, int, int]:
    """How many claims and entries there are, what all entries sum to, and how many accounts have
    another balance than their entries say."""
    async with connected(service) as connection:
        row = await connection.fetchrow(
            """
            SELECT (SELECT count(*) FROM claims), (SELECT count(*) FROM entries),
                   (SELECT coalesce(sum(amount_minor), 0)::bigint FROM entries),
                   (SELECT count(*) FROM accounts AS a WHERE balance_minor <> (
                        SELECT coalesce(sum(amount_minor), 0) FROM entries AS e
                        WHERE (e.tenant, e.account) = (a.tenant, a.id)))
            """
        )
    assert row is not None
    return row[0], row[1], row[2], row[3]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another session does: Postgres tells nobody that somebody waits."""
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


async def test_a_transfer_moves_both_balances_and_every_retry_gets_the_same_bytes(
    bank: RunningService,
) -> None:
    first = await bank.submit(TRANSFER, "k", transfer("cash", "sales", 2400))
    again = await bank.submit(TRANSFER, "k", transfer("cash", "sales", 2400))
    put = await bank.http.put(f"/v1/operations/{TRANSFER}/k", json=transfer("cash", "sales", 2400))
    answer = first.json()
    assert first.status_code == 201
    assert answer.pop("transfer_id").startswith("trf_")
    assert answer == transfer("cash", "sales", 2400)
    for replay in (again, put):
        assert (replay.status_code, replay.content) == (201, first.content)
        assert replay.headers["idempotent-replayed"] == "true"
        assert replay.headers["location"] == first.headers["location"]
    assert (await balance(bank, "cash"), await balance(bank, "sales")) == (-2400, 2400)


async def test_a_local_operation_is_a_resource_without_run_and_steps(bank: RunningService) -> None:
    answer = await bank.submit(TRANSFER, "k", transfer("cash", "sales", 1))
    resource = (await bank.http.get(f"/v1/operations/{TRANSFER}/k")).json()
    receipt = await bank.http.get(f"/v1/operations/{TRANSFER}/k/receipt")
    listed = (await bank.http.get("/v1/operations", params={"operation": TRANSFER})).json()
    assert (resource["state"], resource["outcome"]) == ("done", "succeeded")
    assert (resource["workflow_id"], resource["steps"]) == (None, [])
    assert resource["links"]["temporal_ui"] is None
    assert resource["result"] == {"status": 201, "body": answer.json()}
    assert (receipt.status_code, receipt.content) == (201, answer.content)
    assert [operation["key"] for operation in listed["operations"]] == ["k"]


async def test_the_same_key_with_other_content_is_refused_and_moves_nothing(
    bank: RunningService,
) -> None:
    await bank.submit(TRANSFER, "k", transfer("cash", "sales", 100))
    other = await bank.submit(TRANSFER, "k", transfer("cash", "sales", 101))
    assert (other.status_code, other.json()["differing"]) == (409, ["/amount/minor"])
    assert other.json()["type"] == "/problems/key-reused"
    assert await balance(bank, "sales") == 100


async def test_an_expired_key_never_transfers_again(bank: RunningService) -> None:
    await bank.submit(TRANSFER, "k", transfer("cash", "sales", 100))
    async with connected(bank) as connection:
        await connection.execute(
            "UPDATE claims SET state = 'expired', outcome = NULL, receipt_status = NULL,"
            " receipt_headers = NULL, receipt_body = NULL, request = NULL"
        )
    late = await bank.submit(TRANSFER, "k", transfer("cash", "sales", 100))
    assert (late.status_code, late.json()["type"]) == (410, "/problems/key-expired")
    assert await balance(bank, "sales") == 100


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (transfer("nobody", "sales", 1), "payer_unknown"),
        (transfer("cash", "nobody", 1), "payee_unknown"),
        (transfer("cash", "sales", 1, currency="USD"), "currency_mismatch"),
        (transfer("sales", "cash", 1), "insufficient_funds"),
    ],
)
async def test_what_the_books_do_not_allow_is_a_declined_receipt(
    bank: RunningService, body: dict[str, Any], code: str
) -> None:
    first = await bank.submit(TRANSFER, "k", body)
    await bank.http.put("/v1/accounts/nobody", json={"currency": "EUR", "floor_minor": None})
    await bank.submit(TRANSFER, "fund", transfer("cash", "sales", 5))
    again = await bank.submit(TRANSFER, "k", body)
    resource = (await bank.http.get(f"/v1/operations/{TRANSFER}/k")).json()
    assert (first.status_code, first.json()["code"]) == (402, code)
    assert first.json()["type"] == "/problems/declined"
    assert (again.status_code, again.content) == (402, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert (resource["outcome"], resource["safe_new_key"]) == ("declined", True)
    assert await books(bank) == (2, 2, 0, 0)


@pytest.mark.parametrize(
    "body",
    [
        transfer("cash", "cash", 1),
        transfer("cash", "sales", 0),
        {**transfer("cash", "sales", 1), "dry_run": True},
    ],
)
async def test_a_request_that_could_never_fit_does_not_use_the_key(
    bank: RunningService, body: dict[str, Any]
) -> None:
    refused = await bank.submit(TRANSFER, "k", body)
    corrected = await bank.submit(TRANSFER, "k", transfer("cash", "sales", 1))
    assert (refused.status_code, corrected.status_code) == (422, 201)


async def test_two_hundred_duplicates_at_once_are_one_transfer(bank: RunningService) -> None:
    body = transfer("cash", "sales", 7)
    intent = _intent(bank, "storm", body)
    # Most of them not through the API, where duplicates in one process join the first.
    claims, answers = await asyncio.gather(
        asyncio.gather(*(_perform(bank, intent) for _ in range(180))),
        asyncio.gather(*(bank.submit(TRANSFER, "storm", body) for _ in range(20))),
    )
    bodies = {claim.receipt.body for claim in claims if claim.receipt is not None}
    assert {answer.status_code for answer in answers} == {201}
    assert bodies | {answer.content for answer in answers} == bodies
    assert len(bodies) == 1
    firsts = [answer for answer in answers if "idempotent-replayed" not in answer.headers]
    assert sum(claim.fresh for claim in claims) + len(firsts) == 1
    assert await balance(bank, "sales") == 7
    assert await books(bank) == (1, 2, 0, 0)


async def test_opposite_transfers_at_once_all_end_and_never_overdraw(bank: RunningService) -> None:
    await bank.submit(TRANSFER, "fund", transfer("cash", "sales", 10))
    await open_account(bank, "till")
    pairs = [("sales", "till"), ("till", "sales"), ("cash", "till"), ("sales", "cash")]
    bodies = [transfer(*pairs[number % 4], 3) for number in range(120)]
    intents = [_intent(bank, f"k{number}", body) for number, body in enumerate(bodies)]
    claims = await asyncio.gather(*(_perform(bank, intent) for intent in intents))
    statuses = [claim.receipt.status for claim in claims if claim.receipt is not None]
    assert set(statuses) == {201, 402}
    made = statuses.count(201) + 1
    assert await books(bank) == (121, 2 * made, 0, 0)
    assert min(await balance(bank, "sales"), await balance(bank, "till")) >= 0


async def test_a_duplicate_waits_a_bounded_time_and_then_says_in_progress(
    bank: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = transfer("cash", "sales", 5)
    monkeypatch.setattr(local, "SHORT_WAIT_SECONDS", 9.0)
    async with connected(bank) as holder:
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM accounts WHERE id = 'cash' FOR UPDATE")
        # Not through the API: that would have the duplicate join the first, in one process.
        pending = asyncio.create_task(_perform(bank, _intent(bank, "k", body)))
        await until(lambda: _waiting(bank, 1))
        monkeypatch.setattr(local, "SHORT_WAIT_SECONDS", 0.05)
        monkeypatch.setattr(local, "LOCK_WAIT_SECONDS", 0.2)
        duplicate = await bank.submit(TRANSFER, "k", body)
        await holder.execute("ROLLBACK")
        first = await pending
    again = await bank.submit(TRANSFER, "k", body)
    assert (duplicate.status_code, duplicate.json()["type"]) == (409, "/problems/in-progress")
    assert duplicate.headers["retry-after"] == "1"
    assert first.receipt is not None
    assert (again.status_code, again.content) == (201, first.receipt.body)
    assert await books(bank) == (1, 2, 0, 0)


async def test_neighbours_in_one_statement_are_judged_and_held_up_each_by_itself(
    bank: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One account is held by somebody, one does not exist, one key is used: the others go on."""
    for name in ("a", "b", "c", "d", "e", "f", "g", "h", "till"):
        await open_account(bank, name, floor=None)
    wishes = {
        "used": transfer("d", "cash", 1),
        "held": transfer("a", "b", 1),
        "nobody": transfer("c", "missing", 1),
        "poor": transfer("sales", "till", 10**14),
    }
    used = await _perform(bank, _intent(bank, "used", wishes["used"]))
    sizes: list[int] = []
    commit = bank.ledger.local._commit

    async def seen(rows: Sequence[Any], *about: Any, **more: Any) -> Any:
        sizes.append(len(rows))
        return await commit(rows, *about, **more)

    monkeypatch.setattr(bank.ledger.local, "_commit", seen)
    lanes = {"one": transfer("e", "f", 1), "other": transfer("g", "h", 1)}
    async with connected(bank) as holder:
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM accounts WHERE id = 'b' FOR UPDATE")
        tasks = {
            key: asyncio.create_task(_perform(bank, _intent(bank, key, body)))
            for key, body in (lanes | wishes).items()
        }
        done = {key: await task for key, task in tasks.items() if key != "held"}
        assert not tasks["held"].done()
        await holder.execute("ROLLBACK")
        done["held"] = await tasks["held"]
    statuses = {key: claim.receipt.status for key, claim in done.items() if claim.receipt}
    refused = dict.fromkeys(("nobody", "poor"), 402)
    assert statuses == dict.fromkeys(("one", "other", "used", "held"), 201) | refused
    assert (done["used"].id, done["used"].fresh) == (used.id, False)
    assert sizes[:3] == [1, 1, len(wishes)]
    assert await balance(bank, "b") == 1


async def test_an_account_that_others_hold_too_long_leaves_the_key_unused(
    bank: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LOCK_WAIT_SECONDS", 0.2)
    async with connected(bank) as holder:
        await holder.execute("BEGIN")
        await holder.execute("SELECT FROM accounts WHERE id = 'cash' FOR UPDATE")
        crowded = await bank.submit(TRANSFER, "k", transfer("cash", "sales", 5))
        await holder.execute("ROLLBACK")
    assert (crowded.status_code, crowded.json()["type"]) == (503, "/problems/storage-unavailable")
    assert crowded.headers["retry-after"] == "1"
    assert await books(bank) == (0, 0, 0, 0)
    assert (await bank.submit(TRANSFER, "k", transfer("cash", "sales", 6))).status_code == 201


async def test_a_connection_that_dies_leaves_all_or_nothing(bank: RunningService) -> None:
    async with connected(bank) as holder:
        await holder.execute("BEGIN")
        # Holds the statement behind its claim and its balances, at the very last row it writes.
        await holder.execute("LOCK TABLE transfers IN SHARE MODE")
        pending = asyncio.create_task(bank.submit(TRANSFER, "k", transfer("cash", "sales", 5)))
        await until(lambda: _waiting(bank, 1))
        await holder.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        )
        answer = await pending
        await holder.execute("ROLLBACK")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/storage-unavailable")
    assert await books(bank) == (0, 0, 0, 0)
    retried = await bank.submit(TRANSFER, "k", transfer("cash", "sales", 5))
    assert retried.status_code == 201
    assert await books(bank) == (1, 2, 0, 0)


async def test_a_cancelled_task_leaves_all_or_nothing(bank: RunningService) -> None:
    body = transfer("cash", "sales", 1)
    intents = [_intent(bank, f"k{number}", body) for number in range(30)]
    for number, intent in enumerate(intents):
        task = asyncio.create_task(_perform(bank, intent))
        for _ in range(number):  # one more turn of the loop each time: everywhere in its life
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    claims, entries, total, wrong = await books(bank)
    assert (entries, total, wrong) == (2 * claims, 0, 0)
    await asyncio.gather(*(_perform(bank, intent) for intent in intents))
    assert await books(bank) == (30, 60, 0, 0)


async def test_an_unbalanced_or_mixed_transfer_cannot_be_written_down(
    bank: RunningService,
) -> None:
    await open_account(bank, "dollars", currency="USD")
    insert = (
        "INSERT INTO transfers (claim_id, id, tenant, payer, payee, currency, amount_minor,"
        " created_at) VALUES (1, 'x', $1, 'cash', $2, 'EUR', $3, now())"
    )
    async with connected(bank) as connection:
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await connection.execute(insert, bank.tenant, "dollars", 1)
        for payee, minor in (("cash", 1), ("sales", 0), ("sales", -1)):
            with pytest.raises(asyncpg.CheckViolationError):
                await connection.execute(insert, bank.tenant, payee, minor)
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute("UPDATE accounts SET balance_minor = -1 WHERE id = 'sales'")


_MOVES = st.lists(
    st.tuples(
        st.sampled_from("abcx"), st.sampled_from("abcx"), st.integers(1, 30), st.integers(0, 8)
    ).filter(lambda move: move[0] != move[1]),
    max_size=12,
)


async def test_random_transfers_do_what_a_model_says(service: RunningService) -> None:
    rounds = 0

    async def play(moves: list[tuple[str, str, int, int]]) -> None:
        nonlocal rounds
        rounds += 1
        balances = {f"{name}{rounds}": 0 for name in "abc"}
        floors = {f"a{rounds}": None, f"b{rounds}": 0, f"c{rounds}": -10}
        seen: dict[str, tuple[Any, int]] = {}
        for name, floor in floors.items():
            await open_account(service, name, floor=floor)
        for payer, payee, minor, number in moves:
            body = transfer(f"{payer}{rounds}", f"{payee}{rounds}", minor)
            key = f"{rounds}-{number}"
            expected = _expected(balances, floors, seen.get(key), body)
            seen.setdefault(key, (body, expected))
            assert (await service.submit(TRANSFER, key, body)).status_code == expected
        found = {name: await balance(service, name) for name in balances}
        assert found == balances

    loop = asyncio.get_running_loop()

    @seed(4711)
    @examples(
        max_examples=10,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(_MOVES)
    def run(moves: list[tuple[str, str, int, int]]) -> None:
        asyncio.run_coroutine_threadsafe(play(moves), loop).result(timeout=30)

    await asyncio.to_thread(run)
    assert (await books(service))[2:] == (0, 0)


def _expected(
    balances: dict[str, int],
    floors: dict[str, int | None],
    first: tuple[Any, int] | None,
    body: dict[str, Any],
) -> int:
    """The status that the model gives, and what it does to `balances`."""
    if first is not None:
        return first[1] if first[0] == body else 409
    payer, payee, minor = body["from"], body["to"], body["amount"]["minor"]
    if payer not in balances or payee not in balances:
        return 402
    floor = floors[payer]
    if floor is not None and balances[payer] - minor < floor:
        return 402
    balances[payer] -= minor
    balances[payee] += minor
    return 201


def test_every_local_operation_has_its_effect() -> None:
    names = {name for name, op in OPERATIONS.items() if isinstance(op, LocalOperation)}
    assert names == set(EFFECTS)


def _intent(service: RunningService, key: str, body: dict[str, Any]) -> Intent:
    canonical = canonical_bytes(body)
    return Intent(
        tenant=service.tenant,
        operation=TRANSFER,
        key=key,
        fingerprint=fingerprint(operation=TRANSFER, canonical=canonical),
        request=canonical.decode(),
        profiles="{}",
    )


async def _perform(service: RunningService, intent: Intent) -> Claim:
    request = TransferRequest.model_validate_json(intent.request)
    done = await service.ledger.local.perform(
        intent, request, operation=ACCOUNTS_TRANSFER, now=datetime.now(UTC)
    )
    assert isinstance(done, Claim)
    return done


async def _waiting(service: RunningService, count: int) -> bool:
    """Whether `count` sessions wait for a lock."""
    async with connected(service) as connection:
        found = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    return bool(found == count)
