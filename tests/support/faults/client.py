"""A client as they are in the world: it gives up waiting, never knows why, and tries again with the
same key until it has an answer. Everything it sees is logged."""

import asyncio
import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from support.checker.evidence import Attempt

ATTEMPT_SECONDS = 6.0
WAIT_SECONDS = 4
PAUSE_SECONDS = (0.2, 0.4, 0.8, 1.5)
OTHER = "other"


@dataclass(frozen=True)
class Job:
    """One operation that is to be done."""

    operation: str
    key: str
    body: dict[str, Any]
    tenant: str = "acme"
    asks_async: bool = False
    """Begin with `respond-async`, and try other content under the same key while it runs."""
    copies: int = 1
    """How many clients submit it at once."""
    then: tuple["Job", ...] = ()
    """Submitted after it has succeeded; `{charge_id}` in them is the answer's."""
    cancels: bool = False
    """Asked to cancel as soon as a step's outcome is unknown."""

    @property
    def content(self) -> str:
        """Names the body."""
        return hashlib.sha256(json.dumps(self.body, sort_keys=True).encode()).hexdigest()[:16]


@dataclass
class Client:
    """Submits jobs until each has its receipt or waits for a person."""

    url: str
    tokens: dict[str, str]
    log: Path
    deadline: float = 0.0
    """On the loop's clock."""
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    unsettled: list[str] = field(default_factory=list[str])
    _http: httpx.AsyncClient = field(
        default_factory=lambda: httpx.AsyncClient(timeout=ATTEMPT_SECONDS, trust_env=False)
    )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, jobs: list[Job], *, seconds: float) -> None:
        """Submit all of `jobs` side by side and see each of them through, within `seconds`."""
        self.deadline = asyncio.get_running_loop().time() + seconds
        await asyncio.gather(*(self._see_through(job) for job in jobs))

    async def _see_through(self, job: Job) -> None:
        copies = await asyncio.gather(*(self._persist(job) for _ in range(job.copies)))
        answer = next((answer for answer in copies if answer is not None), None)
        if answer is not None and answer.status == 201:
            again = await self._submit(job)
            charge_id = json.loads(answer.answer).get("charge_id", "")
            for later in job.then:
                body = json.loads(json.dumps(later.body).replace("{charge_id}", charge_id))
                following = Job(later.operation, later.key, body, tenant=later.tenant)
                await self._see_through(following)
            del again

    async def _persist(self, job: Job) -> Attempt | None:
        """Try until there is a receipt, or a person has to decide."""
        tries, cancelled = 0, False
        while asyncio.get_running_loop().time() < self.deadline:
            attempt = await self._submit(job, asks_async=job.asks_async and tries == 0)
            refused = attempt.status in {400, 401, 403, 410, 422}
            reused = attempt.status == 409 and attempt.state is not None
            if attempt.is_receipt or refused or reused or attempt.state == "parked":
                return attempt
            if attempt.status == 202 and job.asks_async and tries == 0:
                await self._try_other_content(job)
            if attempt.status == 202 and job.cancels and not cancelled:
                cancelled = await self._cancel_when_unknown(job)
            await asyncio.sleep(PAUSE_SECONDS[min(tries, len(PAUSE_SECONDS) - 1)])
            tries += 1
        self.unsettled.append(f"{job.operation}/{job.tenant}/{job.key}")
        return None

    async def _try_other_content(self, job: Job) -> None:
        body = {**job.body, "amount": {"minor": 99, "currency": "EUR"}}
        await self._submit(Job(job.operation, job.key, body, tenant=job.tenant))

    async def _cancel_when_unknown(self, job: Job) -> bool:
        """Cancel once some step is unknown; False when it was not the time."""
        address = f"{self.url}/v1/operations/{job.operation}/{job.key}"
        bearer = {"Authorization": f"Bearer {self.tokens['operator']}"}
        for _ in range(40):
            try:
                seen = await self._http.get(address, headers=bearer)
                steps = seen.json().get("steps", [])
                if any(step["state"] == "unknown" for step in steps):
                    asked = await self._http.post(
                        f"{address}/cancel",
                        headers={**bearer, "If-Match": seen.headers["etag"]},
                        json={},
                    )
                    if asked.status_code < 300:
                        return True
            except (httpx.HTTPError, ValueError, KeyError):
                pass
            await asyncio.sleep(0.1)
        return False

    async def _submit(self, job: Job, *, asks_async: bool = False) -> Attempt:
        prefer = "respond-async" if asks_async else f"wait={WAIT_SECONDS}"
        began = time.time()
        try:
            answer = await self._http.post(
                f"{self.url}/v1/operations/{job.operation}",
                json=job.body,
                headers={
                    "Authorization": f"Bearer {self.tokens[job.tenant]}",
                    "Idempotency-Key": job.key,
                    "Prefer": prefer,
                },
            )
        except httpx.HTTPError:
            return self._note(job, began, None)
        return self._note(job, began, answer)

    def _note(self, job: Job, began: float, answer: httpx.Response | None) -> Attempt:
        attempt = Attempt(
            tenant=job.tenant,
            operation=job.operation,
            key=job.key,
            content=job.content,
            sent_at=began,
            ended_at=time.time(),
            status=None if answer is None else answer.status_code,
            state=None if answer is None else answer.headers.get("operation-state"),
            replayed=answer is not None and "idempotent-replayed" in answer.headers,
            answer="" if answer is None else answer.text,
        )
        self.attempts.append(attempt)
        with self.log.open("a") as log:
            log.write(attempt.model_dump_json() + "\n")
        return attempt
