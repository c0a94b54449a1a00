"""Both ends of webhooks: signing as providers do, and a receiver as tenants have it."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook

from providers.webhook_signatures import sign_standard

SECRET = "whsec_" + "c2VjcmV0LW9mLXRoZS1zaW11bGF0ZWQtd29ybGQ="
STRIPE_SECRET = "whsec_of_a_stripe_endpoint"


def signed(body: bytes, *, message_id: str = "evt_1", age_seconds: int = 0) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    seconds = int(time.time()) - age_seconds
    return dict(sign_standard(body, message_id=message_id, seconds=seconds, secrets=[SECRET]))


def stripe_signed(
    body: bytes, *, age_seconds: int = 0, secrets: tuple[str, ...] = (STRIPE_SECRET,)
) -> dict[str, str]:
    """The header of Stripe, made by its documentation."""
    moment = str(int(time.time()) - age_seconds)
    signatures = [
        hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
        for secret in secrets
    ]
    return {"Stripe-Signature": ",".join([f"t={moment}", *(f"v1={one}" for one in signatures)])}


def record(
    entity: str, version: int, state: str, *, reference: str | None = None, amount: int = 2400
) -> bytes:
    """A simulated provider's event."""
    data: dict[str, Any] = {
        "id": entity,
        "version": version,
        "state": state,
        "reference": reference,
        "amount": amount,
        "currency": "EUR",
    }
    return json.dumps({"type": f"charge.{state}", "data": data}).encode()


@dataclass(frozen=True)
class Received:
    """One attempt, as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes
    document: dict[str, Any]

    @property
    def id(self) -> str:
        """Of the event."""
        return self.headers["webhook-id"]

    def verify(self, secret: str) -> None:
        """Raises WebhookVerificationError."""
        Webhook(secret).verify(self.body, self.headers, json_parse=False)


@dataclass
class Receiver:
    """A tenant's server. `answer` says what an attempt gets; None: no answer at all."""

    url: str = ""
    attempts: list[Received] = field(default_factory=list[Received])
    answer: Callable[[Received], int | None] = lambda _: 204
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, enough: Callable[[list[Received]], bool], *, seconds: float = 20) -> None:
        """Wait until `enough` of the attempts."""
        async with asyncio.timeout(seconds), self._arrived:
            await self._arrived.wait_for(lambda: enough(self.attempts))

    def types(self, *, path: str = "/") -> list[str]:
        """What arrived at `path`, in order."""
        return [one.document["type"] for one in self.attempts if one.path == path]

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Note an attempt, and answer."""
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(request.path, headers, body, json.loads(body))
        async with self._arrived:
            self.attempts.append(received)
            self._arrived.notify_all()
        status = self.answer(received)
        if status is None:
            await asyncio.sleep(60)
        return web.Response(status=status or 500)


@asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver]:
    """A receiver on a free port."""
    receiver = Receiver()
    server = web.Server(receiver.respond, access_log=None)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    receiver.url = f"http://127.0.0.1:{port}"
    try:
        yield receiver
    finally:
        listening.close()
        await server.shutdown(0.1)
