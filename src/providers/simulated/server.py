"""The simulated world as one process: five providers and their admin interface."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from providers.simulated import acquirer, carrier, mail, payments, warehouse
from providers.simulated.admin import Admin
from providers.simulated.books import Books
from providers.simulated.courier import Courier
from providers.simulated.desk import Desk
from providers.simulated.faults import FaultBook
from providers.simulated.service import Service
from providers.simulated.vocabulary import ProviderName, Temperament, WorldConfig
from providers.simulated.wire import ADMIN_BODY_MAX_BYTES, Door

SERVICES: tuple[Service, ...] = (
    payments.SERVICE,
    acquirer.SERVICE,
    warehouse.SERVICE,
    carrier.SERVICE,
    mail.SERVICE,
)


async def serve(config: WorldConfig, *, stop: asyncio.Event | None = None) -> None:
    """Run the world until `stop` is set or the task is cancelled.

    Raises OSError when a port is taken, sqlite3.Error when the ledger file is no ledger.
    """
    async with open_world(config):
        await (stop or asyncio.Event()).wait()


async def serve_until_signalled(config: WorldConfig) -> None:
    """Run the world until SIGTERM or SIGINT, then stop in order. For a process of its own."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(config, stop=stop)


@asynccontextmanager
async def open_world(config: WorldConfig) -> AsyncGenerator[Mapping[str, str]]:
    """Everything listening, in this process; yields the addresses by name, `admin` included."""
    async with AsyncExitStack() as stack:
        books = await stack.enter_async_context(Books(config.ledger))
        faults = FaultBook()
        desks: dict[ProviderName, Desk] = {}
        doors: dict[ProviderName, Door] = {}
        for service in SERVICES:
            desk = _desk(service, config, books=books, faults=faults)
            stack.push_async_callback(desk.drop_late)
            port = config.port_of(service.name)
            desks[service.name] = desk
            doors[service.name] = Door(desk.respond, host=config.host, port=port)
        courier = Courier(books, {service.name: service for service in SERVICES})
        stack.push_async_callback(courier.close)
        admin = Door(
            Admin(books=books, faults=faults, desks=desks, doors=doors, courier=courier).respond,
            host=config.host,
            port=config.admin_port,
            body_max_bytes=ADMIN_BODY_MAX_BYTES,
        )
        # The admin port opens last, so that who reaches it finds all the others.
        stack.push_async_callback(_close, *doors.values(), admin)
        for door in (*doors.values(), admin):
            await door.open()
        await courier.resume()
        addresses = {"admin": admin.url, **{str(name): door.url for name, door in doors.items()}}
        if config.announce is not None:
            _announce(config.announce, addresses)
        yield addresses


def _desk(service: Service, config: WorldConfig, *, books: Books, faults: FaultBook) -> Desk:
    is_acquirer = service.name is ProviderName.ACQUIRER
    return Desk(
        service,
        books=books,
        faults=faults,
        key_lifetime_seconds=config.key_lifetime_seconds,
        bearer_token=config.bearer_token,
        temperament=config.temperament if is_acquirer else Temperament.CONSISTENT,
    )


async def _close(*doors: Door) -> None:
    await asyncio.gather(*(door.close() for door in doors))


def _announce(path: Path, addresses: Mapping[str, str]) -> None:
    """Write the file in one step: who waits for it never reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(addresses), encoding="utf-8")
    draft.replace(path)
