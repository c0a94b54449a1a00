"""The SDK's walks over payloads, left out where they find nothing to do.

For every activation of a workflow, the SDK walks six times through all payloads of its messages:
for an external storage, for a codec, and for the codec of what refers to the storage, once on the
way in and once on the way out. With neither a storage nor a codec, each walk changes nothing, and
together they take a sixth of a worker's processor time. `docs/decisions/009` says why this is worth
reaching into the SDK.
"""

import inspect
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import structlog
from temporalio.bridge import worker as bridge
from temporalio.converter import DataConverter
from temporalio.converter._extstore import (  # pyright: ignore[reportPrivateUsage]
    StorageOperationMetrics,
)

Walk = Callable[..., Awaitable[StorageOperationMetrics]]

KNOWN_SDK = "1.35."
"""Another release may do more on these walks: read it, then say so here."""

_WALKS = {
    "decode_activation": (
        "activation",
        "data_converter",
        "decode_headers",
        "storage_concurrency_limit",
    ),
    "encode_completion": (
        "completion",
        "data_converter",
        "encode_headers",
        "storage_concurrency_limit",
    ),
}
"""The SDK's functions, by the parameters that we know them by."""

_log = structlog.get_logger(__name__)


def leave_out_idle_walks() -> bool:
    """From now on, walk only for a codec or a storage. Safe to repeat.

    False, and nothing is changed, when this SDK's functions are not those we know.
    """
    if not version("temporalio").startswith(KNOWN_SDK):
        _log.warning("payload_walks.kept", sdk=version("temporalio"))
        return False
    for name, parameters in _WALKS.items():
        walk = getattr(bridge, name, None)
        if walk is None or tuple(inspect.signature(walk).parameters) != parameters:
            _log.warning("payload_walks.kept", function=name)
            return False
    for name in _WALKS:
        walk = getattr(bridge, name)
        if not hasattr(walk, "__wrapped__"):
            setattr(bridge, name, _unless_idle(walk))
    return True


def _unless_idle(walk: Walk) -> Walk:
    async def walk_unless_idle(
        message: Any, data_converter: DataConverter, *others: Any, **options: Any
    ) -> StorageOperationMetrics:
        if data_converter.payload_codec is None and data_converter.external_storage is None:
            return StorageOperationMetrics()
        return await walk(message, data_converter, *others, **options)

    # Also tells the parameters, to whoever looks for them again.
    walk_unless_idle.__wrapped__ = walk  # pyright: ignore[reportFunctionMemberAccess]
    return walk_unless_idle
