"""A worker whose providers answer, or do not, within a second."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from runtime.settings import Settings
from support.saga_bench import SagaBench, saga_bench

FIGURES: dict[str, Any] = {
    "send_timeout_seconds": 1.0,
    "lookup_horizon_seconds": 1.5,
    "lookup_interval_seconds": 0.2,
}


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """Providers answer, or do not, within a second."""
    short = dict.fromkeys(("payments", "warehouse", "carrier", "mail"), FIGURES)
    return Settings.model_validate(
        {**settings.model_dump(), "worker_drain_seconds": 1.0, "provider_profiles": short}
    )


@pytest.fixture
async def bench(quick: Settings, tenant: str) -> AsyncGenerator[SagaBench]:
    """A worker, with such providers."""
    async with saga_bench(quick, tenant=tenant) as running:
        yield running
