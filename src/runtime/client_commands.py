"""Commands that talk to a running API, as its client: nothing goes around the front door."""

import json
import os
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import httpx
import typer
from rich.console import Console
from rich.table import Table

from operations.keys import Purpose
from operations.states import Verdict
from runtime.output import Output, OutputOption

WAIT_SECONDS = 60
"""The longest a submit waits, and a little less than the client's own timeout."""

_console = Console()
_errors = Console(stderr=True)

DataDir = Annotated[
    Path, typer.Option(help="A `tallystick dev` directory: its dev.json names API and keys.")
]
Tenant = Annotated[str, typer.Option("--as", help="Which key of dev.json to use.")]
OperationArgument = Annotated[str, typer.Argument(help="Such as orders.place.")]
KeyArgument = Annotated[str, typer.Argument(help="The idempotency key.")]

_DATA_DIR = Path(".tallystick")


def submit(
    operation: OperationArgument,
    *,
    key: Annotated[str, typer.Option(help="New for every operation, the same on every retry.")],
    json_: Annotated[str, typer.Option("--json", help="The request, as JSON.")],
    wait: Annotated[int, typer.Option(min=0, max=WAIT_SECONDS, help="Seconds.")] = 10,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "acme",
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit an operation. Repeating the command is safe: the key makes it the same operation."""
    with open_client(data_dir, tenant) as client:
        answer = ask(
            client,
            "PUT",
            _path(operation, key),
            content=json_.encode(),
            headers={"Content-Type": "application/json", "Prefer": f"wait={wait}"},
        )
    _show_answer(answer, output)
    if answer.status_code >= 400:
        raise typer.Exit(1)


def status(
    operation: OperationArgument,
    key: KeyArgument,
    *,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "acme",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how an operation stands."""
    with open_client(data_dir, tenant) as client:
        resource = read_answer(ask(client, "GET", _path(operation, key)))
    if output is Output.JSON:
        typer.echo(json.dumps(resource, indent=2))
        return
    _show_resource(resource)


def list_operations(
    *,
    state: Annotated[str | None, typer.Option(help="Such as parked.")] = None,
    operation: Annotated[str | None, typer.Option(help="Such as orders.place.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "acme",
    output: OutputOption = Output.TABLE,
) -> None:
    """List operations, newest first."""
    found: list[dict[str, Any]] = []
    params: dict[str, str] = {"limit": str(min(limit, 100))}
    params |= {"state": state} if state else {}
    params |= {"operation": operation} if operation else {}
    with open_client(data_dir, tenant) as client:
        while len(found) < limit:
            page = read_answer(ask(client, "GET", "/v1/operations", params=params))
            found += page["operations"]
            if page["next_cursor"] is None:
                break
            params["cursor"] = page["next_cursor"]
    found = found[:limit]
    if output is Output.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    table = Table("operation", "key", "state", "outcome", "created")
    for row in found:
        cells = (row["operation"], row["key"], row["state"], row["outcome"], row["created_at"])
        table.add_row(*(cell or "" for cell in cells))
    _console.print(table)


def resolve(
    operation: OperationArgument,
    key: KeyArgument,
    step: Annotated[str, typer.Argument(help="The step that waits for a decision.")],
    verdict: Annotated[Verdict, typer.Argument(help="What is true of it.")],
    *,
    evidence: Annotated[str, typer.Option(help="How you know; it is kept.")],
    provider_reference: Annotated[str | None, typer.Option(help="For confirmed.")] = None,
    purpose: Annotated[
        Purpose | None, typer.Option(help="Which of its effects; else the one that waits.")
    ] = None,
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
    output: OutputOption = Output.TABLE,
) -> None:
    """Decide about a parked step, with evidence."""
    body = {"verdict": verdict.value, "evidence": evidence}
    if provider_reference is not None:
        body["provider_reference"] = provider_reference
    if purpose is not None:
        body["purpose"] = purpose.value
    path = f"{_path(operation, key)}/steps/{quote(step, safe='')}/resolution"
    _operate(path, body, operation=operation, key=key, at=(data_dir, tenant), output=output)


def cancel(
    operation: OperationArgument,
    key: KeyArgument,
    *,
    reason: Annotated[str, typer.Option(help="Why; it is kept.")] = "",
    data_dir: DataDir = _DATA_DIR,
    tenant: Tenant = "operator",
    output: OutputOption = Output.TABLE,
) -> None:
    """Cancel an operation: what was done is undone."""
    path = f"{_path(operation, key)}/cancel"
    body = {"reason": reason}
    _operate(path, body, operation=operation, key=key, at=(data_dir, tenant), output=output)


def _operate(
    path: str,
    body: dict[str, str],
    *,
    operation: str,
    key: str,
    at: tuple[Path, str],
    output: Output,
) -> None:
    """Do something about the operation as it stands now: read it, then act on that version."""
    with open_client(*at) as client:
        tag = ask(client, "GET", _path(operation, key)).headers.get("etag", "")
        resource = read_answer(ask(client, "POST", path, json=body, headers={"If-Match": tag}))
    if output is Output.JSON:
        typer.echo(json.dumps(resource, indent=2))
        return
    _show_resource(resource)


def open_client(data_dir: Path, tenant: str) -> httpx.Client:
    """A client for the API that the environment, or else dev.json, names."""
    url, token = os.environ.get("TALLYSTICK_API_URL"), os.environ.get("TALLYSTICK_API_KEY")
    if url is None or token is None:
        try:
            found = json.loads((data_dir / "dev.json").read_text())
            url, token = url or found["api"], token or found["keys"][tenant]
        except (OSError, ValueError, KeyError):
            fail(
                "Which API? Start `tallystick dev`, name its directory with --data-dir, or set "
                "TALLYSTICK_API_URL and TALLYSTICK_API_KEY."
            )
    return httpx.Client(
        base_url=str(url),
        headers={"Authorization": f"Bearer {token}"},
        timeout=WAIT_SECONDS + 15,
        trust_env=False,
    )


def ask(client: httpx.Client, method: str, path: str, **request: Any) -> httpx.Response:
    """One request. No answer ends the program with a sentence."""
    try:
        return client.request(method, path, **request)
    except httpx.HTTPError as error:
        fail(
            f"{client.base_url} did not answer ({type(error).__name__}). "
            "Repeat the same command: it is safe."
        )


def read_answer(answer: httpx.Response) -> dict[str, Any]:
    """The document of an answer. A problem ends the program with its sentence."""
    if answer.status_code >= 400:
        problem = answer.json()
        errors = "; ".join(str(found) for found in problem.get("errors", []))
        fail(f"{answer.status_code} {problem['title']}: {problem['detail']} {errors}".rstrip())
    document: dict[str, Any] = answer.json()
    return document


def _show_answer(answer: httpx.Response, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(answer.text)
        return
    replayed = answer.headers.get("idempotent-replayed") == "true"
    note = " [cyan](replayed)[/cyan]" if replayed else ""
    state = answer.headers.get("operation-state", "")
    _console.print(f"[bold]{answer.status_code}[/bold] {state}{note}", highlight=False)
    _console.print_json(answer.text or "null")


def _show_resource(resource: dict[str, Any]) -> None:
    outcome = f" → {resource['outcome']}" if resource["outcome"] else ""
    title = f"{resource['operation']} {resource['key']}: {resource['state']}{outcome}"
    table = Table(
        "step", "provider", "guarantee", "state", "reference", "sends", "undo", title=title
    )
    for step in resource["steps"]:
        names = ("name", "provider", "guarantee", "state", "provider_reference")
        cells = [step[name] or "" for name in names]
        table.add_row(*cells, str(step["attempts"]), step["undo_state"] or "")
    _console.print(table)
    for decided in resource["decisions"]:
        about = decided["step"] or "the operation"
        _console.print(
            f"{decided['decided_at']} {decided['decided_by']} about {about}: "
            f"{decided['verdict']} ({decided['evidence']})",
            highlight=False,
            markup=False,
        )
    if resource["result"] is not None:
        _console.print(f"Receipt: {resource['result']['status']}")
        _console.print_json(json.dumps(resource["result"]["body"]))
    if resource["links"]["temporal_ui"]:
        _console.print(f"Run: {resource['links']['temporal_ui']}")


def _path(operation: str, key: str) -> str:
    return f"/v1/operations/{quote(operation, safe='.')}/{quote(key, safe='')}"


def fail(message: str) -> NoReturn:
    """End the program with a sentence."""
    _errors.print(f"[red]{message}[/red]", highlight=False)
    raise typer.Exit(1)
