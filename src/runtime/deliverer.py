"""The deliverer: sends tenants' events to their endpoints. One in every worker.

Each endpoint is served by a task of its own, so one that is dead or slow holds up nobody else; and
nothing waits for any of them but their own events.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from datetime import datetime

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from ledger.database import StorageUnavailable
from ledger.ledger import Ledger
from ledger.outbox import Delivery
from operations.addresses import AddressRefused, check_address, is_allowed
from operations.failpoints import Failpoint, fail_at
from providers.webhook_signatures import sign_standard

POLL_SECONDS = 0.5
EACH_MAX = 10
"""Events on their way to one endpoint at a time."""

ENDPOINTS_MAX = 100
"""Endpoints that one worker serves at a time."""

SEND_TIMEOUT_SECONDS = 10.0
"""Much less than a delivery's lease: an attempt is over before another worker makes it anew."""

ERROR_CHARACTERS_MAX = 200

_log = structlog.get_logger(__name__)


class Deliverer:
    """Sends what is due, beside other deliverers."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        now: Callable[[], datetime],
        allow_http: bool = False,
        allow_private: bool = False,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Take from `ledger`; the two permissions are for tests and for closed networks."""
        self._ledger = ledger
        self._now = now
        self._allow_http = allow_http
        self._allow_private = allow_private
        self._poll_seconds = poll_seconds
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._free = asyncio.Event()

    async def run(self) -> None:
        """Deliver until cancelled. Outages are waited out; what was under way is sent again."""
        connector = aiohttp.TCPConnector(
            resolver=GuardedResolver(allow_private=self._allow_private),
            limit=ENDPOINTS_MAX * EACH_MAX,
        )
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=SEND_TIMEOUT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"user-agent": "Tallystick", "content-type": "application/json"},
        ) as session:
            try:
                await self._run(session)
            finally:
                for task in self._serving.values():
                    task.cancel()
                await asyncio.gather(*self._serving.values(), return_exceptions=True)

    async def _run(self, session: aiohttp.ClientSession) -> None:
        while True:
            self._free.clear()
            try:
                await self._take(session)
            except StorageUnavailable as error:
                _log.warning("deliverer.waits", reason=str(error))
            try:
                await asyncio.wait_for(self._free.wait(), self._poll_seconds)
            except TimeoutError:
                continue

    async def _take(self, session: aiohttp.ClientSession) -> None:
        room = ENDPOINTS_MAX - len(self._serving)
        if room <= 0:
            return
        taken = await self._ledger.outbox.take(
            busy=list(self._serving), each_max=EACH_MAX, endpoints_max=room, now=self._now()
        )
        if taken:
            fail_at(Failpoint.OUTBOX_TAKEN)
        by_endpoint: dict[str, list[Delivery]] = {}
        for delivery in taken:
            by_endpoint.setdefault(delivery.address, []).append(delivery)
        for address, deliveries in by_endpoint.items():
            task = asyncio.create_task(self._serve(session, deliveries))
            self._serving[address] = task
            task.add_done_callback(lambda ended, address=address: self._done(address, ended))

    def _done(self, address: str, ended: asyncio.Task[None]) -> None:
        """There may be more for this endpoint: look at once."""
        self._serving.pop(address, None)
        if not ended.cancelled() and (error := ended.exception()) is not None:
            _log.error("delivery.broken", endpoint=address, exc_info=error)
        self._free.set()

    async def _serve(self, session: aiohttp.ClientSession, deliveries: Sequence[Delivery]) -> None:
        """Send events of different subjects side by side; the ledger gave one of each."""
        try:
            await asyncio.gather(*(self._deliver(session, delivery) for delivery in deliveries))
        except StorageUnavailable as error:
            _log.warning("delivery.not_noted", endpoint=deliveries[0].address, reason=str(error))

    async def _deliver(self, session: aiohttp.ClientSession, delivery: Delivery) -> None:
        fail_at(Failpoint.OUTBOX_SENDING)
        error = await self._send(session, delivery)
        fail_at(Failpoint.OUTBOX_SENT)
        if error is None:
            await self._ledger.outbox.delivered(delivery, now=self._now())
            fail_at(Failpoint.OUTBOX_NOTED)
            return
        enabled = await self._ledger.outbox.failed(delivery, error=error, now=self._now())
        _log.info(
            "delivery.failed",
            endpoint=delivery.address,
            message_id=delivery.message_id,
            attempts=delivery.attempts,
            reason=error,
        )
        if not enabled:
            _log.warning("endpoint.disabled", endpoint=delivery.address, reason=error)

    async def _send(self, session: aiohttp.ClientSession, delivery: Delivery) -> str | None:
        """Make one attempt; returns why it failed. Only a 2xx is taken for "received"."""
        body = body_of(delivery)
        try:
            check_address(
                delivery.url, allow_http=self._allow_http, allow_private=self._allow_private
            )
            signed = sign_standard(
                body,
                message_id=delivery.message_id,
                seconds=int(self._now().timestamp()),
                secrets=delivery.secrets,
            )
            async with session.post(
                delivery.url, data=body, headers=dict(signed), allow_redirects=False
            ) as answer:
                return None if 200 <= answer.status < 300 else f"It answered {answer.status}"
        except AddressRefused as refused:
            return str(refused)
        except TimeoutError:
            return f"It did not answer within {SEND_TIMEOUT_SECONDS:.0f} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]


class GuardedResolver(AbstractResolver):
    """Names stand for public addresses only, judged when a connection is made: a name that was
    public when the endpoint was set up may point inward by now."""

    def __init__(self, *, allow_private: bool) -> None:
        """Resolve as the system does."""
        self._allow_private = allow_private
        self._system = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed addresses of `host`. Raises OSError when there are none."""
        found = await self._system.resolve(host, port, family)
        allowed = [
            result
            for result in found
            if is_allowed(result["host"], allow_private=self._allow_private)
        ]
        if not allowed:
            raise OSError("The name stands for addresses inside a private network only")
        return allowed

    async def close(self) -> None:
        """Nothing is kept."""
        await self._system.close()


def body_of(delivery: Delivery) -> bytes:
    """The bytes of an event: the same at every attempt."""
    moment = delivery.created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f'{{"type":"{delivery.type}","timestamp":"{moment}","data":{delivery.payload}}}'.encode()
