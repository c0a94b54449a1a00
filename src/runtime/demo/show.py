"""Runs the demo and shows it as tables; the exit status says whether everything held."""

import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from runtime.demo import stories
from runtime.demo.stories import Story, World
from runtime.embedded.errors import EmbeddedError
from runtime.embedded.stack import EmbeddedStack, addresses_table

Tell = Callable[[World, str], Awaitable[Story]]

STORIES: tuple[tuple[str, Tell], ...] = (
    ("demo-order-1", stories.placed_once),
    ("demo-order-2", stories.worker_killed),
    ("demo-order-3", stories.carrier_refuses),
)


async def run_demo(console: Console, *, directory: Path) -> int:
    """Boot a stack in a new `directory`, tell the stories, show what held; 0 if all of it did."""
    stack = EmbeddedStack(directory, report=lambda line: console.print(f"[dim]{line}[/dim]"))
    began = time.monotonic()
    try:
        async with stack, httpx.AsyncClient(timeout=90, trust_env=False) as http:
            console.print(addresses_table(stack))
            console.print(f"[dim]ready after {time.monotonic() - began:.1f} s[/dim]")
            told = [await _tell(World(stack, http), key, tell, console) for key, tell in STORIES]
            _show_runs(told, stack, console, directory)
    except (EmbeddedError, httpx.HTTPError, TimeoutError) as error:
        console.print(f"[red]The demo could not be run: {error!r}[/red]")
        console.print(f"The logs are in {directory / 'logs'}")
        return 2
    held = all(story.held for story in told)
    verdict = "[green]Everything held.[/green]" if held else "[red]Not everything held.[/red]"
    console.print(f"{verdict} {time.monotonic() - began:.0f} s in all.")
    return 0 if held else 1


async def _tell(world: World, key: str, tell: Tell, console: Console) -> Story:
    began = time.monotonic()
    with console.status(f"{(tell.__doc__ or '').splitlines()[0]}"):
        story = await tell(world, key)
    table = Table(title=f"{story.title} — {time.monotonic() - began:.1f} s", title_justify="left")
    table.add_column("promised")
    table.add_column("seen", overflow="fold")
    table.add_column("held")
    for check in story.checks:
        table.add_row(check.promise, check.seen, "[green]yes[/green]" if check.held else "[red]NO")
    console.print(table)
    return story


def _show_runs(told: list[Story], stack: EmbeddedStack, console: Console, directory: Path) -> None:
    """Where to look. The demo ends with its stack; its data stays, and so do the runs."""
    console.print(f"API documentation: {stack.api_url}/docs", highlight=False)
    console.print(f"Temporal UI:       {stack.temporal.ui_url}", highlight=False)
    for story in told:
        console.print(f"  {story.title}: {story.run_url}", highlight=False, soft_wrap=True)
    console.print(
        "These addresses end with the demo. To look around, keep the stack running:\n"
        f"  .venv/bin/tallystick dev --data-dir {directory}",
        highlight=False,
        soft_wrap=True,
    )


def new_directory() -> Path:
    """Where the demo keeps its data, empty."""
    directory = Path(".tallystick") / "demo"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory
