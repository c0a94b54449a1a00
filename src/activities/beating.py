"""Activities that say that they are alive while they work, so that a dead worker is noticed in
seconds and not when the time for the work is over."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from temporalio import activity

P = ParamSpec("P")
T = TypeVar("T")

BEAT_SECONDS = 1.0
"""Several beats within the timeout that they are for: a late one is no death."""


def beats(work: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Beat from the beginning of `work` to its end, where Temporal listens: a local activity dies
    with its workflow task."""

    @functools.wraps(work)
    async def beating(*args: P.args, **kwargs: P.kwargs) -> T:
        if activity.info().heartbeat_timeout is None:
            return await work(*args, **kwargs)
        beat = asyncio.create_task(_beat())
        try:
            return await work(*args, **kwargs)
        finally:
            beat.cancel()

    return beating


async def _beat() -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        activity.heartbeat()
