"""The inbox as a library: the shipped example, run for real, with redelivery and disorder."""

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import asyncpg

EXAMPLE = Path(__file__).parents[2] / "examples" / "broker_consumer.py"
STATES = ("packed", "left", "arrived")
DYING = """
import asyncio, os, runpy, sys, asyncpg
example = runpy.run_path(sys.argv[1])
async def take_and_die(connection, body):
    await example["consume"](connection, body)
    os._exit(9)
async def main():
    connection = await asyncpg.connect(sys.argv[2])
    await example["work"](connection, until_idle_seconds=5, handle=take_and_die)
asyncio.run(main())
"""
"""A consumer that dies between its commit and its acknowledgement."""


async def test_consumers_count_each_message_once_whatever_they_and_the_broker_do(
    database_url: str,
) -> None:
    await _example(database_url, "publish", "shipment-0", "1", "packed")
    dying = await _run("-c", DYING, str(EXAMPLE), database_url)
    assert dying == (9, "")
    connection = await asyncpg.connect(database_url)
    messages = [
        (f"shipment-{number}", version, state)
        for number in range(6)
        for version, state in enumerate(STATES, start=1)
    ] * 3
    random.Random(3).shuffle(messages)
    await connection.executemany(
        "INSERT INTO example_queue (body) VALUES ($1)",
        [
            (json.dumps({"shipment": shipment, "version": version, "state": state}),)
            for shipment, version, state in messages
        ],
    )
    outputs = await asyncio.gather(
        *(_example(database_url, "consume", "--until-idle-seconds", "1.3") for _ in range(2))
    )
    counts = [json.loads(output) for output in outputs]
    assert sum(sum(count.values()) for count in counts) == len(messages) + 1
    new, late = (sum(count[name] for count in counts) for name in ("new", "late"))
    assert new + late == 18 - 1  # the one that died had committed its message
    rows: Any = await connection.fetch("SELECT * FROM example_shipments ORDER BY shipment")
    assert [(row["shipment"], row["state"]) for row in rows] == [
        (f"shipment-{number}", "arrived") for number in range(6)
    ]
    assert sum(row["changes"] for row in rows) == new + 1
    assert await connection.fetchval("SELECT count(*) FROM inbox") == 18
    await connection.close()


async def _example(database_url: str, *arguments: str) -> str:
    status, output = await _run(str(EXAMPLE), "--database", database_url, *arguments)
    assert status == 0
    return output


async def _run(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(40):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
