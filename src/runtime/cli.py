"""The command line: one production process each, the embedded stack, and what a person asks."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from sqlalchemy.exc import SQLAlchemyError

from ledger.access import ApiKey, Role
from ledger.database import StorageUnavailable
from ledger.ledger import Ledger
from runtime import client_commands, reconcile_commands
from runtime.output import Output, OutputOption
from runtime.probe.command import probe
from runtime.settings import Settings
from runtime.telemetry import configure_logs

app = typer.Typer(
    help="Makes an uncertain retry safe: one net effect, and the same truthful answer every time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
keys = typer.Typer(help="API keys: issue, list, revoke.", no_args_is_help=True)
app.add_typer(keys, name="keys")
app.add_typer(reconcile_commands.app, name="reconcile")
app.command()(client_commands.submit)
app.command()(client_commands.status)
app.command("list")(client_commands.list_operations)
app.command()(client_commands.resolve)
app.command()(client_commands.cancel)
app.command()(probe)

_console = Console(stderr=True)
T = TypeVar("T")
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")]


@app.command()
def api() -> None:
    """Serve the HTTP API."""
    from runtime.api_process import run_api

    run_api(_settings(), with_worker=False)


@app.command()
def serve() -> None:
    """Serve the HTTP API with a worker in the same process: the fast path."""
    from runtime.api_process import run_api

    run_api(_settings(), with_worker=True)


@app.command()
def worker() -> None:
    """Perform runs, their steps, and the relay."""
    import uvloop

    from runtime.worker import run_worker

    uvloop.run(run_worker(_settings()))


@app.command()
def migrate() -> None:
    """Bring the database to the newest schema."""
    from ledger.migrate import migrate as bring_up_to_date

    settings = _settings()
    version = _ask(bring_up_to_date(settings.database_url.get_secret_value()))
    _console.print(f"The schema is current: {version}")


@app.command()
def providers(
    ledger: Annotated[Path, typer.Option(help="The file that holds the providers' books.")],
    *,
    admin_port: Port = 0,
    payments_port: Port = 0,
    acquirer_port: Port = 0,
    warehouse_port: Port = 0,
    carrier_port: Port = 0,
    mail_port: Port = 0,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    announce: Annotated[Path | None, typer.Option(help="Write the addresses here.")] = None,
) -> None:
    """Simulate the outside world: five providers that can lie, stall and lose replies."""
    from providers.simulated.server import serve_until_signalled
    from providers.simulated.vocabulary import WorldConfig

    config = WorldConfig(
        ledger=ledger,
        host=host,
        admin_port=admin_port,
        payments_port=payments_port,
        acquirer_port=acquirer_port,
        warehouse_port=warehouse_port,
        carrier_port=carrier_port,
        mail_port=mail_port,
        announce=announce,
    )
    try:
        asyncio.run(serve_until_signalled(config))
    except OSError as error:
        _fail(f"The providers could not start: {error}")


@app.command()
def dev(
    data_dir: Annotated[Path, typer.Option(help="Holds all state, and dev.json.")] = Path(
        ".tallystick"
    ),
    *,
    api_port: Port = 8000,
    temporal_port: Port = 7233,
    ui_port: Port = 8233,
    providers_port: Port = 9000,
    single_process: Annotated[
        bool, typer.Option(help="API and worker in one process: the fast path.")
    ] = False,
) -> None:
    """Keep the whole stack in the foreground until Ctrl-C."""
    from runtime.embedded.errors import EmbeddedError
    from runtime.embedded.stack import EmbeddedStack, run_until_signalled

    console = Console()
    try:
        stack = EmbeddedStack(
            data_dir,
            api_port=api_port,
            temporal_port=temporal_port,
            ui_port=ui_port,
            providers_port=providers_port,
            single_process=single_process,
            report=lambda line: console.print(f"[dim]{line}[/dim]", highlight=False),
        )
        asyncio.run(run_until_signalled(stack, console=console))
    except EmbeddedError as error:
        _fail(str(error))


@app.command()
def demo() -> None:
    """Boot the stack, place orders through faults, show what happened; ends by itself."""
    from runtime.demo.show import new_directory, run_demo

    raise typer.Exit(asyncio.run(run_demo(Console(), directory=new_directory())))


@keys.command("issue")
def issue_key(
    tenant: Annotated[str, typer.Option(help="Whose operations the key reaches.")],
    role: Annotated[Role, typer.Option(help="What the key may do.")] = Role.CLIENT,
    *,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an API key. It is shown once: only its hash is kept."""
    from operations.keys import checked_name

    try:
        checked_name(tenant)
    except ValueError as error:
        _fail(str(error))

    async def issue() -> tuple[ApiKey, str]:
        async with _ledger() as ledger:
            issued = await ledger.access.issue(tenant=tenant, role=role, now=datetime.now(UTC))
            return issued.key, issued.token

    key, token = _ask(issue())
    if output is Output.JSON:
        typer.echo(json.dumps({"id": key.id, "tenant": tenant, "role": role.value, "token": token}))
        return
    _console.print(f"Key [bold]{key.id}[/bold] for {tenant} ({role.value}). Shown once:")
    typer.echo(token)


@keys.command("list")
def list_keys(*, output: OutputOption = Output.TABLE) -> None:
    """Show every key there ever was, without secrets."""

    async def read() -> tuple[ApiKey, ...]:
        async with _ledger() as ledger:
            return await ledger.access.all_keys()

    found = _ask(read())
    if output is Output.JSON:
        typer.echo(json.dumps([_key_row(key) for key in found], indent=2))
        return
    table = Table("id", "tenant", "role", "created", "revoked")
    for key in found:
        table.add_row(*(str(value or "") for value in _key_row(key).values()))
    Console().print(table)


@keys.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(help="From `keys list`.")]) -> None:
    """Revoke a key. It stops working within five seconds."""

    async def revoke() -> bool:
        async with _ledger() as ledger:
            return await ledger.access.revoke(key_id, now=datetime.now(UTC))

    if not _ask(revoke()):
        _fail(f"There is no live key {key_id}: see `tallystick keys list`.")
    _console.print(f"Key {key_id} is revoked.")


def main() -> None:
    """Run the command line."""
    app(prog_name="tallystick")


def _ledger() -> AbstractAsyncContextManager[Ledger]:
    from runtime.wiring import open_ledger

    return open_ledger(_settings(), name="cli")


def _ask(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`; a database that does not answer ends the program with a sentence."""
    try:
        return asyncio.run(work)
    except (StorageUnavailable, OSError, SQLAlchemyError) as error:
        _fail(f"The database cannot be used: {error}. Check TALLYSTICK_DATABASE_URL.")


def _settings() -> Settings:
    """The settings, with logs configured. A wrong one ends the program with its name."""
    try:
        settings = Settings()
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=False):
            name = ".".join(str(part) for part in found["loc"]).upper()
            _console.print(f"[red]TALLYSTICK_{name}[/red]: {found['msg']}", highlight=False)
        raise typer.Exit(2) from None
    configure_logs(style=settings.log_format, level=settings.log_level)
    return settings


def _key_row(key: ApiKey) -> dict[str, str | None]:
    return {
        "id": key.id,
        "tenant": key.tenant,
        "role": key.role.value,
        "created_at": key.created_at.isoformat(),
        "revoked_at": None if key.revoked_at is None else key.revoked_at.isoformat(),
    }


def _fail(message: str) -> NoReturn:
    _console.print(f"[red]{message}[/red]", highlight=False)
    raise typer.Exit(1)


if __name__ == "__main__":
    sys.exit(main())
