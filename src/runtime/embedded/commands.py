"""One-off commands that prepare the stack: run to their end, bounded, their output in errors."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from runtime.embedded import launch
from runtime.embedded.errors import CommandFailed

_SIGKILL = 9
_MAX_OUTPUT_CHARACTERS = 4_000


async def run_command(
    command: Sequence[str],
    *,
    what: str,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    user: str = "",
    standard_input: str = "",
) -> str:
    """Run `command` to its end and return what it wrote to its standard output.

    Raises:
        CommandFailed: it ended with a non-zero status or ran out of time; says `what`, and its
            output.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(launch.__file__),
        str(os.getpid()),
        user,
        str(_SIGKILL),
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            output, errors = await process.communicate(standard_input.encode())
    except TimeoutError:
        raise CommandFailed(f"{what} did not end within {timeout_seconds:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        said = (errors + output).decode(errors="replace").strip()
        raise CommandFailed(
            f"{what} ended with status {process.returncode}:\n{said[-_MAX_OUTPUT_CHARACTERS:]}"
        )
    return output.decode(errors="replace")
