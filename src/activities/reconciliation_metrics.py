"""What the end of a run tells whoever watches: metrics for alarms, and a line in the log."""

import structlog
from prometheus_client import Counter, Gauge

from ledger.reconciliation_findings import RunEnding
from ledger.reconciliation_runs import RunRow
from operations.reconciliation import FindingKind

_RUNS = Counter("tallystick_reconciliation_runs_total", "Runs that have ended", ["provider"])
_FOUND = Counter(
    "tallystick_reconciliation_found_total", "What runs have found", ["provider", "kind"]
)
_PERSISTING = Gauge(
    "tallystick_reconciliation_persisting_findings",
    "Open findings that two runs in a row have found: an alarm when above zero",
    ["provider"],
)
_LATEST = Gauge(
    "tallystick_reconciliation_last_end_timestamp_seconds",
    "When a run last came to its end: an alarm when it is older than two intervals",
    ["provider"],
)
_log = structlog.get_logger(__name__)


def tell_end(run: RunRow, ending: RunEnding) -> None:
    """Count a run that has ended, and raise the alarm for what two runs in a row have found."""
    if run.dry_run:
        return
    _RUNS.labels(run.provider).inc()
    _LATEST.labels(run.provider).set_to_current_time()
    _PERSISTING.labels(run.provider).set(ending.persisting)
    for kind in FindingKind:
        _FOUND.labels(run.provider, kind.value).inc(ending.counts.get(kind.value, 0))
    if ending.persisting:
        _log.warning(
            "reconciliation.alarm",
            provider=run.provider,
            run=run.id,
            persisting=ending.persisting,
            see=f"/v1/reconciliation/findings?provider={run.provider}&state=open",
        )
    _log.info("reconciliation.ended", provider=run.provider, run=run.id, counts=ending.counts)
