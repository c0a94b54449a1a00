"""Provider calls that are under way in this process."""

from collections.abc import Callable, Generator
from contextlib import contextmanager


class CallsUnderWay:
    """Counts the calls of local activities: each holds up a workflow task, and no processor."""

    def __init__(self) -> None:
        """There are none, and nobody wants to know."""
        self.count = 0
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a call begins."""
        self._listeners.append(listener)

    @contextmanager
    def one(self) -> Generator[None]:
        """Count one for as long as it lasts."""
        self.count += 1
        for listener in self._listeners:
            listener()
        try:
            yield
        finally:
            self.count -= 1
