"""Files of a data directory: private ones, written whole or not at all, and its lock."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

from runtime.embedded.errors import DirectoryInUse


def write_private(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step, readable by its owner only.

    A reader sees the old content or the new, never a part; what was written survives a power cut.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def directory_lock(directory: Path, *, name: str) -> Generator[None]:
    """Hold `directory/name` locked; the kernel frees it when this process dies, however it dies.

    Raises:
        DirectoryInUse: another process holds it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    with path.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise DirectoryInUse(
                f"{directory} is in use by process {file.read().strip() or 'of another stack'}: "
                "stop it first, or choose another --data-dir"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
