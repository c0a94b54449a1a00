"""Who may call, from which page, and how soon that changes."""

import asyncio

import asyncpg
import httpx
import pytest

from api.authentication import UNSURE_SECONDS, KeyRing
from ledger.access import ApiKey, Role, hash_secret
from ledger.database import StorageUnavailable
from runtime.wiring import now
from support.boundary import (
    CHARGE_PATH,
    claimed,
    completed,
    raw_connection,
    raw_request,
    run_sql,
)
from support.service import CHARGE, RunningService, client_of

LIST = "/v1/operations"
ORIGIN = "https://shop.example"


async def test_new_key_works_at_once(quiet: RunningService) -> None:
    for number in range(4):
        issued = await quiet.ledger.access.issue(
            tenant=f"{quiet.tenant}-{number}", role=Role.CLIENT, now=now()
        )
        async with client_of(quiet.url, issued.token) as client:
            assert (await client.get(LIST)).status_code == 200


async def test_revoked_key_stops_working_within_five_seconds(quiet: RunningService) -> None:
    await completed(quiet, await claimed(quiet, "k"))
    assert (await quiet.http.put(f"{CHARGE_PATH}/k", json=CHARGE)).status_code == 201
    key_id = quiet.token.split("_")[1]
    assert await quiet.ledger.access.revoke(key_id, now=now())
    async with asyncio.timeout(5):
        while (await quiet.http.put(f"{CHARGE_PATH}/k", json=CHARGE)).status_code == 201:
            pass
    replay = await quiet.http.get(f"{CHARGE_PATH}/k/receipt")
    assert replay.json()["type"] == "/problems/unauthenticated"


@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param([], id="none"),
        pytest.param(["Basic dXNlcjpwYXNz"], id="another scheme"),
        pytest.param(["Bearer"], id="empty"),
        pytest.param(["Bearer nonsense"], id="not a key"),
        pytest.param(["Bearer tsk_0123456789ab_wrong"], id="unknown"),
        pytest.param(["GOOD", "GOOD"], id="twice"),
        pytest.param(["GOOD-WRONG"], id="wrong secret"),
        pytest.param(["Bearer tsk_\xff_\xff"], id="not ASCII"),
    ],
)
async def test_credential_that_is_not_one_live_key_is_401_with_a_challenge(
    quiet: RunningService, credentials: list[str]
) -> None:
    good = f"Bearer {quiet.token}"
    wrong = f"Bearer {quiet.token[:-2]}xx"
    said = [value.replace("GOOD-WRONG", wrong).replace("GOOD", good) for value in credentials]
    async with httpx.AsyncClient(base_url=quiet.url, trust_env=False) as client:
        answer = await client.get(
            LIST, headers=[(b"authorization", value.encode("latin-1")) for value in said]
        )
    assert (answer.status_code, answer.json()["type"]) == (401, "/problems/unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_scheme_is_read_without_regard_to_case(quiet: RunningService) -> None:
    async with httpx.AsyncClient(base_url=quiet.url, trust_env=False) as client:
        answer = await client.get(LIST, headers={"Authorization": f"bEARER {quiet.token}"})
    assert answer.status_code == 200


async def test_client_is_forbidden_what_operators_do(quiet: RunningService) -> None:
    await claimed(quiet, "k")
    for path in (f"{CHARGE_PATH}/k/cancel", f"{CHARGE_PATH}/k/steps/charge/resolution"):
        answer = await quiet.http.post(path, json={"verdict": "retry", "evidence": "seen"})
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/forbidden")


async def test_secret_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("ledger.access.hmac.compare_digest", compare)
    key = ApiKey("id", "acme", Role.CLIENT, now(), secret_hash=hash_secret("right"))
    assert not key.opens_with("wrong")
    assert key.opens_with("right")
    assert [len(one) == len(other) == 32 for one, other in compared] == [True, True]


async def test_request_reads_no_key_from_the_database(quiet: RunningService) -> None:
    await completed(quiet, await claimed(quiet, "k"))
    await quiet.http.get(f"{CHARGE_PATH}/k")
    before = await _key_reads(quiet)
    began = asyncio.get_running_loop().time()
    for _ in range(200):
        assert (await quiet.http.get(f"{CHARGE_PATH}/k")).status_code == 200
    seconds = asyncio.get_running_loop().time() - began
    reads = await _key_reads(quiet) - before
    assert reads <= 2 * seconds + 4, "one renewal a second, whatever is asked meanwhile"


async def _key_reads(quiet: RunningService) -> int:
    """Scans of the table of keys, of any kind, as Postgres counts them."""
    connection = await asyncpg.connect(quiet.settings.database_url.get_secret_value())
    try:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        return await connection.fetchval(
            "SELECT seq_scan + coalesce(idx_scan, 0) FROM pg_stat_user_tables"
            " WHERE relname = 'api_keys'"
        )
    finally:
        await connection.close()


class _Keys:
    """A table of keys that counts how often it is read, and can be away."""

    def __init__(self, keys: dict[str, ApiKey] | None = None) -> None:
        self.keys = keys or {}
        self.reads = 0
        self.away = False

    async def live_keys(self) -> dict[str, ApiKey]:
        self.reads += 1
        await asyncio.sleep(0.01)
        if self.away:
            raise StorageUnavailable("away")
        return self.keys


async def test_flood_of_unknown_keys_is_one_read_also_in_an_outage() -> None:
    keys = _Keys()
    ring = KeyRing(keys)  # pyright: ignore[reportArgumentType]
    for away in (False, True):
        keys.reads, keys.away = 0, away
        answers = await asyncio.gather(
            *(ring.identify(_Asking(f"Bearer tsk_{n:012x}_s")) for n in range(500)),  # pyright: ignore[reportArgumentType]
            return_exceptions=True,
        )
        names = {getattr(answer, "name", None) for answer in answers}
        assert names == {"storage-unavailable" if away else "unauthenticated"}
        assert keys.reads <= 2


async def test_an_old_copy_does_not_say_that_a_tenant_has_no_endpoints() -> None:
    key = ApiKey("k", "acme", Role.CLIENT, now(), secret_hash=hash_secret("s"), tells=False)
    seconds = [0.0]
    ring = KeyRing(_Keys({"k": key}), clock=lambda: seconds[-1])  # pyright: ignore[reportArgumentType]
    for age, tells in ((0.0, False), (UNSURE_SECONDS, False), (UNSURE_SECONDS + 0.1, True)):
        seconds.append(age)
        caller = await ring.identify(_Asking("Bearer tsk_k_s"))  # pyright: ignore[reportArgumentType]
        assert caller.tells is tells


class _Asking:
    """As much of a request as the key ring looks at."""

    def __init__(self, credential: str) -> None:
        from starlette.datastructures import Headers

        self.headers = Headers({"authorization": credential})


async def test_browser_may_call_and_read_the_answers_fields(quiet: RunningService) -> None:
    preflight = await quiet.http.request(
        "OPTIONS",
        f"{CHARGE_PATH}/k",
        headers={
            "Origin": ORIGIN,
            "Access-Control-Request-Method": "PUT",
            "Access-Control-Request-Headers": "authorization,content-type,idempotency-key,prefer",
        },
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "PUT" in preflight.headers["access-control-allow-methods"]
    allowed = preflight.headers["access-control-allow-headers"].lower()
    assert {"idempotency-key", "prefer", "if-match", "last-event-id"} <= set(allowed.split(", "))
    await completed(quiet, await claimed(quiet, "k"))
    answer = await quiet.http.put(f"{CHARGE_PATH}/k", json=CHARGE, headers={"Origin": ORIGIN})
    exposed = answer.headers["access-control-expose-headers"].lower().split(", ")
    assert {
        "idempotent-replayed",
        "idempotency-key",
        "idempotency-expires",
        "operation-state",
        "preference-applied",
        "location",
        "retry-after",
        "etag",
        "link",
    } <= set(exposed)
    stranger = await quiet.http.request(
        "OPTIONS",
        f"{CHARGE_PATH}/k",
        headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"},
    )
    assert "access-control-allow-origin" not in stranger.headers


async def test_browser_sees_problems_too(quiet: RunningService) -> None:
    answer = await quiet.http.get(f"{CHARGE_PATH}/never", headers={"Origin": ORIGIN})
    assert answer.status_code == 404
    assert answer.headers["access-control-allow-origin"] == ORIGIN


async def test_answer_without_configured_origins_names_none(service: RunningService) -> None:
    answer = await service.http.get(LIST, headers={"Origin": ORIGIN})
    assert "access-control-allow-origin" not in answer.headers


async def test_two_key_headers_by_the_byte_are_401(quiet: RunningService) -> None:
    async with raw_connection(quiet.url) as connection:
        fields = (("Authorization", f"Bearer {quiet.token}"),)
        await connection.send(raw_request("GET", LIST, token=quiet.token, fields=fields))
        status, _ = await connection.head()
    assert status == 401
    assert await run_sql(quiet, "SELECT 1") == 1
