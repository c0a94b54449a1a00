"""The worker of the bare saga, with default options."""

import asyncio
import os

from charging import payments_client
from temporal_saga import TASK_QUEUE, Payments, ThreeChargesSaga
from temporalio.client import Client
from temporalio.worker import Worker


async def main() -> None:
    """Work until killed."""
    client = await Client.connect(os.environ["BENCH_TEMPORAL_ADDRESS"])
    async with payments_client() as payments:
        activities = Payments(payments)
        await Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[ThreeChargesSaga],
            activities=[activities.charge, activities.refund],
        ).run()


if __name__ == "__main__":
    asyncio.run(main())
