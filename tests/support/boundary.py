"""Making operations be in a state without a worker, and speaking HTTP by the byte."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from ledger.claims import Claim, Intent
from operations.contracts import Completion, EffectRecord, Progress, StoredReceipt
from operations.fingerprint import canonical_bytes, fingerprint
from operations.guarantees import Guarantee
from operations.states import ClaimState, EffectState, Outcome
from runtime.wiring import now
from support.service import CHARGE, RunningService

CHARGE_PATH = "/v1/operations/payments.charge"


async def claimed(
    service: RunningService,
    key: str,
    *,
    operation: str = "payments.charge",
    body: Mapping[str, Any] = CHARGE,
    tenant: str | None = None,
) -> Claim:
    """A claim as a submission would make it, but nobody starts its run."""
    canonical = canonical_bytes(json.loads(json.dumps(body)))
    intent = Intent(
        tenant=tenant or service.tenant,
        operation=operation,
        key=key,
        fingerprint=fingerprint(operation=operation, canonical=canonical),
        request=canonical.decode(),
        profiles="{}",
    )
    return await service.ledger.claims.claim(intent, now=now())


async def progressed(
    service: RunningService, claim: Claim, *, state: ClaimState = ClaimState.ACCEPTED
) -> None:
    """The claim's step is sent, and the claim is in `state`; waiting requests are told."""
    effect = EffectRecord(
        step="charge",
        provider="payments",
        account="main",
        region="eu",
        guarantee=Guarantee.KEYED,
        action="charge",
        key=f"derived-{claim.id}",
        state=EffectState.SENT,
        sends=1,
    )
    await service.ledger.progress.record(
        Progress(claim_id=claim.id, tenant=claim.tenant, state=state, effects=(effect,)), now=now()
    )
    service.ledger.announcer.announce(claim.id)


async def completed(
    service: RunningService,
    claim: Claim,
    *,
    status: int = 201,
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),),
    body: bytes = b'{"charge_id":"ch_1"}',
    outcome: Outcome = Outcome.SUCCEEDED,
) -> None:
    """The claim is done, with this receipt; waiting requests are told."""
    await service.ledger.progress.complete(
        Completion(
            claim_id=claim.id,
            tenant=claim.tenant,
            operation=claim.operation,
            workflow_id=service.workflow_id(claim.operation, claim.key),
            outcome=outcome,
            receipt=StoredReceipt(status=status, headers=headers, body=body),
            retention_days=30,
        ),
        now=now(),
    )
    service.ledger.announcer.announce(claim.id)


async def run_sql(service: RunningService, statement: str, *arguments: object) -> Any:
    """One statement on a connection of its own; its first value."""
    connection = await asyncpg.connect(service.settings.database_url.get_secret_value())
    try:
        return await connection.fetchval(statement, *arguments)
    finally:
        await connection.close()


async def expire(service: RunningService, claim: Claim) -> None:
    """Turn a done claim into a tombstone, as housekeeping does when its time has come."""
    await run_sql(
        service,
        "UPDATE claims SET state = 'expired', outcome = NULL, request = NULL, profiles = NULL,"
        " receipt_status = NULL, receipt_headers = NULL, receipt_body = NULL,"
        " revision = revision + 1 WHERE id = $1 RETURNING id",
        claim.id,
    )


class RawConnection:
    """One TCP connection to the API."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use `raw_connection`."""
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and header fields of the next answer."""
        raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), timeout=15)
        lines = raw.decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split(" ")[1]), fields

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next whole answer, which must announce its length."""
        status, fields = await self.head()
        length = int(fields.get("content-length", "0"))
        return status, fields, await asyncio.wait_for(self.reader.readexactly(length), timeout=15)

    async def ended(self, *, seconds: float = 15) -> bool:
        """Whether the server closes within `seconds`."""
        try:
            return await asyncio.wait_for(self.reader.read(), timeout=seconds) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


@asynccontextmanager
async def raw_connection(url: str) -> AsyncGenerator[RawConnection]:
    """A connection, closed at the end however the server left it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()


def raw_request(
    method: str, path: str, *, token: str, fields: tuple[tuple[str, str], ...] = ()
) -> bytes:
    """A request's head by the byte."""
    lines = [f"{method} {path} HTTP/1.1", "host: api.example", f"authorization: Bearer {token}"]
    lines += [f"{name}: {value}" for name, value in fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
