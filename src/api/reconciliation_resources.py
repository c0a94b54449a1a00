"""Runs and findings as programs and spreadsheets see them: JSON documents and CSV rows."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from api.resources import instant
from api.service import Service
from ledger.reconciliation_findings import FindingRow, HistoryEntry
from ledger.reconciliation_runs import ProviderSchedule, RunRow
from operations.durations import format_duration
from operations.reconciliation import FindingKind, finding_path

KINDS = tuple(kind.value for kind in FindingKind)
UNMATCHED = tuple(kind for kind in KINDS if kind != FindingKind.MATCHED)
CHANGES = ("opened", "found_again", "gone", "persisting")

_RUN_COLUMNS = (
    *("id", "provider", "state", "dry_run", "since", "until", "created_at", "ended_at"),
    *("records", *KINDS, *CHANGES),
)
_FINDING_COLUMNS = (
    *("id", "provider", "kind", "state", "record_id", "reference", "amount_minor", "currency"),
    *("occurred_at", "remedy", "remedy_state", "runs_in_a_row", "opened_at", "resolved_by"),
    *("note", "why"),
)


def run_path(run: RunRow) -> str:
    """Where a run can be read."""
    return f"/v1/reconciliation/{run.provider}/runs/{run.id}"


def finding_etag(finding: FindingRow) -> str:
    """A strong ETag: every change of the finding counts its revision up."""
    return f'"f{finding.id:x}-{finding.revision:x}"'


def unmatched(run: RunRow) -> int:
    """How many findings a run has that are not matches."""
    return sum(run.counts.get(kind, 0) for kind in UNMATCHED)


def run_resource(
    run: RunRow, *, service: Service, before: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """A run; `before` are the counts of the one before it, to show what has changed since."""
    changes: dict[str, Any] = {name: run.counts.get(name, 0) for name in CHANGES}
    if before is not None:
        changes["since_last_run"] = {
            kind: run.counts.get(kind, 0) - before.get(kind, 0) for kind in KINDS
        }
    return {
        "id": run.id,
        "provider": run.provider,
        "state": run.state.value,
        "trigger": run.trigger.value,
        "requested_by": run.requested_by,
        "dry_run": run.dry_run,
        "since": instant(run.since),
        "until": instant(run.until),
        "counts": {name: run.counts.get(name, 0) for name in ("records", *KINDS)},
        "unmatched": unmatched(run),
        "sums": run.sums,
        "changes": changes,
        "failure": run.failure,
        "workflow_id": run.workflow_id,
        "created_at": instant(run.created_at),
        "started_at": None if run.started_at is None else instant(run.started_at),
        "ended_at": None if run.ended_at is None else instant(run.ended_at),
        "links": {
            "self": run_path(run),
            "report": f"/v1/reconciliation/{run.provider}/report",
            "findings": f"/v1/reconciliation/findings?provider={run.provider}&state=open",
            "temporal_ui": _ui_link(run.workflow_id, service=service),
        },
    }


def finding_resource(
    finding: FindingRow, history: Iterable[HistoryEntry] | None = None
) -> dict[str, Any]:
    """A finding, with its history where one finding is read."""
    document: dict[str, Any] = {
        "id": finding.id,
        "provider": finding.provider,
        "kind": finding.kind.value,
        "state": finding.state.value,
        "record_id": finding.record_id,
        "reference": finding.effect_key,
        "amount": None
        if finding.amount_minor is None
        else {"minor": finding.amount_minor, "currency": finding.currency},
        "occurred_at": instant(finding.occurred_at),
        "remedy": finding.remedy.value,
        "remedy_state": finding.remedy_state.value,
        "evidence": finding.evidence,
        "note": finding.note,
        "resolved_by": finding.resolved_by,
        "first_run": finding.first_run_id,
        "last_run": finding.last_run_id,
        "runs_in_a_row": finding.runs_in_a_row,
        "opened_at": instant(finding.opened_at),
        "updated_at": instant(finding.updated_at),
        "links": {"self": finding_path(finding.id)},
    }
    if history is not None:
        document["history"] = [
            {
                "at": instant(entry.at),
                "happened": entry.happened,
                "state": entry.state.value,
                "by": entry.by,
                "note": entry.note,
                "run": entry.run_id,
            }
            for entry in history
        ]
    return document


def schedule_resource(
    schedule: ProviderSchedule, *, every_seconds: int, next_runs: Iterable[Any]
) -> dict[str, Any]:
    """A provider's schedule; `every` is null when it is reconciled only when asked."""
    seconds = schedule.every_seconds or every_seconds
    return {
        "provider": schedule.provider,
        "every": format_duration(seconds) if seconds else None,
        "paused": schedule.paused,
        "watermark": None if schedule.watermark is None else instant(schedule.watermark),
        "next_runs": [instant(moment) for moment in next_runs],
    }


def runs_csv(runs: Iterable[RunRow], *, service: Service) -> str:
    """Runs as CSV (RFC 4180), a line each."""
    return _csv(_RUN_COLUMNS, (_run_line(run, service=service) for run in runs))


def findings_csv(findings: Iterable[FindingRow]) -> str:
    """Findings as CSV (RFC 4180), a line each."""
    return _csv(_FINDING_COLUMNS, (_finding_line(finding) for finding in findings))


def _run_line(run: RunRow, *, service: Service) -> dict[str, Any]:
    document = run_resource(run, service=service)
    return {**document, **document["counts"], **document["changes"]}


def _finding_line(finding: FindingRow) -> dict[str, Any]:
    return {
        **finding_resource(finding),
        "amount_minor": finding.amount_minor,
        "currency": finding.currency,
        "why": finding.evidence.get("why", ""),
    }


def _csv(columns: tuple[str, ...], lines: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for line in lines:
        writer.writerow([_cell(line.get(name)) for name in columns])
    return text.getvalue()


def _cell(value: object) -> object:
    """A cell that no spreadsheet runs as a formula: what a provider sends is data."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return "" if value is None else value


def _ui_link(workflow: str, *, service: Service) -> str | None:
    base = service.settings.temporal_ui_url
    if base is None:
        return None
    namespace = quote(service.settings.temporal_namespace, safe="")
    return f"{base.rstrip('/')}/namespaces/{namespace}/workflows/{quote(workflow, safe='')}"
