"""What one operation asks of the servers: transactions, log, history. Counts, so the same on every
machine and under any load."""

import asyncio
from dataclasses import dataclass

import asyncpg
from lab import Lab, Subject
from measure import measure
from side_by_side import submissions
from temporalio.client import Client

from operations.keys import workflow_id

OPERATIONS = 100
STATISTICS_SECONDS = 2.5
"""PostgreSQL's sessions tell their counts about once a second, and when they are idle."""

_COUNTS = """
SELECT xact_commit AS commits, tup_inserted AS inserted, tup_updated AS updated,
       pg_current_wal_lsn() - '0/0'::pg_lsn AS wal
FROM pg_stat_database WHERE datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class Costs:
    """Per operation of three steps. Commits include those of the relay and of key renewal."""

    commits: float
    rows_inserted: float
    rows_updated: float
    wal_kib: float
    history_events: int
    history_kib: float


async def costs(lab: Lab, subject: Subject) -> Costs:
    """Count over `OPERATIONS` operations."""
    plan = submissions(subject, concurrency=8, seconds=120, count_max=OPERATIONS)
    connection = await asyncpg.connect(subject.database_url)
    try:
        await asyncio.sleep(STATISTICS_SECONDS)
        before = await connection.fetchrow(_COUNTS)
        done = await measure(plan)
        await asyncio.sleep(STATISTICS_SECONDS)
        after = await connection.fetchrow(_COUNTS)
    finally:
        await connection.close()
    assert before is not None
    assert after is not None
    each = {name: float(after[name] - before[name]) / done.operations for name, _ in before.items()}
    client = await Client.connect(lab.temporal.address)
    run = workflow_id(
        operation="bench.three_charges", tenant="bench", key=f"{plan.prefix}-{OPERATIONS // 2}"
    )
    described = await client.get_workflow_handle(run).describe()
    info = described.raw_description.workflow_execution_info
    return Costs(
        commits=each["commits"],
        rows_inserted=each["inserted"],
        rows_updated=each["updated"],
        wal_kib=each["wal"] / 1024,
        history_events=info.history_length,
        history_kib=info.history_size_bytes / 1024,
    )
