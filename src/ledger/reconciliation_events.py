"""`finding.opened`: tenants' endpoints are told of findings, in the transaction that opens them.

A finding concerns the tenant of its operation. One about a record that no operation is known to
mean has no tenant, and is shown to operators only: a guess must not tell a tenant of another's.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from asyncpg import Record

from ledger import outbox
from ledger.database import Connection
from operations.messages import EventType
from operations.reconciliation import finding_path

_CONCERNED = """
SELECT f.id, f.provider, f.kind, f.amount_minor, f.currency, f.revision,
    c.tenant, c.operation, c.key
FROM reconciliation_findings AS f JOIN claims AS c ON c.id = f.claim_id
WHERE f.id = ANY($1::bigint[]) ORDER BY f.id"""


async def tell_opened(connection: Connection, finding_ids: Sequence[int], *, now: datetime) -> None:
    """Tell the tenants concerned of new findings, inside the caller's transaction."""
    for finding in await connection.fetch(_CONCERNED, finding_ids):
        await outbox.add(
            connection,
            tenant=finding["tenant"],
            subject=f"finding:{finding['id']}",
            sequence=finding["revision"],
            kind=EventType.FINDING_OPENED,
            data=_told(finding),
            now=now,
        )


def _told(finding: Record) -> dict[str, Any]:
    """The event's `data`. Evidence is left out: operators read it where the link points."""
    minor = finding["amount_minor"]
    return {
        "id": finding["id"],
        "kind": finding["kind"],
        "provider": finding["provider"],
        "operation": finding["operation"],
        "key": finding["key"],
        "amount": None if minor is None else {"minor": minor, "currency": finding["currency"]},
        "links": {"self": finding_path(finding["id"])},
    }
