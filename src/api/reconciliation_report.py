"""The report for people: one HTML page with its plot inside, which can be saved, printed, mailed.

Nothing is loaded from anywhere, so it shows the same to everybody, and tells nobody who reads it.
"""

import html
from collections.abc import Callable, Sequence
from typing import Any

from api.reconciliation_resources import UNMATCHED, unmatched
from ledger.reconciliation_findings import FindingRow
from ledger.reconciliation_runs import RunRow
from operations.reconciliation import FindingKind, RunState

_MEANING = {
    FindingKind.MATCHED: "Both halves agree",
    FindingKind.AMOUNT_MISMATCH: "Both have it, with different amounts",
    FindingKind.PROVIDER_ONLY: "Only the provider has it",
    FindingKind.LOCAL_ONLY: "Only we have it",
    FindingKind.DUPLICATE: "The provider has it twice",
    FindingKind.LATE: "The provider had it after we stopped expecting it",
    FindingKind.REFUND_EXCESS: "More was given back than was taken",
}
_STYLE = """
:root{color-scheme:light dark;--ink:#1d2430;--soft:#5c6675;--line:#d9dee6;--paper:#fff;
--good:#2f6fb0;--bad:#c2571a}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b4;--line:#343c48;
--paper:#151a21;--good:#6ea8e0;--bad:#ee8a4d}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}
p{margin:.3rem 0;color:var(--soft)}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.35rem .6rem .35rem 0;border-bottom:1px solid var(--line);
vertical-align:top}th{font-weight:600;color:var(--soft)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.verdict{font-size:1.15rem;margin:.8rem 0;color:var(--ink)}.bad{color:var(--bad)}
.wide{overflow-x:auto}svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);
font:11px system-ui,sans-serif}.axis{stroke:var(--line)}.good-bar{fill:var(--good)}
.bad-bar{fill:var(--bad)}code{font-size:.85em;overflow-wrap:anywhere}
"""
_WIDTH, _LEFT, _PANEL, _GAP, _TOP = 900, 64, 110, 46, 22
_BAR_MAX = 40.0


def report_page(
    provider: str, *, runs: Sequence[RunRow], findings: Sequence[FindingRow], more: bool
) -> str:
    """The page about `provider`: `runs` newest first, `findings` that are not resolved."""
    ended = [run for run in runs if run.state is RunState.DONE and not run.dry_run]
    latest = ended[0] if ended else None
    body = [
        f"<h1>Reconciliation of {html.escape(provider)}</h1>",
        _verdict(latest, findings, more=more),
    ]
    if latest is not None:
        body += [
            "<h2>Matched and unmatched, run by run</h2>",
            f'<div class="wide">{_plot(list(reversed(ended)))}</div>',
            "<h2>The latest run</h2>",
            _counts(latest, ended[1] if len(ended) > 1 else None),
            "<h2>Sums of the latest run</h2>",
            "<p>A cross-check only: what is missing here and doubled there adds up to zero.</p>",
            _sums(latest.sums),
        ]
    body += ["<h2>What waits for a person</h2>", _findings(findings, more=more)]
    title = f"Reconciliation of {html.escape(provider)}"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style><body>{''.join(body)}</body></html>"
    )


def _verdict(latest: RunRow | None, findings: Sequence[FindingRow], *, more: bool) -> str:
    if latest is None:
        return "<p class=verdict>No run has ended yet.</p>"
    window = f"{_moment(latest.since)} to {_moment(latest.until)} UTC"
    waiting = f"{len(findings)}{'+' if more else ''}"
    if not findings:
        said = "<p class=verdict>Everything agrees: nothing waits for a person.</p>"
    else:
        word = "finding waits" if waiting == "1" else "findings wait"
        said = f'<p class="verdict bad">{waiting} {word} for a person.</p>'
    return f"{said}<p>Latest run: number {latest.id}, records of {window}.</p>"


def _counts(run: RunRow, before: RunRow | None) -> str:
    lines: list[str] = []
    for kind, meaning in _MEANING.items():
        now = run.counts.get(kind.value, 0)
        moved = 0 if before is None else now - before.counts.get(kind.value, 0)
        change = f"{moved:+,}" if moved else ""
        mark = " class=bad" if now and kind is not FindingKind.MATCHED else ""
        lines.append(
            f"<tr><td{mark}>{meaning}</td><td><code>{kind.value}</code></td>"
            f"<td class=n>{now:,}</td><td class=n>{change}</td></tr>"
        )
    return (
        '<div class="wide"><table><tr><th>What<th>Kind<th class=n>Records<th class=n>Change'
        f"</tr>{''.join(lines)}</table></div>"
    )


def _sums(sums: dict[str, Any]) -> str:
    if not sums:
        return "<p>No record of the window has an amount.</p>"
    lines: list[str] = []
    for currency, halves in sorted(sums.items()):
        cells = [f"<td>{html.escape(currency)}</td>"]
        for side in ("ours", "theirs"):
            half = halves.get(side, {})
            cells += [
                f"<td class=n>{_amount(half.get(name, 0))}</td>"
                for name in ("taken_minor", "given_back_minor")
            ]
        difference = halves.get("difference_minor", 0)
        mark = " bad" if difference else ""
        cells.append(f'<td class="n{mark}">{_amount(difference)}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        '<div class="wide"><table><tr><th>Currency<th class=n>Ours: taken<th class=n>given back'
        "<th class=n>Theirs: taken<th class=n>given back<th class=n>Difference</tr>"
        f"{''.join(lines)}</table></div><p>In minor units: 2,400 EUR is 24.00 €.</p>"
    )


def _findings(findings: Sequence[FindingRow], *, more: bool) -> str:
    if not findings:
        return "<p>Nothing.</p>"
    lines = [
        "<tr>"
        f"<td class=n>{finding.id}</td><td>{_MEANING[finding.kind]}</td>"
        f"<td><code>{html.escape(finding.record_id or finding.effect_key or '')}</code></td>"
        f"<td class=n>{_money(finding)}</td><td>{_moment(finding.occurred_at)}</td>"
        f"<td>{finding.state.value}</td><td class=n>{finding.runs_in_a_row}</td></tr>"
        for finding in findings
    ]
    note = "<p>There are more: the API and the command line list them all.</p>" if more else ""
    return (
        '<div class="wide"><table><tr><th class=n>No.<th>What<th>Record<th class=n>Amount'
        "<th>When (UTC)<th>State<th class=n>Runs in a row</tr>"
        f"{''.join(lines)}</table></div>{note}"
    )


def _plot(runs: Sequence[RunRow]) -> str:
    """Two panels over the same runs, each on its own scale: beside thousands of matches, one
    unmatched record would be invisible."""
    height = _TOP + 2 * _PANEL + _GAP + 34
    upper = _panel(
        runs, lambda run: run.counts.get("matched", 0), top=_TOP, name="matched", css="good-bar"
    )
    lower = _panel(runs, unmatched, top=_TOP + _PANEL + _GAP, name="not matched", css="bad-bar")
    base = _TOP + 2 * _PANEL + _GAP
    ends = (
        f'<text x="{_LEFT}" y="{base + 16}">{_moment(runs[0].until)}</text>'
        f'<text x="{_WIDTH}" y="{base + 16}" text-anchor="end">{_moment(runs[-1].until)} UTC</text>'
    )
    label = (
        f"{len(runs)} runs: the latest matched {runs[-1].counts.get('matched', 0)} records and "
        f"did not match {unmatched(runs[-1])}"
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">'
        f"{upper}{lower}{ends}</svg>"
    )


def _panel(
    runs: Sequence[RunRow], count: Callable[[RunRow], int], *, top: int, name: str, css: str
) -> str:
    most = max(1, *(count(run) for run in runs))
    step = (_WIDTH - _LEFT) / len(runs)
    width = min(step * 0.72, _BAR_MAX)
    bars: list[str] = []
    for place, run in enumerate(runs):
        number = count(run)
        tall = max(number / most * (_PANEL - 18), 1.5 if number else 0)
        x = _LEFT + place * step + (step - width) / 2
        details = ", ".join(
            f"{kind} {run.counts[kind]}" for kind in UNMATCHED if run.counts.get(kind)
        )
        tip = f"run {run.id}, {_moment(run.until)}: {number:,} {name}"
        tip += f" ({details})" if details and css == "bad-bar" else ""
        bars.append(
            f'<rect class="{css}" x="{x:.1f}" y="{top + _PANEL - tall:.1f}" '
            f'width="{width:.1f}" height="{tall:.1f}"><title>{html.escape(tip)}</title></rect>'
        )
    return (
        f'<text x="{_LEFT}" y="{top + 6}">Records {name}</text>'
        f'<text x="{_LEFT - 8}" y="{top + 22}" text-anchor="end">{most:,}</text>'
        f'<text x="{_LEFT - 8}" y="{top + _PANEL}" text-anchor="end">0</text>'
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{top + 18}" y2="{top + 18}"/>'
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{top + _PANEL}" y2="{top + _PANEL}"/>'
        f"{''.join(bars)}"
    )


def _money(finding: FindingRow) -> str:
    if finding.amount_minor is None:
        return ""
    return f"{_amount(finding.amount_minor)} {html.escape(finding.currency or '')}"


def _amount(minor: int) -> str:
    return f"{minor:,}"


def _moment(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
