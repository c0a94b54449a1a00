"""Submitting, row by row of the contract's table."""

import asyncio
import json

import pytest

from operations.states import ClaimState, Outcome
from support.boundary import (
    CHARGE_PATH,
    claimed,
    completed,
    expire,
    progressed,
    raw_connection,
    raw_request,
    run_sql,
)
from support.service import CHARGE, RunningService, client_of

COUNT = "SELECT count(*) FROM claims WHERE tenant = $1"
CHARGE_BYTES = json.dumps(CHARGE).encode()


async def test_key_has_one_meaning_in_every_spelling(quiet: RunningService) -> None:
    done = await claimed(quiet, 'a"b\\c/d%e')
    await completed(quiet, done)
    spellings = [
        await quiet.submit("payments.charge", '"a\\"b\\\\c/d%e"', CHARGE),
        await quiet.http.put(f"{CHARGE_PATH}/a%22b%5Cc%2Fd%25e", json=CHARGE),
    ]
    for answer in spellings:
        assert (answer.status_code, answer.content) == (201, b'{"charge_id":"ch_1"}')
        assert answer.headers["idempotency-key"] == '"a\\"b\\\\c/d%e"'
    bare = await quiet.submit("payments.charge", "k", CHARGE, wait=0)
    quoted = await quiet.submit("payments.charge", '"k"', CHARGE, wait=0)
    assert bare.json()["links"] == quoted.json()["links"]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="missing"),
        pytest.param([""], id="empty"),
        pytest.param(['""'], id="empty string"),
        pytest.param(["k" * 256], id="longer"),
        pytest.param(["k\x01"], id="control"),
        pytest.param(["sch\xfcssel"], id="non-ASCII"),
        pytest.param(["k;p=1"], id="parameters"),
        pytest.param(["a, b"], id="list"),
        pytest.param(["k", "k"], id="repeated"),
        pytest.param(['"k'], id="unclosed"),
    ],
)
async def test_key_that_is_not_one_key_is_refused_and_nothing_is_claimed(
    quiet: RunningService, lines: list[str]
) -> None:
    async with raw_connection(quiet.url) as connection:
        fields = (*(("idempotency-key", line) for line in lines), ("content-length", "2"))
        await connection.send(
            raw_request("POST", CHARGE_PATH, token=quiet.token, fields=fields) + b"{}"
        )
        status, _ = await connection.head()
    assert status == 400
    assert await run_sql(quiet, COUNT, quiet.tenant) == 0


async def test_key_of_255_bytes_is_one(quiet: RunningService) -> None:
    answer = await quiet.submit("payments.charge", "k" * 255, CHARGE, wait=0)
    assert answer.status_code == 202
    assert answer.json()["key"] == "k" * 255


async def test_scope_is_tenant_operation_and_key(quiet: RunningService) -> None:
    stranger = await claimed(quiet, "k", tenant=f"{quiet.tenant}-other")
    await completed(quiet, stranger)
    legacy = await claimed(quiet, "k", operation="payments.charge_legacy")
    await completed(quiet, legacy)
    answer = await quiet.submit("payments.charge", "k", CHARGE, wait=0)
    assert answer.status_code == 202
    assert "idempotent-replayed" not in answer.headers


async def test_fingerprint_ignores_order_space_and_spelling_of_numbers(
    quiet: RunningService,
) -> None:
    await completed(quiet, await claimed(quiet, "k"))
    spelled = (
        b'{ "description":"two mugs","card":"tok_visa",\n"amount":{"currency":"EUR","minor":24e2} }'
    )
    answer = await quiet.http.post(CHARGE_PATH, content=spelled, headers={"idempotency-key": "k"})
    assert answer.status_code == 201
    assert answer.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"card":"a","card":"b"}', id="duplicate"),
        pytest.param(b'{"amount":NaN}', id="NaN"),
        pytest.param(b'{"card":"\\ud800"}', id="lone surrogate"),
        pytest.param(b"[" * 20_000 + b"]" * 20_000, id="deep"),
        pytest.param(b"{} {}", id="trailing"),
        pytest.param(b"\xef\xbb\xbf{}", id="BOM"),
        pytest.param(b'{"card":"\xff"}', id="not UTF-8"),
    ],
)
async def test_body_that_is_not_json_in_one_way_only_is_refused(
    quiet: RunningService, body: bytes
) -> None:
    answer = await quiet.http.post(CHARGE_PATH, content=body, headers={"idempotency-key": "k"})
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/body-malformed")


async def test_first_time_is_answered_with_the_operations_own_status(
    lively: RunningService,
) -> None:
    answer = await lively.submit("payments.charge", "k", CHARGE)
    assert answer.status_code == 201
    assert answer.headers["operation-state"] == "done"
    assert answer.headers["location"] == f"{CHARGE_PATH}/k"
    assert answer.headers["idempotency-key"] == '"k"'
    assert answer.headers["idempotency-expires"].endswith("Z")
    assert "idempotent-replayed" not in answer.headers


async def test_first_time_beyond_the_wait_is_202_with_location_and_retry_after(
    quiet: RunningService,
) -> None:
    answer = await quiet.submit("payments.charge", "k", CHARGE, wait=0)
    assert answer.status_code == 202
    assert answer.headers["location"] == f"{CHARGE_PATH}/k"
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["operation-state"] == "accepted"
    assert "idempotency-expires" not in answer.headers
    resource = await quiet.http.get(answer.headers["location"])
    assert resource.json() == answer.json()
    assert resource.headers["etag"] == answer.headers["etag"]


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("wait=0", "wait=0"),
        ("respond-async", "respond-async"),
        ("respond-async, wait=0", "respond-async, wait=0"),
        ("wait=soon", None),
    ],
)
async def test_preference_applied_says_what_was_done(
    quiet: RunningService, prefer: str, applied: str | None
) -> None:
    claim = await claimed(quiet, "k")
    await progressed(quiet, claim, state=ClaimState.PARKED)
    answer = await quiet.submit("payments.charge", "k", CHARGE, headers={"Prefer": prefer})
    assert answer.status_code == 202
    assert answer.headers.get("preference-applied") == applied


@pytest.mark.parametrize(
    ("status", "headers", "body", "outcome"),
    [
        pytest.param(204, (), b"", Outcome.SUCCEEDED, id="204"),
        pytest.param(200, (("content-type", "text/plain"),), b"", Outcome.SUCCEEDED, id="empty"),
        pytest.param(
            201, (("content-type", "image/png"),), bytes(range(256)), Outcome.SUCCEEDED, id="binary"
        ),
        pytest.param(
            402,
            (("content-type", "application/problem+json"),),
            b'{"status": 402}\n',
            Outcome.DECLINED,
            id="declined",
        ),
        pytest.param(
            424,
            (("content-type", "application/problem+json"), ("location", "/x")),
            b'{"status":424}',
            Outcome.COMPENSATED,
            id="compensated",
        ),
    ],
)
async def test_again_with_the_same_content_gets_the_receipt_byte_for_byte(
    quiet: RunningService,
    status: int,
    headers: tuple[tuple[str, str], ...],
    body: bytes,
    outcome: Outcome,
) -> None:
    claim = await claimed(quiet, "k")
    await completed(quiet, claim, status=status, headers=headers, body=body, outcome=outcome)
    answers = [
        await quiet.submit("payments.charge", "k", CHARGE),
        await quiet.http.put(f"{CHARGE_PATH}/k", json=CHARGE),
        await quiet.http.get(f"{CHARGE_PATH}/k/receipt"),
    ]
    for answer in answers:
        assert (answer.status_code, answer.content) == (status, body)
        assert answer.headers["idempotent-replayed"] == "true"
        for name in ("content-type", "location"):
            assert answer.headers.get(name) == dict(headers).get(name)


async def test_again_while_running_attaches_and_gets_the_same_answer(
    quiet: RunningService,
) -> None:
    claim = await claimed(quiet, "k")
    held = asyncio.create_task(quiet.submit("payments.charge", "k", CHARGE, wait=30))
    at_once = await quiet.submit("payments.charge", "k", CHARGE, wait=0)
    await completed(quiet, claim)
    waited = await held
    assert at_once.status_code == 202
    assert at_once.headers["idempotency-key"] == '"k"'
    assert (waited.status_code, waited.content) == (201, b'{"charge_id":"ch_1"}')
    assert waited.headers["idempotent-replayed"] == "true"


async def test_again_with_other_content_names_pointers_and_no_values(
    quiet: RunningService,
) -> None:
    await completed(quiet, await claimed(quiet, "k"))
    other = {**CHARGE, "card": "tok_secret", "amount": {"minor": 1, "currency": "EUR"}}
    answer = await quiet.submit("payments.charge", "k", other)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/key-reused")
    assert sorted(answer.json()["differing"]) == ["/amount/minor", "/card"]
    assert answer.json()["operation"] == f"{CHARGE_PATH}/k"
    assert "tok_" not in answer.text
    assert "A new key would be a new operation" in answer.json()["detail"]


async def test_after_expiry_the_key_stays_spent(quiet: RunningService) -> None:
    claim = await claimed(quiet, "k")
    await completed(quiet, claim)
    await expire(quiet, claim)
    for answer in (
        await quiet.submit("payments.charge", "k", CHARGE),
        await quiet.submit("payments.charge", "k", {**CHARGE, "card": "tok_other"}),
        await quiet.http.get(f"{CHARGE_PATH}/k/receipt"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/key-expired")
        assert answer.headers["idempotency-key"] == '"k"'
        assert answer.headers["operation-state"] == "expired"
    resource = await quiet.http.get(f"{CHARGE_PATH}/k")
    assert (resource.json()["state"], resource.json()["safe_new_key"]) == ("expired", False)


async def test_refusal_does_not_consume_the_key(quiet: RunningService) -> None:
    wrong = await quiet.submit("payments.charge", "k", {**CHARGE, "tip": 1})
    assert (wrong.status_code, wrong.json()["type"]) == (422, "/problems/validation-failed")
    assert wrong.json()["errors"][0]["pointer"] == "/tip"
    queried = await quiet.http.post(
        f"{CHARGE_PATH}?dry_run=true", json=CHARGE, headers={"idempotency-key": "k"}
    )
    assert queried.status_code == 422
    text = await quiet.http.post(
        CHARGE_PATH,
        content=CHARGE_BYTES,
        headers={"idempotency-key": "k", "content-type": "text/plain"},
    )
    assert (text.status_code, text.json()["type"]) == (415, "/problems/media-type-unsupported")
    assert (await quiet.submit("payments.charge", "k", CHARGE, wait=0)).status_code == 202


async def test_replay_is_authorised_anew(quiet: RunningService) -> None:
    await completed(quiet, await claimed(quiet, "k"))
    async with client_of(quiet.url, "tsk_unknown_secret") as stranger:
        answer = await stranger.put(f"{CHARGE_PATH}/k", json=CHARGE)
    assert (answer.status_code, answer.json()["type"]) == (401, "/problems/unauthenticated")


async def test_nul_in_a_text_is_no_error_of_ours(lively: RunningService) -> None:
    body = {**CHARGE, "description": "a\x00b"}
    answer = await lively.submit("payments.charge", "nul", body, wait=20)
    assert answer.status_code in {201, 422}, answer.text
