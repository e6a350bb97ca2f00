"""The JSON files of a run directory: one record a file, or one record a line."""

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vimco.checkpoints import write_atomically
from vimco.errors import UsageError


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a metrics file."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines(keepends=True):
        with contextlib.suppress(json.JSONDecodeError):
            if text.endswith("\n"):
                lines.append(json.loads(text))
    return lines


def append_metrics(path: Path, line: dict[str, Any]) -> None:
    """Adds a line to a metrics file, on disk before this returns: no checkpoint may be ahead of its metrics.

    JSON has no infinity: a sum that overflows becomes null.
    """
    line = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in line.items()
    }
    try:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(
            f"{path} could not be written: {error.strerror}. The last checkpoint is intact; make room, then go on with "
            "--resume."
        ) from error


def truncate_metrics(path: Path, update: int) -> None:
    """Drops the lines after an update, which are about to be written again."""
    kept = [line for line in read_metrics(path) if line["update"] <= update]
    write_atomically(path, "".join(json.dumps(line) + "\n" for line in kept).encode())


def read_json(path: Path) -> dict[str, Any]:
    """The record in a JSON file."""
    try:
        record = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    if not isinstance(record, dict):
        raise UsageError(f"{path} is not a JSON record.")
    return record


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Writes a record as JSON that people can read."""
    write_atomically(path, (json.dumps(record, indent=2) + "\n").encode())


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Waits for other processes that are changing a record of this folder, and lets none in meanwhile.

    The system lets go of the folder when the process ends, however that happens.
    """
    import fcntl  # not on Windows, where the library can be used but not the program

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"{folder} cannot be opened: {error.strerror}.") from error
    try:
        # A file system without locks is no reason to lose a result.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
