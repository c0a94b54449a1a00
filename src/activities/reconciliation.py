"""`reconciliation.*`: the pages of a run, each a bounded turn that can be repeated.

A turn reads where the run stands from its row and moves it on in the transaction that keeps what
the page has found, so a worker that dies repeats at most one page, with the same result.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import structlog
from temporalio import activity

from activities.beating import beats
from activities.reconciliation_metrics import tell_end
from activities.remedies import Remedies, undoable_actions
from ledger.ledger import Ledger
from ledger.reconciliation_pages import OpenOperation, PageResult
from ledger.reconciliation_runs import MIN_AGE, RUN_SECONDS_MAX, RunRequest, RunRow
from operations.declaration import Operation, SagaOperation
from operations.errors import Unavailable
from operations.halves import Finding, OurEffect, TheirRecord
from operations.keys import Purpose, derived_key, workflow_id
from operations.matching import match, propose, unclaimed
from operations.reconciliation import (
    ACT_ON_FINDINGS,
    CLOSE_RUN,
    FETCH_RECORDS,
    MATCH_RECORDS,
    OPEN_RUN,
    SWEEP_EFFECTS,
    FindingKind,
    Opened,
    ReconciliationEnd,
    RunClosing,
    RunOpening,
    RunState,
    Trigger,
    Turn,
)
from providers.contract import Provider, ProviderRecord

PAGES_PER_TURN = 20
"""Twenty thousand records: a turn takes seconds, so a stop is never far away."""

LIST_LIMIT = 1_000

MARGIN = timedelta(minutes=5)
"""Records beside the window are read too: what explains a record may be a little younger."""

SWEEP_ROWS = 200
VERIFY_MAX = 200
"""Missing records are looked up one by one before we say so; a provider that lost more than this
has lost its books, and asking it for each would take hours."""

VERIFY_AT_ONCE = 8
PAUSE_SECONDS = 5.0
PAUSE_SECONDS_MAX = 60.0
EVERY_SHARE = 0.9
"""A scheduled run may take this share of its interval: it ends before the next one is due."""

_SCHEDULED = "schedule"
_log = structlog.get_logger(__name__)


class RunUnknown(LookupError):
    """The row of this run is gone: the database was restored from before it."""


@dataclass(frozen=True, slots=True)
class Meant:
    """The step of an open operation that a record belongs to, by our reference."""

    operation: OpenOperation
    step: str

    def as_evidence(self) -> dict[str, str]:
        """What a person needs to find it."""
        return {
            "tenant": self.operation.tenant,
            "operation": self.operation.operation,
            "key": self.operation.key,
            "step": self.step,
            "operation_state": self.operation.state,
        }


@dataclass(frozen=True, slots=True)
class ReconciliationActivities:
    """The activities of reconciliation."""

    ledger: Ledger
    providers: Mapping[str, Provider]
    operations: Mapping[str, Operation]
    remedies: Remedies

    def all(self) -> tuple[Callable[..., Awaitable[object]], ...]:
        """Every activity, for a worker."""
        return (self.open, self.fetch, self.match, self.sweep, self.act, self.close)

    @activity.defn(name=OPEN_RUN)
    @beats
    async def open(self, opening: RunOpening) -> Opened:
        """Make the row of a scheduled run, or take up the row that a person's request made."""
        runs = self.ledger.reconciliation.runs
        seconds = RUN_SECONDS_MAX
        if opening.every_seconds is not None:
            seconds = opening.every_seconds * EVERY_SHARE
        now = _now()
        for lost in await runs.give_up_lost(now=now):
            _log.warning("reconciliation.run_lost", run=lost.id, provider=lost.provider)
        run_id = opening.run_id
        if run_id is None:
            run_id = (await runs.request(_scheduled(opening, seconds), now=now)).id
        run = await runs.begin(run_id, seconds_max=seconds, now=now)
        if run is None:
            raise RunUnknown(f"There is no open run {run_id}")
        return Opened(run_id=run_id)

    @activity.defn(name=FETCH_RECORDS)
    @beats
    async def fetch(self, run_id: int) -> Turn:
        """Stage pages of the provider's list."""
        for _ in range(PAGES_PER_TURN):
            run = await self._run(run_id)
            if run.fetched or run.is_over:
                return Turn(finished=True)
            try:
                page = await self.providers[run.provider].list_records(
                    since=run.since - MARGIN,
                    until=min(run.until + MARGIN, run.created_at),
                    cursor=run.fetch_cursor,
                    limit=LIST_LIMIT,
                )
            except Unavailable as error:
                return _later(error)
            await self.ledger.reconciliation.pages.stage(
                run, [_theirs(record) for record in page.records], next_cursor=page.next_cursor
            )
        return Turn(finished=False)

    @activity.defn(name=MATCH_RECORDS)
    @beats
    async def match(self, run_id: int) -> Turn:
        """Join pages of staged records with our effects."""
        run = await self._run(run_id)
        # Before the effects are read: an operation that ends in between has its rows by then.
        meant = await self._meant_by_open_operations(run)
        undoable = undoable_actions(self.operations, provider=run.provider)
        for _ in range(PAGES_PER_TURN):
            page = await self.ledger.reconciliation.pages.groups(
                run,
                cursor=run.match_cursor,
                account=self._account(run),
                undoable=undoable,
            )
            if page is None or run.is_over:
                return Turn(finished=True)
            found = [f for f in match(page.view) if not _is_under_way(f, meant, run=run)]
            kept = [finding for finding in found if finding.kind is not FindingKind.MATCHED]
            kept = await self._explained(run, kept, meant)
            counts = Counter(finding.kind.value for finding in found)
            counts["records"] = sum(record.judged for record in page.view.records)
            result = PageResult(findings=kept, counts=counts, match_cursor=page.cursor)
            await self.ledger.reconciliation.pages.write(run, result, now=_now())
            run = await self._run(run_id)
        return Turn(finished=False)

    @activity.defn(name=SWEEP_EFFECTS)
    @beats
    async def sweep(self, run_id: int) -> Turn:
        """Find effects of ours that no record belongs to, and look each up before saying so."""
        pages = self.ledger.reconciliation.pages
        for _ in range(PAGES_PER_TURN):
            run = await self._run(run_id)
            missing = await pages.missing(
                run, account=self._account(run), behind=_behind(run), limit=SWEEP_ROWS
            )
            if not missing or run.is_over:
                return Turn(finished=True)
            try:
                absent, asked = await self._look_up(run, missing)
            except Unavailable as error:
                return _later(error)
            last = missing[-1]
            result = PageResult(
                findings=unclaimed(absent),
                counts={FindingKind.LOCAL_ONLY.value: len(absent), "looked_up": asked},
                sweep_cursor=f"{last.at.isoformat()} {last.key}",
            )
            await pages.write(run, result, now=_now())
        return Turn(finished=False)

    @activity.defn(name=ACT_ON_FINDINGS)
    @beats
    async def act(self, run_id: int) -> Turn:
        """Carry out planned remedies. A dry run has none."""
        run = await self._run(run_id)
        if run.dry_run or run.is_over:
            return Turn(finished=True)
        return await self.remedies.carry_out(run, self.providers[run.provider])

    @activity.defn(name=CLOSE_RUN)
    @beats
    async def close(self, closing: RunClosing) -> ReconciliationEnd:
        """End the run: sums, what is gone, the watermark; and raise the alarm if there is one."""
        run = await self._run(closing.run_id)
        if closing.failure is not None:
            await self.ledger.reconciliation.runs.fail(run.id, failure=closing.failure, now=_now())
        elif not run.is_over:
            ending = await self.ledger.reconciliation.findings.end_run(
                run, account=self._account(run), now=_now()
            )
            if ending is not None:
                tell_end(run, ending)
        run = await self._run(closing.run_id)
        return ReconciliationEnd(
            run_id=run.id,
            state=run.state,
            counts=run.counts,
            sums=run.sums,
            persisting=run.counts.get("persisting", 0),
            window_until=run.until if run.state is RunState.DONE else None,
        )

    async def _run(self, run_id: int) -> RunRow:
        run = await self.ledger.reconciliation.runs.read(run_id)
        if run is None:
            raise RunUnknown(f"There is no run {run_id}")
        return run

    def _account(self, run: RunRow) -> str:
        return self.providers[run.provider].profile.account

    async def _explained(
        self, run: RunRow, findings: Sequence[Finding], meant: Mapping[str, Meant]
    ) -> list[Finding]:
        """Add what may explain a leftover record: proposals, and operations under way."""
        leftover = [found for found in findings if found.kind is FindingKind.PROVIDER_ONLY]
        if not leftover:
            return list(findings)
        amounts = {found.amount_minor for found in leftover if found.amount_minor is not None}
        candidates = await self.ledger.reconciliation.pages.candidates(
            run, account=self._account(run), amounts=sorted(amounts)
        )
        explained = [propose(finding, candidates) for finding in findings]
        return [_with_operation(finding, meant) for finding in explained]

    async def _meant_by_open_operations(self, run: RunRow) -> dict[str, Meant]:
        """The keys of effects that open operations may have without a row: a run that was
        terminated had them in its history only."""
        keys: dict[str, Meant] = {}
        for claim in await self.ledger.reconciliation.pages.open_operations(before=run.until):
            operation = self.operations.get(claim.operation)
            if not isinstance(operation, SagaOperation):
                continue
            run_id = workflow_id(operation=claim.operation, tenant=claim.tenant, key=claim.key)
            for step in operation.steps:
                if step.provider == run.provider:
                    key = derived_key(
                        workflow_id=run_id, step=step.name, ordinal=0, purpose=Purpose.ACTION
                    )
                    keys[key] = Meant(operation=claim, step=step.name)
        return keys

    async def _look_up(
        self, run: RunRow, missing: Sequence[OurEffect]
    ) -> tuple[list[OurEffect], int]:
        """Those of `missing` that the provider does not know by our key either."""
        left = max(VERIFY_MAX - run.counts.get("looked_up", 0), 0)
        provider = self.providers[run.provider]
        gate = asyncio.Semaphore(VERIFY_AT_ONCE)

        async def is_absent(effect: OurEffect) -> bool:
            async with gate:
                return not await provider.look_up(effect.action, key=effect.key)

        asked = list(missing[:left])
        absent = await asyncio.gather(*(is_absent(effect) for effect in asked))
        known = [effect for effect, gone in zip(asked, absent, strict=True) if gone]
        return [*known, *missing[left:]], len(asked)


def _scheduled(opening: RunOpening, seconds: float) -> RunRequest:
    return RunRequest(
        provider=opening.provider,
        requested_by=_SCHEDULED,
        key=opening.workflow_id,
        fingerprint=b"",
        trigger=Trigger.SCHEDULE,
        workflow_id=opening.workflow_id,
        seconds_max=seconds,
    )


def _theirs(record: ProviderRecord) -> TheirRecord:
    return TheirRecord(
        id=record.id,
        action=record.action,
        reference=record.reference,
        amount_minor=record.amount_minor,
        currency=record.currency,
        target=record.target,
        state=record.state,
        created_at=record.created_at,
    )


def _behind(run: RunRow) -> tuple[datetime, str]:
    if not run.sweep_cursor:
        return run.since, ""
    at, _, key = run.sweep_cursor.partition(" ")
    return datetime.fromisoformat(at), key


def _is_under_way(finding: Finding, meant: Mapping[str, Meant], *, run: RunRow) -> bool:
    """Whether a leftover record is so young that the operation that means it is still at it."""
    if finding.kind is not FindingKind.PROVIDER_ONLY:
        return False
    young = run.created_at - finding.occurred_at < MIN_AGE
    return young and finding.evidence["theirs"]["reference"] in meant


def _with_operation(finding: Finding, meant: Mapping[str, Meant]) -> Finding:
    theirs = finding.evidence.get("theirs", {})
    known = meant.get(theirs.get("reference") or "")
    if finding.kind is not FindingKind.PROVIDER_ONLY or known is None:
        return finding
    why = "An operation that is not over means it, and has not written it down: its run may be gone"
    evidence = {**finding.evidence, "why": why, "operation": known.as_evidence()}
    return replace(finding, claim_id=known.operation.id, evidence=evidence)


def _later(error: Unavailable) -> Turn:
    seconds = min(error.retry_after_seconds or PAUSE_SECONDS, PAUSE_SECONDS_MAX)
    return Turn(finished=False, pause_seconds=seconds, remark=error.reason[:200])


def _now() -> datetime:
    return datetime.now(UTC)
