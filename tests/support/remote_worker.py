"""Another team's worker: a program of its own that imports nothing of ours, only Temporal's SDK.

    python remote_worker.py ADDRESS TASK_QUEUE BOOKS

It keeps its effects in BOOKS, one JSON object a line, and follows `docs/remote-steps.md`.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

BOOKS = Path(sys.argv[3]) if len(sys.argv) > 3 else Path()


def _rows() -> list[dict[str, Any]]:
    lines = BOOKS.read_text().splitlines() if BOOKS.exists() else []
    return [json.loads(line) for line in lines]


@activity.defn(name="parcels.dispatch")
async def dispatch(call: dict[str, Any]) -> dict[str, Any]:
    """Dispatch a parcel, or recall one; the parcel's name says what goes wrong."""
    effect = call["effect"]
    request = json.loads(effect["frozen_body"])
    parcel = request.get("parcel", "")
    if parcel == "forbidden":
        return {"kind": "declined", "code": "forbidden_goods", "reason": "not on our vans"}
    number = f"P{len(_rows()) + 1}"
    row = {"id": number, "action": effect["action"], "key": effect["key"], "request": request}
    with BOOKS.open("a") as books:
        books.write(json.dumps(row) + "\n")
    if parcel == "lost-reply":
        raise RuntimeError("the van's radio is broken")
    if parcel == "silence":
        await asyncio.sleep(60)
    if parcel == "nonsense":
        return {"kind": "perhaps"}
    return {"kind": "confirmed", "provider_reference": number}


@activity.defn(name="parcels.dispatch.look_up")
async def look_up(call: dict[str, Any]) -> dict[str, Any]:
    """Look a parcel up by our reference."""
    found = [row["id"] for row in _rows() if row["key"] == call["effect"]["key"]]
    if not found:
        return {"kind": "not_found"}
    return {"kind": "confirmed", "provider_reference": found[0], "duplicates": found[1:]}


async def main() -> None:
    """Work until told to stop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = await Client.connect(sys.argv[1])
    async with Worker(client, task_queue=sys.argv[2], activities=[dispatch, look_up]):
        print("ready", flush=True)  # noqa: T201 - its parent waits for this
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
