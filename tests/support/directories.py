"""Directories that other system users can reach, as PostgreSQL must when root starts it.

pytest's own temporary directories are no use: it closes their parent to others whenever another
pytest starts, also under a running server.
"""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_directory() -> Generator[Path]:
    """A new directory, removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="tallystick-test-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
