"""Locks of a run directory: those of the system, and a lease for file systems that several machines share.

The system releases a lock when its process ends, even if it is killed. On a network file system the lock of a machine
that died may outlive it, and some file systems do not show locks to other machines. So the lock file also says
whose it is, and its time is renewed every few seconds while it is held. Another machine watches it: a lock that is
renewed belongs to a living process, and one that is not is replaced by a new file. If its owner comes back, it finds
another file in its place, and writes nothing (`Lock.check`).
"""

import contextlib
import json
import os
import platform
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock

from vimco.errors import UsageError, printable
from vimco.files import BINARY, NO_BLOCK, NO_FOLLOW, open_descriptor, rename_file

RENEWAL_SECONDS = 5.0
EXPIRY_SECONDS = 20.0  # without a renewal for so long, the process counts as dead
OLD_SECONDS = 600.0  # a lock that was renewed so long ago need not be watched, whatever the clocks say
POLL_SECONDS = 0.5
LARGEST_OWNER = 1_000
RECORDS = ".records.lock"
READ_WRITE = os.O_RDWR | NO_BLOCK | NO_FOLLOW | BINARY


class LockedError(UsageError):
    """A run directory in which another process is training."""


@dataclass(frozen=True)
class Lock:
    """The lock of a run directory, which lets only this process train in it."""

    path: Path
    descriptor: int  # of its lock file

    def check(self) -> None:
        """Refuse to continue if the path is now another directory, or its lock another file."""
        if not _is_at(self.path / ".lock", self.descriptor):
            raise UsageError(
                f"{self.path} was moved, removed or replaced while it was being trained in. Training stopped and wrote "
                "nothing to the new one; use --resume where the directory is now."
            )


@contextlib.contextmanager
def lock_for_training(path: Path) -> Iterator[Lock]:
    """Lock a run directory for training; raise `LockedError` if another process has locked it."""
    with contextlib.ExitStack() as stack:
        descriptor = _descriptor(path / ".lock", READ_WRITE | os.O_CREAT)
        stack.callback(os.close, descriptor)
        is_free, (host, process) = _lock(descriptor, path), _owner(descriptor)
        if host not in ("", platform.node()):
            if _is_renewed(path / ".lock", descriptor):
                raise LockedError(
                    f"Another process is training in {path}: process {process} of {host}. Wait for it, or stop it "
                    "first; if it was killed just now, try again in half a minute."
                )
            warnings.warn(
                f"{path} was left locked by process {process} of {host}, which no longer renews its lock and "
                "counts as dead.",
                stacklevel=3,
            )
            descriptor = _replace(path, descriptor)
            stack.callback(os.close, descriptor)
        elif not is_free:
            raise LockedError(f"Another process is training in {path}: wait for it, or stop it first.")
        owner = json.dumps({"host": platform.node(), "process": os.getpid()})
        _write_owner(descriptor, owner)
        stack.callback(_write_owner, descriptor, "")
        stack.enter_context(_keep_renewing(descriptor))
        yield Lock(path, descriptor)


def wait_for_lock(path: Path, seconds: float) -> None:
    """Wait while another process trains in a run directory; after so many seconds raise `LockedError`."""
    deadline = time.monotonic() + seconds
    while (path / ".lock").exists():
        try:
            with lock_for_training(path):
                return
        except LockedError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def lock_records(folder: Path) -> Iterator[None]:
    """Lock the records of this folder; wait while another process changes them.

    The lock is that of a file: network file systems do not show locks of folders to other machines.
    """
    descriptor = _descriptor(folder / RECORDS, READ_WRITE | os.O_CREAT)
    try:
        # On a file system without locks, write without one, so that the result is not lost.
        with contextlib.suppress(OSError):
            filelock.lock_descriptor(descriptor)
        yield
    finally:
        os.close(descriptor)


def _descriptor(file: Path, flags: int) -> int:
    try:
        return os.open(file, flags, 0o666)
    except OSError as error:
        raise UsageError(f"{file.parent} cannot be written to: {error.strerror}.") from error


def _lock(descriptor: int, path: Path) -> bool:
    """Take the system's lock; return whether it was free."""
    try:
        return filelock.lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        raise UsageError(
            f"The file system of {path} offers no locks ({error.strerror}), so nothing would keep two processes "
            "from training in it. Choose an --output elsewhere, or have it mounted with locks (Lustre: -o flock)."
        ) from error


def _owner(descriptor: int) -> tuple[str, int]:
    """Return host and process in a lock file; "" and 0 if it says nothing sensible."""
    try:
        record = json.loads(os.pread(descriptor, LARGEST_OWNER, 0))
        return printable(str(record["host"])), int(record["process"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return "", 0


def _write_owner(descriptor: int, text: str) -> None:
    """Write whose lock it is. A file with a second name, a hard link to any other file, is not changed."""
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_nlink == 1:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)


@contextlib.contextmanager
def _keep_renewing(descriptor: int) -> Iterator[None]:
    """Renew the time of a lock file in a thread."""
    is_over = threading.Event()

    def renew() -> None:
        while not is_over.wait(RENEWAL_SECONDS):
            with contextlib.suppress(OSError, NotImplementedError, TypeError):  # Windows renews nothing
                os.utime(descriptor)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _is_renewed(file: Path, descriptor: int) -> bool:
    """Watch a lock file; return whether its owner renews or releases it, or another process replaces it."""
    first = os.fstat(descriptor).st_mtime_ns
    if time.time() - first / 1e9 > OLD_SECONDS:
        return False
    deadline = time.monotonic() + EXPIRY_SECONDS
    while time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        try:
            # On NFS a file that is opened anew shows its present time.
            with open_descriptor(file, os.O_RDONLY | NO_BLOCK | NO_FOLLOW) as again:
                if os.fstat(again).st_mtime_ns != first or not os.path.samestat(os.fstat(again), os.fstat(descriptor)):
                    return True
        except OSError:
            return True
    return False


def _replace(path: Path, dead: int) -> int:
    """Return the descriptor of a new, locked file in the place of a dead process's lock."""
    temporary = path / f".lock.{uuid.uuid4().hex}.part"
    descriptor = _descriptor(temporary, READ_WRITE | os.O_CREAT | os.O_EXCL)
    try:
        _lock(descriptor, path)
        if _is_at(path / ".lock", dead):
            rename_file(temporary, path / ".lock")
        if not _is_at(path / ".lock", descriptor):
            raise LockedError(f"Another process has just begun to train in {path}.")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_at(file: Path, descriptor: int) -> bool:
    """Return whether a path, itself no link, is the open file."""
    try:
        return os.path.samestat(file.stat(follow_symlinks=False), os.fstat(descriptor))
    except OSError:
        return False
