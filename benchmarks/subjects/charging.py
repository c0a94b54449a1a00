"""What every peer shares: the request, the receipt, and one keyed charge through httpx."""

import os
from typing import Any

import httpx
import uvicorn
from pydantic import BaseModel

PAYMENTS_URL = os.environ.get("BENCH_PAYMENTS_URL", "")
STEPS = ("first", "second", "third")


class Money(BaseModel):
    """An amount in minor units."""

    minor: int
    currency: str


class ThreeChargesRequest(BaseModel):
    """What each of the charges takes."""

    amount: Money
    card: str


def payments_client() -> httpx.AsyncClient:
    """httpx as it comes; with BENCH_TRANSPORT=aiohttp, on the connections of `httpx-aiohttp`."""
    if os.environ.get("BENCH_TRANSPORT") == "aiohttp":
        from httpx_aiohttp import AiohttpTransport  # noqa: PLC0415

        return httpx.AsyncClient(base_url=PAYMENTS_URL, transport=AiohttpTransport(), timeout=5.0)
    return httpx.AsyncClient(base_url=PAYMENTS_URL, trust_env=False, timeout=5.0)


async def charge(client: httpx.AsyncClient, request: dict[str, Any], *, key: str) -> str:
    """Charge once under `key` and return what the provider calls it."""
    answer = await client.post(
        "/v1/charges",
        headers={"Idempotency-Key": key},
        json={
            "reference": key,
            "amount": request["amount"]["minor"],
            "currency": request["amount"]["currency"],
            "source": request["card"],
            "description": "bench",
        },
    )
    answer.raise_for_status()
    charged: str = answer.json()["id"]
    return charged


async def refund(
    client: httpx.AsyncClient, request: dict[str, Any], *, charge_id: str, key: str
) -> None:
    """Give a charge back under `key`."""
    answer = await client.post(
        "/v1/refunds",
        headers={"Idempotency-Key": key},
        json={
            "reference": key,
            "charge": charge_id,
            "amount": request["amount"]["minor"],
            "currency": request["amount"]["currency"],
        },
    )
    answer.raise_for_status()


def serve(app: Any) -> None:
    """Serve `app` with the settings of our own API process."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(os.environ["BENCH_PORT"]),
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        backlog=2048,
    )
