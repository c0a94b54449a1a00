"""A consumer of an at-least-once broker that counts each message once, whatever the broker does.

The broker here is a table with `LISTEN`/`NOTIFY`, so the example runs anywhere; the part that
matters is `consume`: the message is taken into Tallystick's inbox, under its business identity, in
the same transaction as what it changes. A redelivery then changes nothing, a late message moves
nothing back, and a crash at any point leaves all of it or none. With Kafka, SQS or RabbitMQ the
same three lines stand between "received" and "acknowledged".

    python examples/broker_consumer.py --database postgresql://… publish shipment-7 1 packed
    python examples/broker_consumer.py --database postgresql://… consume --until-idle-seconds 2

The database is a migrated one of Tallystick (`tallystick migrate`).
"""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from ledger import inbox
from operations.messages import Message, Novelty

CHANNEL = "example_shipments"
LEASE = timedelta(seconds=1)
"""A message that is not acknowledged for so long is delivered again, to anybody."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS example_queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body text NOT NULL,
    visible_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS example_shipments (
    shipment text PRIMARY KEY,
    state text NOT NULL,
    changes integer NOT NULL DEFAULT 1
);
"""
TAKE = """
UPDATE example_queue SET visible_at = now() + $1 WHERE id = (
    SELECT id FROM example_queue WHERE visible_at <= now()
    ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING id, body
"""
PUBLISH = "WITH sent AS (INSERT INTO example_queue (body) VALUES ($1)) SELECT pg_notify($2, '')"
ACKNOWLEDGE = "DELETE FROM example_queue WHERE id = $1"
CHANGE = """
INSERT INTO example_shipments (shipment, state) VALUES ($1, $2)
ON CONFLICT (shipment) DO UPDATE SET state = excluded.state,
    changes = example_shipments.changes + 1
"""

Connection = Any
"""An asyncpg connection, alone or from a pool."""


async def publish(connection: Connection, *, shipment: str, version: int, state: str) -> None:
    """Send one message to the broker."""
    body = json.dumps({"shipment": shipment, "version": version, "state": state})
    await connection.execute(PUBLISH, body, CHANNEL)


async def consume(connection: Connection, body: str) -> Novelty:
    """Take one message, and change what it is about, in one transaction of our own."""
    event = json.loads(body)
    message = Message(
        provider="example.shipments",
        entity=event["shipment"],
        version=str(event["version"]),
        rank=event["version"],
        state=event["state"],
        payload=body,
    )
    async with connection.transaction():
        taken = await inbox.take(connection, message, now=datetime.now(UTC))
        if taken.novelty is Novelty.NEW:
            await connection.execute(CHANGE, message.entity, message.state)
    return taken.novelty


async def work(
    connection: Connection,
    *,
    until_idle_seconds: float,
    handle: Callable[[Connection, str], Awaitable[Novelty]] = consume,
) -> dict[str, int]:
    """Take messages until none has come for a while; returns how many were new, repeated, late.

    A message is acknowledged after its transaction, so a crash between the two delivers it again.
    """
    counts = dict.fromkeys((novelty.value for novelty in Novelty), 0)
    notified = asyncio.Event()

    def hear(*_: object) -> None:
        notified.set()

    await connection.add_listener(CHANNEL, hear)
    idle_since = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - idle_since < until_idle_seconds:
        notified.clear()
        row = await connection.fetchrow(TAKE, LEASE)
        if row is None:
            waiting = asyncio.wait_for(notified.wait(), LEASE.total_seconds() / 4)
            await asyncio.gather(waiting, return_exceptions=True)
            continue
        novelty = await handle(connection, row["body"])
        await connection.execute(ACKNOWLEDGE, row["id"])
        counts[novelty.value] += 1
        idle_since = asyncio.get_running_loop().time()
    return counts


async def main(arguments: argparse.Namespace) -> None:
    """Publish one message, or consume."""
    connection = await asyncpg.connect(arguments.database)
    try:
        await connection.execute(SCHEMA)
        if arguments.command == "publish":
            await publish(
                connection,
                shipment=arguments.shipment,
                version=arguments.version,
                state=arguments.state,
            )
        else:
            counts = await work(connection, until_idle_seconds=arguments.until_idle_seconds)
            print(json.dumps(counts))  # noqa: T201 - what the example is for
    finally:
        await connection.close()


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="An at-least-once consumer.")
    parser.add_argument("--database", required=True, help="postgresql://user:password@host/name")
    commands = parser.add_subparsers(dest="command", required=True)
    publishing = commands.add_parser("publish")
    publishing.add_argument("shipment")
    publishing.add_argument("version", type=int)
    publishing.add_argument("state")
    consuming = commands.add_parser("consume")
    consuming.add_argument("--until-idle-seconds", type=float, default=float("inf"))
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(read_arguments()))
