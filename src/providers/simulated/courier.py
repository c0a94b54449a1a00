"""The simulated providers' webhooks: every committed effect, and every state it moves to.

What is to be told follows from the ledger alone: a row is a fact, and a row with a target is also
the target's next state. So the ledger file keeps a cursor and no more: nothing is lost when the
process dies, and a provider that nobody listens to costs nothing.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, field_validator

from providers.simulated.books import Books, Effect, Pages
from providers.simulated.reads import record_of
from providers.simulated.service import Service
from providers.simulated.vocabulary import ProviderName
from providers.simulated.wire import answer, from_us, now_us
from providers.webhook_signatures import is_secret, sign_standard

POLL_SECONDS = 0.05
BATCH_ROWS = 200
SEND_TIMEOUT_SECONDS = 5.0
PAUSE_FIRST_SECONDS = 0.1
PAUSE_MAX_SECONDS = 5.0
EVER_US = 2**62


class CourierMode(StrEnum):
    """How messages travel."""

    PLAIN = "plain"
    """In order, each once, unless the receiver does not answer 2xx."""
    THRICE_SHUFFLED = "thrice_shuffled"
    """What has gathered in `seconds`, each three times, in any order."""
    DELAYED = "delayed"
    """`seconds` after the commit."""
    SILENT = "silent"
    """Not at all, until another mode is set: then all that has gathered."""


class CourierOrder(BaseModel):
    """The body of `POST /admin/webhooks`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: ProviderName
    url: Annotated[str, Field(pattern=r"^https?://", max_length=2048)]
    secret: Annotated[str, Field(max_length=255)]
    events: tuple[str, ...] | None = None
    """Such as `charge.succeeded`; all by default."""
    mode: CourierMode = CourierMode.PLAIN
    seconds: Annotated[float, Field(ge=0, le=3600)] = 0.3

    @field_validator("secret")
    @classmethod
    def _can_sign(cls, secret: str) -> str:
        if not is_secret(secret, standard=True):
            raise ValueError("a secret is whsec_ and base64")
        return secret


@dataclass(frozen=True)
class Letter:
    """One webhook."""

    id: str
    body: bytes


class Courier:
    """Delivers every provider's webhooks. Use `close` at the end."""

    def __init__(self, books: Books, services: Mapping[ProviderName, Service]) -> None:
        """Nobody listens yet."""
        self._books = books
        self._services = services
        self._orders: dict[ProviderName, CourierOrder] = {}
        self._rounds: dict[ProviderName, asyncio.Task[None]] = {}

    async def resume(self) -> None:
        """Go on with what was ordered before the process ended."""
        for text in await self._books.read(lambda pages: pages.courier_orders()):
            self._begin(CourierOrder.model_validate_json(text))

    async def order(self, order: CourierOrder) -> None:
        """Tell `order.url` of everything from now on; a second order changes the first."""
        text = order.model_dump_json()
        await self._books.write(lambda pages: pages.order_courier(order.provider, text))
        self._begin(order)

    async def cancel(self) -> None:
        """Forget every order."""
        await self.close()
        self._orders.clear()
        await self._books.write(lambda pages: pages.cancel_courier())

    async def close(self) -> None:
        """Stop; `resume` goes on."""
        for task in self._rounds.values():
            task.cancel()
        await asyncio.gather(*self._rounds.values(), return_exceptions=True)
        self._rounds.clear()

    def _begin(self, order: CourierOrder) -> None:
        self._orders[order.provider] = order
        running = self._rounds.get(order.provider)
        if running is None or running.done():
            self._rounds[order.provider] = asyncio.create_task(self._go_round(order.provider))

    async def _go_round(self, provider: ProviderName) -> None:
        timeout = aiohttp.ClientTimeout(total=SEND_TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                order = self._orders[provider]
                if order.mode is CourierMode.THRICE_SHUFFLED:
                    await asyncio.sleep(order.seconds)
                sent = order.mode is not CourierMode.SILENT and await self._deliver(session, order)
                if not sent:
                    await asyncio.sleep(POLL_SECONDS)

    async def _deliver(self, session: aiohttp.ClientSession, order: CourierOrder) -> bool:
        """Deliver the next rows' letters; False when there are none. The cursor moves last."""
        service = self._services[order.provider]
        before_us = EVER_US
        if order.mode is CourierMode.DELAYED:
            before_us = now_us() - int(order.seconds * 1_000_000)
        letters, cursor = await self._books.read(
            lambda pages: _letters(pages, service, events=order.events, before_us=before_us)
        )
        if cursor is None:
            return False
        if order.mode is CourierMode.THRICE_SHUFFLED:
            letters = letters * 3
            random.shuffle(letters)
        for letter in letters:
            await self._insist(session, order.provider, letter)
        await self._books.write(lambda pages: pages.move_courier(order.provider, cursor))
        return True

    async def _insist(
        self, session: aiohttp.ClientSession, provider: ProviderName, letter: Letter
    ) -> None:
        """Post a letter until it is taken, to whatever address is ordered by then."""
        pause_seconds = PAUSE_FIRST_SECONDS
        while not await _post(session, self._orders[provider], letter):
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, PAUSE_MAX_SECONDS)


async def _post(session: aiohttp.ClientSession, order: CourierOrder, letter: Letter) -> bool:
    headers = sign_standard(
        letter.body, message_id=letter.id, seconds=int(time.time()), secrets=[order.secret]
    )
    try:
        async with session.post(
            order.url,
            data=letter.body,
            headers={**headers, "content-type": "application/json"},
            allow_redirects=False,
        ) as response:
            return 200 <= response.status < 300
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


def _letters(
    pages: Pages, service: Service, *, events: Sequence[str] | None, before_us: int
) -> tuple[list[Letter], int | None]:
    """The letters of the rows behind the cursor, and where the cursor moves."""
    rows = pages.behind_courier(service.name, before_us=before_us, limit=BATCH_ROWS)
    letters: list[Letter] = []
    for row in rows:
        facts = [(row, 1)]
        target = pages.find(service.name, row.target) if row.target is not None else None
        if target is not None:
            facts.append((target, 1 + pages.undos_up_to(target.id, row.seq)))
        letters += [
            _letter(service, effect, version)
            for effect, version in facts
            if events is None or f"{effect.operation}.{effect.state}" in events
        ]
    return letters, rows[-1].seq if rows else None


def _letter(service: Service, effect: Effect, version: int) -> Letter:
    document: dict[str, Any] = {
        "type": f"{effect.operation}.{effect.state}",
        "timestamp": from_us(effect.created_us),
        "data": {**record_of(service, effect), "version": version},
    }
    return Letter(id=f"evt_{effect.id}_{version}", body=answer(200, document).body)
