"""Files: this package writes all its files, and opens all files for reading, through this module."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vimco.errors import UsageError

# Windows lacks these flags; there the library works, but not the program.
NO_BLOCK, NO_FOLLOW = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOFOLLOW", 0)
BINARY = getattr(os, "O_BINARY", 0)


# Each change of a file is one of these four steps. Tests replace them to stop a program before, within or after any.


def _write(descriptor: int, content: bytes) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def _flush(descriptor: int) -> None:
    os.fsync(descriptor)


def _rename(path: Path, target: Path) -> None:
    path.replace(target)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes, previous: Path | None = None) -> None:
    """Write a file in one step: at any moment, and after a crash, the path holds the old content or the new, whole.

    The old content is kept as `previous`, if given; after a crash between the two renames it is only there. A symbolic
    link is replaced, not followed. An OSError leaves everything as it was.
    """
    # The process number separates two writers. The tempfile module would too, but only the owner can read its files.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _remove(temporary)
        with open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            _write(descriptor, content)
            _flush(descriptor)
        if previous is not None and path.exists():
            _rename(path, previous)
        _rename(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            _remove(temporary)
    _flush_directory(path.parent)


def write_file(path: Path, content: bytes, previous: Path | None = None) -> None:
    """Write a file as `replace_file` does; an OSError, such as a full disk, becomes a `UsageError`."""
    with _as_usage_error(path, "What was there before is intact"):
        replace_file(path, content, previous)


def append_to_file(path: Path, content: bytes) -> None:
    """Append to a regular file; the content is on disk when this returns."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_BLOCK | NO_FOLLOW
    with _as_usage_error(path, "The last checkpoint is intact"), open_descriptor(path, flags) as descriptor:
        _require_regular(descriptor, path)
        _write(descriptor, content)
        _flush(descriptor)


def rename_file(path: Path, target: Path) -> None:
    """Rename a file, and replace the target if there is one."""
    with _as_usage_error(target, "What was there before is intact"):
        _rename(path, target)
        _flush_directory(target.parent)


def remove_file(path: Path) -> None:
    """Remove a file, if there is one."""
    with _as_usage_error(path, "Nothing was lost"):
        _remove(path)


def remove_unfinished_files(folder: Path, name: str = "*") -> None:
    """Remove the half-written files of a killed process. Only the process that holds them, or the folder, may do this.

    `name` is that of a single file, as it will be called.
    """
    for path in folder.glob(f".{name}.*.part"):
        _remove(path)


@contextlib.contextmanager
def open_descriptor(path: Path, flags: int) -> Iterator[int]:
    """Open a file or a folder by flags of the system; give its descriptor, and close it."""
    descriptor = os.open(path, flags | BINARY, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _as_usage_error(path: Path, what_remains: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path} could not be written: {error.strerror or error}. {what_remains}; correct this (free space on a "
            "full disk), then try again or use --resume."
        ) from error


def _flush_directory(folder: Path) -> None:
    """Make a rename survive a crash of the machine, where the file system can flush a folder."""
    with contextlib.suppress(OSError), open_descriptor(folder, os.O_RDONLY) as descriptor:
        _flush(descriptor)


def in_home(name: str | Path) -> Path:
    """Return the path of a name, in which ~ is the home directory; a user who does not exist is a `UsageError`."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{name} cannot be found: {str(error).rstrip('.')}.") from None


@contextlib.contextmanager
def open_regular(path: Path, limit: int, *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file of at most `limit` bytes for reading.

    Anything else is an OSError: a pipe or a device that would block or never end, a larger file, and with
    `follow=False` a symbolic link.
    """
    flags = os.O_RDONLY | NO_BLOCK | (0 if follow else NO_FOLLOW)
    with open_descriptor(path, flags) as descriptor:
        if _require_regular(descriptor, path) > limit:
            raise OSError(errno.EFBIG, f"It is larger than {limit:,} bytes", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file


def read_file(path: Path, limit: int, *, follow: bool = True) -> bytes:
    """Return the content of a file that `open_regular` accepts."""
    parts, length = [], 0
    with open_regular(path, limit, follow=follow) as file:
        wanted = os.fstat(file.fileno()).st_size  # Python reserves what it is asked for, so this is not the limit
        while part := file.read(wanted + 1):  # a file may grow after the check, and files in /proc report no size
            parts.append(part)
            length, wanted = length + len(part), 2**20
            if length > limit:
                raise OSError(errno.EFBIG, f"It is larger than {limit:,} bytes", str(path))
    return b"".join(parts)


def _require_regular(descriptor: int, path: Path) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    return status.st_size
