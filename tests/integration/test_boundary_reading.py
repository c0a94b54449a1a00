"""Reading, row by row of the contract's table: the resource, the receipt, and the list."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from ledger.reading import PAGE
from operations.declaration import SagaOperation
from operations.registry import OPERATIONS
from operations.states import ClaimState
from support.boundary import CHARGE_PATH, claimed, completed, progressed, run_sql
from support.service import CHARGE, ORDER, RunningService

LIST = "/v1/operations"


async def test_resource_has_the_members_of_the_contract(lively: RunningService) -> None:
    await lively.submit("orders.place", "k", ORDER, wait=30)
    answer = await lively.http.get(f"{LIST}/orders.place/k")
    resource = answer.json()
    assert answer.status_code == 200
    assert {
        name: resource[name] for name in ("operation", "key", "state", "outcome", "safe_new_key")
    } == {
        "operation": "orders.place",
        "key": "k",
        "state": "done",
        "outcome": "succeeded",
        "safe_new_key": False,
    }
    assert [step["name"] for step in resource["steps"]] == ["reserve", "charge", "ship", "confirm"]
    for step in resource["steps"]:
        assert set(step) >= {
            "name",
            "provider",
            "guarantee",
            "state",
            "provider_reference",
            "attempts",
            "undo_state",
        }
        assert (step["state"], step["undo_state"]) == ("confirmed", None)
    assert resource["result"]["status"] == 201
    assert resource["result"]["body"]["order_id"]
    assert resource["links"]["self"] == f"{LIST}/orders.place/k"
    assert resource["links"]["receipt"] == f"{LIST}/orders.place/k/receipt"
    assert resource["links"]["events"] == f"{LIST}/orders.place/k/events"
    assert resource["workflow_id"] in resource["links"]["temporal_ui"].replace("%2F", "/")
    assert resource["created_at"] <= resource["updated_at"] < resource["expires_at"]


async def test_etag_is_strong_and_spares_the_body(quiet: RunningService) -> None:
    claim = await claimed(quiet, "k")
    first = await quiet.http.get(f"{CHARGE_PATH}/k")
    tag = first.headers["etag"]
    assert tag.startswith('"')
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = await quiet.http.get(f"{CHARGE_PATH}/k", headers={"If-None-Match": known})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    await progressed(quiet, claim)
    changed = await quiet.http.get(f"{CHARGE_PATH}/k", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


async def test_wait_holds_until_the_operation_changes(quiet: RunningService) -> None:
    claim = await claimed(quiet, "k")
    tag = (await quiet.http.get(f"{CHARGE_PATH}/k")).headers["etag"]
    held = asyncio.create_task(
        quiet.http.get(f"{CHARGE_PATH}/k", params={"wait": 30}, headers={"If-None-Match": tag})
    )
    unconditional = asyncio.create_task(quiet.http.get(f"{CHARGE_PATH}/k", params={"wait": 30}))
    done, _ = await asyncio.wait({held, unconditional}, timeout=0.3)
    assert not done
    await progressed(quiet, claim)
    async with asyncio.timeout(5):
        answers = [await held, await unconditional]
    for answer in answers:
        assert answer.json()["steps"][0]["state"] == "sent"


async def test_wait_that_is_over_or_pointless_answers(quiet: RunningService) -> None:
    claim = await claimed(quiet, "k")
    tag = (await quiet.http.get(f"{CHARGE_PATH}/k")).headers["etag"]
    over = await quiet.http.get(
        f"{CHARGE_PATH}/k", params={"wait": 1}, headers={"If-None-Match": tag}
    )
    assert over.status_code == 304
    stale = await quiet.http.get(
        f"{CHARGE_PATH}/k", params={"wait": 60}, headers={"If-None-Match": '"other"'}
    )
    assert stale.status_code == 200
    await completed(quiet, claim)
    done = await quiet.http.get(f"{CHARGE_PATH}/k", params={"wait": 60})
    assert done.json()["state"] == "done"
    for wait in ("61", "-1", "soon"):
        refused = await quiet.http.get(f"{CHARGE_PATH}/k", params={"wait": wait})
        assert refused.json()["type"] == "/problems/validation-failed"


async def test_resource_and_etag_are_of_one_moment(quiet: RunningService) -> None:
    claim = await claimed(quiet, "k")
    await progressed(quiet, claim)
    account = await quiet.ledger.reading.account(claim)
    assert account.claim.revision == claim.revision + 1
    assert [effect.state for effect in account.effects] == ["sent"]


async def test_receipt_is_202_while_there_is_none(quiet: RunningService) -> None:
    await claimed(quiet, "k")
    answer = await quiet.http.get(f"{CHARGE_PATH}/k/receipt")
    assert answer.status_code == 202
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["location"] == f"{CHARGE_PATH}/k"
    assert answer.json()["state"] == "accepted"


async def test_head_answers_like_get_without_a_body(quiet: RunningService) -> None:
    await completed(quiet, await claimed(quiet, "k"))
    for path in (f"{CHARGE_PATH}/k", f"{CHARGE_PATH}/k/receipt", LIST, "/healthz", "/readyz"):
        get, head = await quiet.http.get(path), await quiet.http.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers.get("etag") == get.headers.get("etag")
        assert head.headers["content-length"] == str(len(get.content))
    events = await quiet.http.head(f"{CHARGE_PATH}/k/events")
    assert (events.status_code, events.content) == (200, b"")


async def test_key_never_seen_and_another_tenants_key_look_alike(quiet: RunningService) -> None:
    other = await claimed(quiet, "theirs", tenant=f"{quiet.tenant}-other")
    await completed(quiet, other)
    for suffix in ("", "/receipt", "/events"):
        theirs = await quiet.http.get(f"{CHARGE_PATH}/theirs{suffix}")
        never = await quiet.http.get(f"{CHARGE_PATH}/never{suffix}")
        assert theirs.status_code == never.status_code == 404
        assert theirs.content == never.content
        assert theirs.json()["type"] == "/problems/not-found"
    unknown = await quiet.http.get(f"{LIST}/no.such/k")
    assert unknown.json()["type"] == "/problems/operation-unknown"
    listed = await quiet.http.get(LIST)
    assert listed.json() == {"operations": [], "next_cursor": None}


async def _pages(quiet: RunningService, **params: str) -> list[dict[str, Any]]:
    """All pages, following the Link header, which must agree with `next_cursor`."""
    found: list[dict[str, Any]] = []
    answer = await quiet.http.get(LIST, params=params)
    while True:
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["operations"]
        following = answer.links.get("next")
        if following is None:
            assert page["next_cursor"] is None
            return found
        query = parse_qs(urlsplit(following["url"]).query)
        assert query["cursor"] == [page["next_cursor"]]
        answer = await quiet.http.get(following["url"])


async def test_list_pages_through_everything_once_newest_first(quiet: RunningService) -> None:
    for number in range(7):
        claim = await claimed(quiet, f"charge-{number}")
        if number % 2:
            await completed(quiet, claim)
        await claimed(quiet, f"legacy-{number}", operation="payments.charge_legacy")
    newest_first = [key for n in range(6, -1, -1) for key in (f"legacy-{n}", f"charge-{n}")]
    assert [row["key"] for row in await _pages(quiet, limit="3")] == newest_first
    assert [row["key"] for row in await _pages(quiet, limit="7")] == newest_first
    done = await _pages(quiet, limit="2", state="done")
    assert [row["key"] for row in done] == ["charge-5", "charge-3", "charge-1"]
    legacy = await _pages(quiet, limit="2", operation="payments.charge_legacy")
    assert [row["key"] for row in legacy] == [f"legacy-{n}" for n in range(6, -1, -1)]
    both = await _pages(quiet, limit="2", operation="payments.charge", state="accepted")
    assert [row["key"] for row in both] == [f"charge-{n}" for n in (6, 4, 2, 0)]
    one = await quiet.http.get(f"{CHARGE_PATH}/charge-5")
    assert done[0] == one.json()


async def test_list_goes_on_where_it_was_while_new_operations_arrive(
    quiet: RunningService,
) -> None:
    for number in range(4):
        await claimed(quiet, f"k{number}")
    first = (await quiet.http.get(LIST, params={"limit": 2})).json()
    await claimed(quiet, "later")
    second = await quiet.http.get(LIST, params={"limit": 2, "cursor": first["next_cursor"]})
    assert [row["key"] for row in second.json()["operations"]] == ["k1", "k0"]


async def test_list_has_those_accepted_after_a_moment(quiet: RunningService) -> None:
    claims = [await claimed(quiet, f"k{number}") for number in range(3)]
    after = claims[0].created_at.isoformat()
    assert [row["key"] for row in await _pages(quiet, created_after=after)] == ["k2", "k1"]
    assert await _pages(quiet, created_after="9999-12-31T23:59:59-14:00") == []
    assert len(await _pages(quiet, created_after="0001-01-01T00:00:00+14:00")) == 3


async def test_list_has_an_etag(quiet: RunningService) -> None:
    await claimed(quiet, "k")
    first = await quiet.http.get(LIST)
    tag = first.headers["etag"]
    assert (await quiet.http.get(LIST, headers={"If-None-Match": tag})).status_code == 304


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=many",
        "limit=1&limit=2",
        "state=gone",
        "operation=no.such",
        "operation=%00",
        "created_after=yesterday",
        "created_after=2026-01-01T00:00:00",
        "cursor=",
        "cursor=AAAA",
        "cursor=%C3%BC",
        "cursor=AQAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "cursor=" + "A" * 500,
        "sort=oldest",
    ],
)
async def test_list_refuses_what_it_does_not_know(quiet: RunningService, query: str) -> None:
    answer = await quiet.http.get(f"{LIST}?{query}")
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/validation-failed")


async def test_list_page_reads_a_bounded_part_of_one_index(quiet: RunningService) -> None:
    await run_sql(
        quiet,
        "INSERT INTO claims (tenant, operation, key, fingerprint, request, profiles, state,"
        " created_at, updated_at, check_at)"
        " SELECT $1, 'payments.charge', 'k' || n, '\\x00', '{}', '{}', 'accepted',"
        " now() - n * interval '1 second', now(), now() + interval '1 hour'"
        " FROM generate_series(1, 5000) n",
        quiet.tenant,
    )
    await run_sql(quiet, "ANALYZE claims")
    filters: list[tuple[list[str], list[ClaimState]]] = [
        (list(OPERATIONS), list(ClaimState)),
        (["payments.charge"], list(ClaimState)),
        (list(OPERATIONS), [ClaimState.PARKED]),
        (["payments.charge"], [ClaimState.ACCEPTED]),
    ]
    for operations, states in filters:
        touched = await _blocks_touched(quiet, operations=operations, states=states)
        assert touched < 250, "25 short index runs and 20 rows, not 5000"
    await run_sql(quiet, "DELETE FROM claims WHERE tenant = $1", quiet.tenant)


async def _blocks_touched(
    quiet: RunningService, *, operations: list[str], states: list[ClaimState]
) -> int:
    connection = await asyncpg.connect(quiet.settings.database_url.get_secret_value())
    try:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        plan = await connection.fetchval(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + PAGE.sql,
            *PAGE.arguments(
                tenant=quiet.tenant,
                operations=operations,
                states=states,
                created_after=datetime(2000, 1, 1, tzinfo=UTC),
                before_at=datetime(2999, 1, 1, tzinfo=UTC),
                before_id=2**62,
                limit=20,
            ),
        )
    finally:
        await connection.close()
    top = json.loads(plan)[0]["Plan"]
    assert '"Seq Scan"' not in plan, plan
    return top["Shared Hit Blocks"] + top["Shared Read Blocks"]


async def test_every_saga_operation_can_be_listed_and_read(quiet: RunningService) -> None:
    names = [name for name, found in OPERATIONS.items() if isinstance(found, SagaOperation)]
    for name in names:
        await claimed(quiet, "k", operation=name, body=CHARGE)
    assert {row["operation"] for row in await _pages(quiet)} == set(names)
