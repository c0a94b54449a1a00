"""`tallystick reconcile`: run it, read what was found, decide about it, set its schedule."""

import json
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from operations.reconciliation import FindingKind, FindingState
from runtime.client_commands import DataDir, Tenant, ask, fail, open_client, read_answer
from runtime.output import Output, OutputOption

WAIT_SECONDS = 600
POLL_SECONDS = 0.5
_DATA_DIR = Path(".tallystick")
_PATH = "/v1/reconciliation"
_console = Console()


class _ProviderFirst(TyperGroup):
    """`reconcile PROVIDER` is `reconcile run PROVIDER`: what is no command is a provider."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or run the provider that is named instead."""
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_ProviderFirst,
    no_args_is_help=True,
    help="Compare a provider's books with ours: `reconcile PROVIDER`, or one of these.",
)

ProviderArgument = Annotated[str, typer.Argument(help="Such as payments.")]
FindingArgument = Annotated[int, typer.Argument(help="Its number, from `reconcile findings`.")]


@app.command()
def run(
    provider: ProviderArgument,
    *,
    since: Annotated[str | None, typer.Option(help="RFC 3339, with an offset.")] = None,
    until: Annotated[str | None, typer.Option(help="RFC 3339, with an offset.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Show what would be done; do nothing.")] = False,
    key: Annotated[str | None, typer.Option(help="The same key is the same run.")] = None,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
    output: OutputOption = Output.TABLE,
) -> None:
    """Reconcile now, from the watermark on or for any window, and show the result."""
    body: dict[str, Any] = {"dry_run": True} if dry_run else {}
    body |= {"since": since} if since else {}
    body |= {"until": until} if until else {}
    headers = {"Idempotency-Key": key or f"cli-{uuid.uuid4()}", "Prefer": "wait=50"}
    with open_client(data_dir, tenant) as client:
        path = f"{_PATH}/{provider}/runs"
        document = read_answer(ask(client, "POST", path, json=body, headers=headers))
        deadline = time.monotonic() + WAIT_SECONDS
        while document["ended_at"] is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            document = read_answer(ask(client, "GET", document["links"]["self"]))
    if output is Output.JSON:
        typer.echo(json.dumps(document, indent=2))
    else:
        _show_run(document)
    if document["state"] != "done":
        raise typer.Exit(1)


@app.command()
def runs(
    provider: ProviderArgument,
    *,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
    output: OutputOption = Output.TABLE,
) -> None:
    """List runs, newest first."""
    with open_client(data_dir, tenant) as client:
        path = f"{_PATH}/{provider}/runs"
        found = read_answer(ask(client, "GET", path, params={"limit": str(limit)}))["runs"]
    if output is Output.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    table = Table("run", "state", "until", "records", "matched", "unmatched", "new", "again")
    for document in found:
        counts, changes = document["counts"], document["changes"]
        numbers = (counts["records"], counts["matched"], document["unmatched"])
        more = (changes["opened"], changes["found_again"])
        state = document["state"] + (" (dry)" if document["dry_run"] else "")
        cells = (document["id"], state, document["until"], *numbers, *more)
        table.add_row(*(str(cell) for cell in cells))
    _console.print(table)


@app.command()
def findings(
    *,
    provider: Annotated[str | None, typer.Option(help="Such as payments.")] = None,
    kind: Annotated[FindingKind | None, typer.Option(help="What was found.")] = None,
    state: Annotated[FindingState | None, typer.Option(help="Open ones by default.")] = (
        FindingState.OPEN
    ),
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
    output: OutputOption = Output.TABLE,
) -> None:
    """List findings, newest first."""
    params = {"limit": str(limit)}
    params |= {"provider": provider} if provider else {}
    params |= {"kind": kind.value} if kind else {}
    params |= {"state": state.value} if state else {}
    with open_client(data_dir, tenant) as client:
        found = read_answer(ask(client, "GET", f"{_PATH}/findings", params=params))["findings"]
    if output is Output.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    _console.print(_findings_table(found))


@app.command()
def finding(
    number: FindingArgument,
    *,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one finding: its evidence and its history."""
    with open_client(data_dir, tenant) as client:
        document = read_answer(ask(client, "GET", f"{_PATH}/findings/{number}"))
    if output is Output.JSON:
        typer.echo(json.dumps(document, indent=2))
        return
    _show_finding(document)


@app.command()
def contradictions(
    *,
    provider: Annotated[str | None, typer.Option(help="Such as payments.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
    output: OutputOption = Output.TABLE,
) -> None:
    """List messages that contradict our books, newest first."""
    params = {"limit": str(limit)} | ({"provider": provider} if provider else {})
    with open_client(data_dir, tenant) as client:
        answer = read_answer(ask(client, "GET", f"{_PATH}/contradictions", params=params))
    found: list[dict[str, Any]] = answer["contradictions"]
    if output is Output.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    columns = (
        "received_at",
        "provider",
        "entity",
        "state",
        "reading",
        "tenant",
        "operation",
        "key",
    )
    table = Table(*columns)
    for row in found:
        table.add_row(*(row[name] for name in columns))
    _console.print(table)


@app.command()
def resolve(
    number: FindingArgument,
    *,
    note: Annotated[str, typer.Option(help="What was found out or done; it is kept.")],
    state: Annotated[FindingState, typer.Option(help="resolved or acknowledged.")] = (
        FindingState.RESOLVED
    ),
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what became of a finding, on the version that is there now."""
    path = f"{_PATH}/findings/{number}"
    body = {"state": state.value, "note": note}
    with open_client(data_dir, tenant) as client:
        known = ask(client, "GET", path)
        read_answer(known)
        headers = {"If-Match": known.headers["etag"]}
        document = read_answer(ask(client, "PATCH", path, json=body, headers=headers))
    if output is Output.JSON:
        typer.echo(json.dumps(document, indent=2))
        return
    _show_finding(document)


@app.command()
def schedule(
    provider: ProviderArgument,
    *,
    every: Annotated[str | None, typer.Option(help="Such as PT15M; without it, only show.")] = None,
    paused: Annotated[bool, typer.Option("--paused/--running")] = False,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how often a provider is reconciled, or set it."""
    path = f"{_PATH}/{provider}/schedule"
    with open_client(data_dir, tenant) as client:
        if every is None:
            document = read_answer(ask(client, "GET", path))
        else:
            body = {"every": every, "paused": paused}
            document = read_answer(ask(client, "PUT", path, json=body))
    if output is Output.JSON:
        typer.echo(json.dumps(document, indent=2))
        return
    table = Table("provider", "every", "paused", "compared up to", "next")
    cells = [document[name] for name in ("provider", "every", "paused", "watermark")]
    following = document["next_runs"][:1]
    table.add_row(*("" if cell is None else str(cell) for cell in [*cells, *following]))
    _console.print(table)


@app.command()
def report(
    provider: ProviderArgument,
    file: Annotated[Path, typer.Argument(help="The HTML file to write.")],
    *,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
) -> None:
    """Write the report for people: one page that needs nothing else."""
    with open_client(data_dir, tenant) as client:
        answer = ask(client, "GET", f"{_PATH}/{provider}/report")
    if answer.status_code >= 400:
        read_answer(answer)
    try:
        file.write_bytes(answer.content)
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}")
    _console.print(f"{file} has the report.")


def _show_run(document: dict[str, Any]) -> None:
    dry = " (dry run)" if document["dry_run"] else ""
    title = f"Run {document['id']} of {document['provider']}: {document['state']}{dry}"
    table = Table("kind", "records", "since the last run", title=title)
    since_last = document["changes"].get("since_last_run", {})
    for kind, number in document["counts"].items():
        change = since_last.get(kind)
        table.add_row(kind, f"{number:,}", "" if change is None else f"{change:+,}")
    _console.print(table)
    if document["failure"]:
        _console.print(f"[red]{document['failure']}[/red]", highlight=False)
    for currency, halves in document["sums"].items():
        difference = halves["difference_minor"]
        _console.print(f"{currency}: theirs less ours, in minor units: {difference:,}")
    if document["dry_run"] and document["would"]:
        would = Table("kind", "record", "amount", "would do")
        for found in document["would"]:
            money = f"{found['amount_minor'] or ''} {found['currency'] or ''}"
            would.add_row(found["kind"], found["subject"], money, found["would"])
        _console.print(would)
    elif document.get("findings"):
        _console.print(_findings_table(document["findings"]))
    if document["links"]["temporal_ui"]:
        _console.print(f"Run: {document['links']['temporal_ui']}")


def _findings_table(found: list[dict[str, Any]]) -> Table:
    table = Table("no.", "provider", "kind", "record", "amount", "state", "remedy", "runs")
    for row in found:
        money: dict[str, Any] = row["amount"] or {}
        remedy = "" if row["remedy"] == "none" else f"{row['remedy']} {row['remedy_state']}"
        table.add_row(
            str(row["id"]),
            row["provider"],
            row["kind"],
            row["record_id"] or row["reference"] or "",
            f"{money.get('minor', '')} {money.get('currency', '')}".strip(),
            row["state"],
            remedy,
            str(row["runs_in_a_row"]),
        )
    return table


def _show_finding(document: dict[str, Any]) -> None:
    _console.print(_findings_table([document]))
    _console.print_json(json.dumps(document["evidence"]))
    table = Table("at", "what happened", "state", "by", "note")
    for entry in document["history"]:
        cells = (entry[name] for name in ("at", "happened", "state", "by", "note"))
        table.add_row(*(cell or "" for cell in cells))
    _console.print(table)
