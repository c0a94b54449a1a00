"""Many operations at once, written straight into the ledger and into a provider's books."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from operations.keys import Purpose, derived_key, workflow_id

_CLAIMS = """
INSERT INTO claims (tenant, operation, key, fingerprint, request, profiles, state, outcome,
    receipt_status, receipt_headers, receipt_body, created_at, updated_at, expires_at)
SELECT $1, 'payments.charge', given.key, '\\x01', '{}', '{}', 'done', given.outcome,
    CASE WHEN given.outcome = 'succeeded' THEN 201 ELSE 424 END, '[]', '', given.at, given.at,
    given.at + interval '30 days'
FROM unnest($2::text[], $3::text[], $4::timestamptz[]) AS given (key, outcome, at)
RETURNING id, key"""
_EFFECTS = """
INSERT INTO effects (claim_id, step, purpose, ordinal, tenant, provider, account, region,
    guarantee, action, key, state, request, amount_minor, currency, provider_reference, sends,
    sent_at, last_sent_at, tombstoned_at, created_at, updated_at)
SELECT given.claim_id, 'charge', 'action', 0, $1, $2, $3, $4, 'keyed', 'charge', given.key,
    given.state, given.request::jsonb, given.amount_minor, 'EUR', given.provider_reference, 1,
    given.at, given.at, CASE WHEN given.tombstone THEN given.at END, given.at, given.at
FROM unnest($5::bigint[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::text[],
    $11::timestamptz[], $12::bool[])
    AS given (claim_id, key, state, request, amount_minor, provider_reference, at, tombstone)"""


@dataclass(frozen=True, slots=True)
class Charged:
    """One charge as both halves have it."""

    name: str
    key: str
    """Our reference."""
    id: str
    """The provider's identifier."""
    amount: int
    at: datetime
    state: str = "confirmed"
    outcome: str = "succeeded"
    tombstone: bool = False

    def record(self, **changes: Any) -> dict[str, Any]:
        """The provider's record, for `World.seed`."""
        return {
            "id": self.id,
            "operation": "charge",
            "reference": self.key,
            "key": self.key,
            "amount": self.amount,
            "currency": "EUR",
            "state": "succeeded",
            "created_at": self.at.isoformat(),
            **changes,
        }


@dataclass(slots=True)
class Books:
    """Writes charges of one tenant into the ledger of a database."""

    database_url: str
    tenant: str
    provider: str = "payments"
    account: str = "default"
    region: str = "default"
    written: list[Charged] = field(default_factory=list[Charged])

    def charges(
        self, number: int, *, since: datetime, prefix: str = "c", **changes: Any
    ) -> list[Charged]:
        """`number` charges, a second apart from `since` on, of amounts that repeat."""
        made: list[Charged] = []
        for place in range(number):
            name = f"{prefix}-{place}"
            run = workflow_id(operation="payments.charge", tenant=self.tenant, key=name)
            key = derived_key(workflow_id=run, step="charge", ordinal=0, purpose=Purpose.ACTION)
            made.append(
                Charged(
                    name=name,
                    key=key,
                    id=f"ch_{key[3:23]}",
                    amount=1000 + place % 7 * 100,
                    at=since + timedelta(seconds=place),
                    **changes,
                )
            )
        return made

    async def write(self, charges: Sequence[Charged]) -> None:
        """Write done operations and their effects."""
        connection = await asyncpg.connect(self.database_url)
        try:
            async with connection.transaction():
                rows = await connection.fetch(
                    _CLAIMS,
                    self.tenant,
                    [charge.name for charge in charges],
                    [charge.outcome for charge in charges],
                    [charge.at for charge in charges],
                )
                ids = {row["key"]: row["id"] for row in rows}
                await connection.execute(
                    _EFFECTS,
                    self.tenant,
                    self.provider,
                    self.account,
                    self.region,
                    [ids[charge.name] for charge in charges],
                    [charge.key for charge in charges],
                    [charge.state for charge in charges],
                    [_request(charge) for charge in charges],
                    [charge.amount for charge in charges],
                    [charge.id if charge.state == "confirmed" else None for charge in charges],
                    [charge.at for charge in charges],
                    [charge.tombstone for charge in charges],
                )
        finally:
            await connection.close()
        self.written += charges


def _request(charge: Charged) -> str:
    return json.dumps(
        {
            "reference": charge.key,
            "amount_minor": charge.amount,
            "currency": "EUR",
            "card": "tok_visa",
        }
    )
