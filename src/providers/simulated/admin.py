"""The switches of the simulated world.

| request | does |
|---|---|
| `POST /admin/faults` | arms a fault, 201 with its `id`; 422 for one that makes no sense |
| `GET /admin/faults` · `DELETE /admin/faults` | lists, clears (and reopens every closed port) |
| `GET /admin/ledger?provider=&after=&limit=` | every committed effect, hidden ones included |
| `POST /admin/ledger` `{"provider", "records": […]}` | writes records, 201 with their `ids` |
| `DELETE /admin/ledger?provider=` | empties the ledger and the keys, and drops late commits |
| `POST /admin/temperament` `{"provider": "acquirer", "temperament"}` | changes it |
| `POST /admin/webhooks` `{"provider", "url", "secret", "events", "mode", "seconds"}` | sends them |
| `DELETE /admin/webhooks` | sends none any more |
| `GET /admin/health` | 200 once everything listens, with the addresses |
"""

import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictInt, ValidationError

from providers.simulated.books import Books, NewEffect, Pages
from providers.simulated.courier import Courier, CourierOrder
from providers.simulated.desk import Desk, sentence
from providers.simulated.faults import FaultBook, FaultOrder
from providers.simulated.reads import ledger_row
from providers.simulated.vocabulary import FaultMode, ProviderName, Temperament
from providers.simulated.wire import Answer, Door, answer, now_us, refusal, to_us

RECORDS_MAX = 10_000
LEDGER_PAGE_MAX = 10_000_000
"""Without `limit` the ledger is listed whole; a test's ledger is smaller than this."""


class _Order(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SeededRecord(_Order):
    """An effect as it shall stand in the ledger."""

    operation: str
    id: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    reference: Annotated[str, Field(max_length=255)] | None = None
    key: Annotated[str, Field(max_length=255)] | None = None
    amount: StrictInt | None = None
    currency: str | None = None
    state: str = "succeeded"
    target: str | None = None
    created_at: AwareDatetime | None = None
    """Now by default."""
    visible_after_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0.0
    """From now."""


class SeedOrder(_Order):
    """The body of `POST /admin/ledger`."""

    provider: ProviderName
    records: Annotated[tuple[SeededRecord, ...], Field(min_length=1, max_length=RECORDS_MAX)]


class TemperamentOrder(_Order):
    """The body of `POST /admin/temperament`."""

    provider: Literal[ProviderName.ACQUIRER]
    temperament: Temperament


class LedgerQuery(_Order):
    """The query of `GET` and `DELETE /admin/ledger`."""

    provider: ProviderName | None = None
    after: Annotated[int, Field(ge=0)] = 0
    """The `seq` of the last row already seen."""
    limit: Annotated[int, Field(ge=1, le=LEDGER_PAGE_MAX)] = LEDGER_PAGE_MAX


class Admin:
    """The admin interface."""

    def __init__(
        self,
        *,
        books: Books,
        faults: FaultBook,
        desks: Mapping[ProviderName, Desk],
        doors: Mapping[ProviderName, Door],
        courier: Courier,
    ) -> None:
        """Rule over these parts."""
        self._books = books
        self._faults = faults
        self._desks = desks
        self._doors = doors
        self._courier = courier
        self._routes: dict[tuple[str, str], Callable[[web.BaseRequest], Awaitable[Answer]]] = {
            ("POST", "/admin/faults"): self._arm,
            ("GET", "/admin/faults"): self._armed,
            ("DELETE", "/admin/faults"): self._clear,
            ("GET", "/admin/ledger"): self._ledger,
            ("POST", "/admin/ledger"): self._seed,
            ("DELETE", "/admin/ledger"): self._wipe,
            ("POST", "/admin/temperament"): self._temper,
            ("POST", "/admin/webhooks"): self._send_webhooks,
            ("DELETE", "/admin/webhooks"): self._send_no_webhooks,
            ("GET", "/admin/health"): self._health,
        }

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, in JSON."""
        route = self._routes.get((request.method, request.path))
        if route is None:
            known = ", ".join(sorted({path for _, path in self._routes}))
            return refusal(404, "no_such_path", f"there are {known}").as_response()
        try:
            return (await route(request)).as_response()
        except ValidationError as error:
            return refusal(422, "invalid_request", sentence(error)).as_response()
        except web.HTTPRequestEntityTooLarge:
            return refusal(413, "invalid_request", "the body is too large").as_response()

    async def _arm(self, request: web.BaseRequest) -> Answer:
        order = FaultOrder.model_validate_json(await request.read())
        offered = self._desks[order.provider].service.operations
        if order.operation not in offered | {"*"}:
            names = ", ".join(sorted(offered))
            return refusal(422, "invalid_request", f"operation: one of {names}, or *")
        try:
            fault = self._faults.arm(order)
        except OverflowError as error:
            return refusal(409, "too_many_faults", str(error))
        if order.mode is FaultMode.REFUSE_CONNECTION:
            await self._doors[order.provider].refuse(
                seconds=order.seconds, then=lambda: self._faults.drop(fault.id)
            )
        return answer(201, fault.as_document())

    async def _armed(self, _: web.BaseRequest) -> Answer:
        return answer(200, [fault.as_document() for fault in self._faults.armed()])

    async def _clear(self, _: web.BaseRequest) -> Answer:
        self._faults.clear()
        for door in self._doors.values():
            await door.reopen_now()
        return answer(200, [])

    async def _ledger(self, request: web.BaseRequest) -> Answer:
        query = LedgerQuery.model_validate(dict(request.query))
        rows = await self._books.read(
            lambda pages: pages.everything(query.provider, after=query.after, limit=query.limit)
        )
        return answer(200, [ledger_row(effect) for effect in rows])

    async def _wipe(self, request: web.BaseRequest) -> Answer:
        query = LedgerQuery.model_validate(dict(request.query))
        for name, desk in self._desks.items():
            if query.provider in (None, name):
                await desk.drop_late()
        await self._books.write(lambda pages: pages.wipe(query.provider))
        return answer(200, [])

    async def _seed(self, request: web.BaseRequest) -> Answer:
        order = SeedOrder.model_validate_json(await request.read())
        offered = self._desks[order.provider].service.operations - {"look_up", "list"}
        if any(record.operation not in offered for record in order.records):
            names = ", ".join(sorted(offered))
            return refusal(422, "invalid_request", f"operation: one of {names}")
        try:
            return answer(201, {"ids": await self._books.write(lambda pages: _seed(pages, order))})
        except sqlite3.IntegrityError:
            return refusal(409, "id_exists", "an effect with one of these ids exists")

    async def _temper(self, request: web.BaseRequest) -> Answer:
        order = TemperamentOrder.model_validate_json(await request.read())
        self._desks[order.provider].temperament = order.temperament
        return answer(200, order.model_dump(mode="json"))

    async def _send_webhooks(self, request: web.BaseRequest) -> Answer:
        order = CourierOrder.model_validate_json(await request.read())
        await self._courier.order(order)
        return answer(201, order.model_dump(mode="json", exclude={"secret"}))

    async def _send_no_webhooks(self, _: web.BaseRequest) -> Answer:
        await self._courier.cancel()
        return answer(200, [])

    async def _health(self, _: web.BaseRequest) -> Answer:
        return answer(200, {name: door.url for name, door in self._doors.items()})


def _seed(pages: Pages, order: SeedOrder) -> list[str]:
    now = now_us()
    return [pages.insert(_seeded(order.provider, record, now=now)).id for record in order.records]


def _seeded(provider: ProviderName, record: SeededRecord, *, now: int) -> NewEffect:
    fields: dict[str, Any] = record.model_dump(
        include={"operation", "reference", "key", "amount", "currency", "state", "target"}
    )
    return NewEffect(
        id=record.id or f"seed_{secrets.token_hex(10)}",
        provider=provider,
        created_us=to_us(record.created_at) if record.created_at else now,
        visible_us=now + int(record.visible_after_seconds * 1_000_000)
        if record.visible_after_seconds
        else 0,
        **fields,
    )
