"""What the fault suite starts instead of `tallystick`: the same program, in the environment that
its control file names, with the mutants that it names planted.

Run by path: `child.py CONTROL_FILE COMMAND…`. Its failpoints are armed as in the product, by the
variables of `operations.failpoints`; but when the control file changes they are read anew, so that
the suite need not start a process again, for seconds, to arm it.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from operations import failpoints


class Switch:
    """Stands at every failpoint of the process instead of the product's function."""

    def __init__(self, control: Path, command: str) -> None:
        """Read `control` at the next hit, and whenever it has changed since."""
        self._control = control
        self._command = command
        self._read_at = 0
        self._fail_at: Callable[[failpoints.Failpoint], None] = failpoints.from_environment({})

    def __call__(self, point: failpoints.Failpoint) -> None:
        """A hit of `point`."""
        changed_at = os.stat(self._control).st_mtime_ns  # noqa: PTH116 - called at every hit
        if changed_at != self._read_at:
            self._read_at = changed_at
            environment = read_control(self._control)["environment"].get(self._command, {})
            self._fail_at = failpoints.from_environment(environment)
        self._fail_at(point)


def read_control(control: Path) -> dict[str, Any]:
    """What the suite wants: `environment` by command, and `mutants`."""
    return json.loads(control.read_text())


def main() -> None:
    """Read the control file, then become `tallystick`."""
    control, command = Path(sys.argv[1]), sys.argv[2]
    wanted = read_control(control)
    os.environ.update(wanted["environment"].get(command, {}))
    failpoints.fail_at = Switch(control, command)
    if wanted["mutants"] and command in {"api", "worker"}:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from support.faults.mutants import plant

        for mutant in wanted["mutants"]:
            plant(mutant)
    sys.argv = ["tallystick", *sys.argv[2:]]
    from runtime.cli import main as run

    run()


if __name__ == "__main__":
    main()
