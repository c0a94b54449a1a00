"""Serve localstripe on a free port of this machine and print the port. A process of its own.

Its own command listens on every address, needs IPv6, and pickles its state into a shared file after
each change. Its handlers are untouched: they are what we test against.
"""

import asyncio

from aiohttp import web
from localstripe.resources import Store  # pyright: ignore[reportMissingTypeStubs]
from localstripe.server import app  # pyright: ignore[reportMissingTypeStubs]


def _keep_in_memory(self: Store) -> None:
    """Instead of the pickle."""


async def _serve() -> None:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)  # noqa: T201 the parent reads it
    await asyncio.Event().wait()


if __name__ == "__main__":
    Store.dump_to_disk = _keep_in_memory
    asyncio.run(_serve())
