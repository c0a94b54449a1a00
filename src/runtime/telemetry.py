"""Logs: one line an event, JSON for machines or colours for people. Never a key or a body."""

import logging
import sys
from typing import Literal

import structlog

LIBRARIES = ("temporalio", "asyncio", "httpx", "httpcore", "aiohttp", "asyncpg", "uvicorn")
"""These say at `debug` and `info` what they send and receive, bodies too: never below `warning`."""


def configure_logs(*, style: Literal["json", "console"], level: str) -> None:
    """Send structlog and the standard library's loggers to standard error, alike."""
    renderer = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
