"""Accounts: a PUT that may be repeated, and preconditions as RFC 9110, section 13, says."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from ledger.access import Role
from runtime.settings import Settings
from support.service import RunningService, client_of, running_service

TERMS: dict[str, Any] = {"currency": "EUR", "floor_minor": 0}


@pytest.fixture
async def service(settings: Settings, tenant: str) -> AsyncGenerator[RunningService]:
    """An API without a worker: nothing here needs a run."""
    async with running_service(settings, tenant=tenant, with_worker=False) as running:
        yield running


async def put(
    service: RunningService, body: Any = TERMS, *, account: str = "cash", **headers: str
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await service.http.put(f"/v1/accounts/{account}", json=body, headers=named)


async def get(service: RunningService, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await service.http.get("/v1/accounts/cash", headers=named)


async def pay(service: RunningService, key: str, minor: int) -> None:
    await put(service, {"currency": "EUR", "floor_minor": None}, account="bank")
    body = {"from": "bank", "to": "cash", "amount": {"minor": minor, "currency": "EUR"}}
    assert (await service.submit("accounts.transfer", key, body)).status_code == 201


async def test_a_put_makes_then_changes_and_repeating_it_changes_nothing(
    service: RunningService,
) -> None:
    assert (await get(service)).status_code == 404
    made = await put(service)
    again = await put(service)
    changed = await put(service, {"currency": "EUR", "floor_minor": None})
    read = await get(service)
    assert [answer.status_code for answer in (made, again, changed)] == [201, 200, 200]
    assert made.headers["location"] == "/v1/accounts/cash"
    assert made.json() == {"id": "cash", **TERMS, "balance_minor": 0}
    assert (again.headers["etag"], again.content) == (made.headers["etag"], made.content)
    assert changed.headers["etag"] != made.headers["etag"]
    assert (read.headers["etag"], read.content) == (changed.headers["etag"], changed.content)


async def test_the_tag_changes_with_the_balance_also_when_the_balance_returns(
    service: RunningService,
) -> None:
    tags = [(await put(service)).headers["etag"]]
    for payer, payee in (("bank", "cash"), ("cash", "bank")):
        await put(service, {"currency": "EUR", "floor_minor": None}, account="bank")
        body = {"from": payer, "to": payee, "amount": {"minor": 5, "currency": "EUR"}}
        await service.submit("accounts.transfer", f"{payer}-{payee}", body)
        tags.append((await get(service)).headers["etag"])
    assert (await get(service)).json()["balance_minor"] == 0
    assert len(set(tags)) == 3
    assert not any(tag.startswith("W/") for tag in tags)


async def test_create_only_creates_once_however_many_try(service: RunningService) -> None:
    answers = await asyncio.gather(*(put(service, if_none_match="*") for _ in range(20)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [201] + [412] * 19
    failed = next(answer for answer in answers if answer.status_code == 412)
    assert failed.json()["type"] == "/problems/precondition-failed"


async def test_one_of_many_writers_with_the_same_tag_wins(service: RunningService) -> None:
    tag = (await put(service)).headers["etag"]
    answers = await asyncio.gather(
        *(
            put(service, {"currency": "EUR", "floor_minor": -number}, if_match=tag)
            for number in range(1, 11)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 9


async def test_preconditions_of_a_put_are_judged_as_the_rfc_says(service: RunningService) -> None:
    absent = [
        await put(service, if_match="*"),
        await put(service, if_match='"x"'),
        await put(service, if_match='"x"', if_none_match="*"),
    ]
    assert [answer.status_code for answer in absent] == [412, 412, 412]
    tag = (await put(service)).headers["etag"]
    expected = [
        ({"if_match": "*"}, 200),
        ({"if_match": tag}, 200),
        ({"if_match": f'"a,b" , {tag},'}, 200),
        ({"if_match": f"W/{tag}"}, 412),
        ({"if_match": '"other"'}, 412),
        ({"if_none_match": '"other"'}, 200),
        ({"if_none_match": tag}, 412),
        ({"if_none_match": f"W/{tag}"}, 412),
        ({"if_match": tag, "if_none_match": '"other"'}, 200),
        ({"if_match": tag, "if_none_match": "*"}, 412),
        ({"if_match": tag, "if_unmodified_since": "Mon, 01 Jan 2001 00:00:00 GMT"}, 200),
    ]
    found = [(headers, (await put(service, **headers)).status_code) for headers, _ in expected]
    assert found == expected


async def test_preconditions_of_a_read_are_judged_as_the_rfc_says(service: RunningService) -> None:
    assert (await get(service, if_match="*")).status_code == 404
    tag = (await put(service)).headers["etag"]
    expected = [
        ({"if_none_match": tag}, 304),
        ({"if_none_match": f'"x", W/{tag}'}, 304),
        ({"if_none_match": "*"}, 304),
        ({"if_none_match": '"x"'}, 200),
        ({"if_match": '"x"'}, 412),
        ({"if_match": '"x"', "if_none_match": tag}, 412),
        ({"if_match": tag, "if_none_match": tag}, 304),
    ]
    found = [(headers, (await get(service, **headers)).status_code) for headers, _ in expected]
    assert found == expected
    not_modified = await get(service, if_none_match=tag)
    assert (not_modified.headers["etag"], not_modified.content) == (tag, b"")


async def test_a_condition_that_cannot_be_read_is_not_taken_for_a_met_one(
    service: RunningService,
) -> None:
    for value in ("unquoted", '"a" "b"', '*, "a"', 'w/"a"', '"open'):
        answer = await put(service, if_none_match=value)
        assert (answer.status_code, answer.json()["type"]) == (422, "/problems/validation-failed")
    assert (await get(service)).status_code == 404


async def test_an_account_with_entries_keeps_its_currency(service: RunningService) -> None:
    await put(service)
    assert (await put(service, {**TERMS, "currency": "USD"})).status_code == 200
    assert (await put(service)).status_code == 200
    await pay(service, "k", 5)
    tag = (await get(service)).headers["etag"]
    refused = await put(service, {**TERMS, "currency": "USD"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/currency")
    assert (await get(service)).headers["etag"] == tag


async def test_a_floor_above_the_balance_is_refused(service: RunningService) -> None:
    await put(service)
    await pay(service, "k", 5)
    refused = await put(service, {**TERMS, "floor_minor": 6})
    accepted = await put(service, {**TERMS, "floor_minor": 5})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/floor_minor")
    assert (accepted.status_code, accepted.json()["balance_minor"]) == (200, 5)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"currency": "eur"}, 422),
        ({"floor_minor": 0}, 422),
        ({**TERMS, "owner": "me"}, 422),
        ({**TERMS, "floor_minor": "0"}, 422),
        ({**TERMS, "floor_minor": 0.5}, 422),
        ({**TERMS, "floor_minor": 10**19}, 422),
        ([], 422),
    ],
)
async def test_terms_that_do_not_fit_make_nothing(
    service: RunningService, body: Any, status: int
) -> None:
    assert (await put(service, body)).status_code == status
    assert (await get(service)).status_code == 404


async def test_accounts_of_one_name_belong_to_each_tenant_alone(service: RunningService) -> None:
    mine = await put(service)
    async with client_of(service.url, "nonsense") as anonymous:
        assert (await anonymous.get("/v1/accounts/cash")).status_code == 401
    issued = await service.ledger.access.issue(
        tenant="other", role=Role.CLIENT, now=datetime.now(UTC)
    )
    async with client_of(service.url, issued.token) as other:
        assert (await other.get("/v1/accounts/cash")).status_code == 404
        theirs = await other.put("/v1/accounts/cash", json=TERMS)
    assert theirs.status_code == 201
    assert theirs.headers["etag"] != mine.headers["etag"]


async def test_the_document_types_accounts_and_names_their_problems(
    service: RunningService,
) -> None:
    document = (await service.http.get("/openapi.json")).json()
    path = document["paths"]["/v1/accounts/{id}"]
    assert {"200", "201", "400", "401", "412", "413", "415", "422", "503"} <= set(
        path["put"]["responses"]
    )
    assert {"200", "304", "401", "404", "412", "503"} <= set(path["get"]["responses"])
    assert {field["name"] for field in path["put"]["parameters"]} == {
        "id",
        "If-Match",
        "If-None-Match",
    }
    transfer = document["paths"]["/v1/operations/accounts.transfer"]["post"]
    schema = transfer["requestBody"]["content"]["application/json"]["schema"]
    model = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    assert set(model["properties"]) == {"from", "to", "amount"}
