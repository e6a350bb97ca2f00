"""Writing a file so that no crash leaves half of it."""

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes, previous: Path | None = None) -> None:
    """Writes a file in one step: at any moment, and after a crash, the path holds the old content or the new, whole.

    The old content is kept under the name `previous`, if one is given; a crash between the two renames leaves it there
    alone. An OSError leaves everything as it was.
    """
    # The process number keeps two writers apart. The tempfile module would too, but makes files that only their owner
    # can read.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            path.replace(previous)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    _flush_directory(path.parent)


def _flush_directory(folder: Path) -> None:
    """Makes a rename outlive a crash of the machine, where the file system lets a folder be flushed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
