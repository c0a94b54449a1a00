"""Who else talks to the service: a tenant's endpoint, providers that send webhooks, and an operator
who has books compared."""

import asyncio
import json
import time
from collections.abc import Sequence

import httpx
from aiohttp import web

from operations.keys import Purpose, derived_key
from support.checker.evidence import EffectRow, Expected, Record, Seed
from support.faults import gather
from support.faults.rig import Rig

SECRET = "whsec_" + "c3VpdGU=" * 4
TELLING = ("payments", "acquirer", "carrier")
PATIENCE_SECONDS = 45.0


class Endpoint:
    """A tenant's endpoint that fails now and then."""

    def __init__(self) -> None:
        """Nothing was received yet."""
        self.received = 0
        self.url = ""
        self._runner = web.ServerRunner(web.Server(self._receive))

    async def start(self) -> None:
        """Listen on a free port."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/events"

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _receive(self, request: web.BaseRequest) -> web.Response:
        await request.read()
        self.received += 1
        return web.Response(status=500 if self.received % 7 == 0 else 204)


async def introduce(rig: Rig, endpoint: Endpoint) -> None:
    """Register the endpoint, and have providers send their webhooks, thrice and shuffled."""
    await endpoint.start()
    async with _operator(rig) as http:
        answer = await http.put("/v1/endpoints/suite", json={"url": endpoint.url})
        answer.raise_for_status()
    for provider in TELLING:
        order = {
            "provider": provider,
            "url": f"{rig.stack.api_url}/v1/webhooks/{provider}",
            "secret": SECRET,
            "mode": "thrice_shuffled",
        }
        await rig.admin("POST", "/admin/webhooks", order)


async def take_leave(rig: Rig, endpoint: Endpoint) -> None:
    """The endpoint is gone, and no more webhooks are sent."""
    await rig.admin("DELETE", "/admin/webhooks")
    async with _operator(rig) as http:
        seen = await http.get("/v1/endpoints/suite")
        etag = seen.headers.get("etag", "*")
        await http.delete("/v1/endpoints/suite", headers={"If-Match": etag})
    await endpoint.stop()


async def untold(rig: Rig, *, prefix: str) -> list[str]:
    """What providers have done for the claims of `prefix`, and no webhook has told us of yet."""
    ledger = await gather.from_ledger(rig.stack.postgres.url, prefix=prefix)
    told = await gather.entities(rig.stack.postgres.url)
    keys = {expected.key for expected in ledger.expected}
    return [
        f"{record.provider} has not told of {record.id}, {record.state}"
        for record in await gather.from_providers(rig.stack.providers_url)
        if record.provider in TELLING
        and record.reference in keys
        and told.get(record.id) != record.state
    ]


def settings() -> dict[str, str]:
    """What the service has to know to hear and to tell."""
    return {
        "TALLYSTICK_WEBHOOK_SECRETS": json.dumps(dict.fromkeys(TELLING, SECRET)),
        "TALLYSTICK_ENDPOINTS_ALLOW_HTTP": "true",
        "TALLYSTICK_ENDPOINTS_ALLOW_PRIVATE": "true",
    }


async def seed_duplicates(
    rig: Rig, effects: Sequence[EffectRow], records: Sequence[Record], *, prefix: str
) -> tuple[list[Seed], list[Expected]]:
    """Plant a second charge for one confirmed effect at each of two providers.

    Returns what reconciliation has to find, and the undo that it may send.
    """
    known = {record.reference: record for record in records}
    seeds, expected = list[Seed](), list[Expected]()
    for provider in ("payments", "acquirer"):
        effect = next(
            effect
            for effect in effects
            if (effect.provider, effect.action, effect.state) == (provider, "charge", "confirmed")
            and effect.refunded_minor == 0
        )
        twin = f"{known[effect.key].id}-twin"
        row = {
            "id": twin,
            "operation": "charge",
            "reference": effect.key,
            "amount": effect.amount_minor,
            "currency": "EUR",
            "state": "succeeded",
            "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        await rig.admin("POST", "/admin/ledger", {"provider": provider, "records": [row]})
        seeds.append(Seed(provider=provider, kind="duplicate", subject=twin))
        key = derived_key(
            workflow_id=f"reconciliation/{provider}/default",
            step=twin,
            ordinal=0,
            purpose=Purpose.UNDO,
        )
        expected.append(
            Expected(
                claim_id=effect.claim_id,
                step=effect.step,
                purpose="undo",
                provider=provider,
                guarantee="keyed",
                key=key,
                copies_max=1,
                required=False,
            )
        )
    return seeds, expected


async def reconcile(rig: Rig, *, prefix: str) -> list[str]:
    """Have both providers' books compared, asking until there is an answer; says what was not."""
    left: list[str] = []
    async with _operator(rig) as http:
        for provider in ("payments", "acquirer"):
            until = time.monotonic() + PATIENCE_SECONDS
            state = ""
            while state != "done" and time.monotonic() < until:
                state = await _ask(http, provider, key=f"{prefix}{provider}")
                await asyncio.sleep(0.3)
            if state != "done":
                left.append(f"reconciliation of {provider} is {state or 'not answered'}")
    return left


async def _ask(http: httpx.AsyncClient, provider: str, *, key: str) -> str:
    try:
        answer = await http.post(
            f"/v1/reconciliation/{provider}/runs",
            json={},
            headers={"Idempotency-Key": key, "Prefer": "wait=5"},
        )
        return str(answer.json().get("state", answer.status_code))
    except (httpx.HTTPError, ValueError):
        return ""


def _operator(rig: Rig) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=rig.stack.api_url,
        headers={"Authorization": f"Bearer {rig.stack.keys['operator']}"},
        timeout=15,
        trust_env=False,
    )
