"""`tallystick probe URL`: the command."""

import asyncio
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from runtime.probe import report, rules
from runtime.probe.configuration import Configuration, ConfigurationInvalidError, example, load
from runtime.probe.run import CannotRunError, probe_service
from runtime.probe.verdicts import Findings, Rule, Verdict

BROKEN = 1
CANNOT_RUN = 2

# A pipe has no width of its own; reasons should not be folded for it.
_PIPE_WIDTH_COLUMNS = 160


class Output(StrEnum):
    """What standard output is for."""

    TABLE = "table"
    JSON = "json"


def _print_example(wanted: bool) -> None:
    if wanted:
        typer.echo(example(), nl=False)
        raise typer.Exit


def probe(
    url: Annotated[str, typer.Argument(help="Where the service is, such as http://127.0.0.1:8000")],
    *,
    config: Annotated[
        Path, typer.Option("--config", help="What to send; see --example", show_default=False)
    ],
    output: Annotated[Output, typer.Option(help="For people or for programs")] = Output.TABLE,
    junit: Annotated[
        Path | None, typer.Option(help="Also write the verdicts as JUnit XML to this file")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--rule", help="Try this rule only (may be repeated)")
    ] = None,
    show_example: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--example",
            help="Print a commented configuration and stop",
            callback=_print_example,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Try a service with idempotency keys: one effect, one answer, whatever the client does.

    Exit status: 0 when every MUST holds, 1 when one is broken, 2 when the service cannot be tried.
    """
    errors = Console(stderr=True)
    try:
        chosen = _chosen(only)
        configuration = load(config, environment=os.environ)
        findings = _run(url, configuration, chosen, errors=errors)
        if junit is not None:
            junit.write_bytes(report.as_junit(findings))
    except (ConfigurationInvalidError, CannotRunError, OSError) as error:
        errors.print(f"probe: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(CANNOT_RUN) from error
    if output is Output.JSON:
        typer.echo(report.as_json(findings))
    else:
        console = Console()
        width = None if console.is_terminal else _PIPE_WIDTH_COLUMNS
        report.print_table(findings, console=Console(width=width))
    raise typer.Exit(0 if findings.holds else BROKEN)


def _chosen(only: list[str] | None) -> tuple[Rule, ...]:
    known = {rule.id: rule for rule in rules.ALL}
    if unknown := sorted(set(only or ()) - known.keys()):
        raise CannotRunError(f"no rule named {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(rule for rule in rules.ALL if not only or rule.id in only)


def _run(
    url: str, configuration: Configuration, chosen: tuple[Rule, ...], *, errors: Console
) -> Findings:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("probing", total=len(chosen))

        def advance(verdict: Verdict) -> None:
            bar.update(task, advance=1, description=verdict.rule.id)

        return asyncio.run(probe_service(url, configuration, rules=chosen, progress=advance))
