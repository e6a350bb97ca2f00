"""The commands of a study where they run: a process each, which saves its state and ends when its owner dies.

This is outside the package, because importing the package takes seconds: a worker of a cluster imports only this.
"""

import contextlib
import importlib.metadata
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

# A process that replaces itself by the command. First it asks Linux for SIGTERM when its parent dies, so that
# the run saves its state and ends too, and sets its cores, before JAX counts them.
LAUNCHER = """
import ctypes, os, sys
parent, cores = sys.argv[1:3]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG, SIGTERM
    if os.getppid() != int(parent):
        sys.exit(143)
    os.sched_setaffinity(0, map(int, cores.split(",")))
os.execv(sys.argv[3], sys.argv[3:])
"""
POLL_SECONDS = 0.2
EVENT_SECONDS = 1.0  # between two questions to the scheduler
STOPPED = 128 + signal.SIGTERM
MOST_TEXT = 20_000  # characters of an error message

_lock = threading.Lock()
_taken: set[int] = set()  # places on this worker


def available_cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(os.cpu_count() or 1))


def cores_of(place: int, threads: int) -> list[int]:
    """Return the cores of one of several processes; if they need more than there are, they share them."""
    cores = available_cores()
    return sorted({cores[(place * threads + i) % len(cores)] for i in range(threads)})


class Process:
    """A Python command in a separate process."""

    def __init__(self, command: Sequence[str], cores: Sequence[int], folder: str | None = None):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        self._is_asked = False
        self._result: tuple[int, str] | None = None
        launcher = (sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), ",".join(map(str, cores)))
        self._process = subprocess.Popen(
            [*launcher, sys.executable, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, "NO_COLOR": "1", "FORCE_COLOR": ""},
            process_group=0,  # Ctrl-C in a terminal reaches only the owner, which then stops its runs
        )

    def result(self) -> tuple[int, str] | None:
        """Return its exit status and the end of its stderr; None while it runs."""
        if self._result is None and self._process.poll() is not None:
            with self._errors:
                self._errors.seek(0)
                text = self._errors.read().decode(errors="replace")
            self._result = self._process.returncode, text[-MOST_TEXT:]
        return self._result

    def stop(self) -> None:
        """Ask it to save and end, once: a second signal would end it without saving."""
        if not self._is_asked and self._process.poll() is None:
            self._process.terminate()
        self._is_asked = True

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


# What follows runs on the workers of a Dask cluster.


def sees(path: str) -> bool:
    """Return whether this machine sees a file."""
    return Path(path).exists()


def different_versions(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return what was found in another version than expected."""
    return [f"{name} {found.get(name)} instead of {v}" for name, v in expected.items() if found.get(name) != v]


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed here."""
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def run_on_worker(
    command: Sequence[str], folder: str, threads: int | None, stop_event: str, versions: dict[str, str]
) -> tuple[int, str]:
    """Run a command as a process of this worker; return its exit status and the end of its stderr.

    The process is asked to save and end if the study sets the event, if the worker closes, and if the scheduler
    withdraws the task, as it does when the study has died or the task was given to another worker. A worker that closes
    hands the task back: its result might still reach the study, as that of a run which was stopped.
    """
    import distributed

    worker: Any = distributed.get_worker()
    key = worker.get_current_task()
    event = distributed.Event(stop_event, client=distributed.get_client())
    different = different_versions(versions, installed_versions(versions))
    if different:
        return 2, f"Error: The worker at {worker.address} has {', '.join(different)}: install the same versions there."
    if not Path(folder).is_dir():
        return 2, f"Error: The worker at {worker.address} does not see {folder}: a common file system is needed."

    def is_closing() -> bool:
        return worker.status not in (distributed.Status.running, distributed.Status.paused)

    def is_withdrawn() -> bool:
        task = worker.state.tasks.get(key)
        return is_closing() or task is None or task.state != "executing"

    def is_stopping() -> bool:
        try:
            return event.is_set()
        except Exception:  # without a scheduler nobody waits for the result
            return True

    with _place() as place:
        if is_closing():
            raise distributed.Reschedule
        if is_withdrawn() or is_stopping():
            return STOPPED, ""
        shares = threads or max(1, len(available_cores()) // worker.state.nthreads)
        process = Process(command, cores_of(place, shares), folder)
        next_question = time.monotonic() + EVENT_SECONDS
        while (result := process.result()) is None:
            time.sleep(POLL_SECONDS)
            is_asked = is_withdrawn()
            if not is_asked and time.monotonic() > next_question:
                is_asked, next_question = is_stopping(), time.monotonic() + EVENT_SECONDS
            if is_asked:
                process.stop()
    if is_closing() and result[0] in (STOPPED, -signal.SIGTERM):
        raise distributed.Reschedule
    return result


@contextlib.contextmanager
def _place() -> Iterator[int]:
    """Hold the lowest free place of this worker, which decides about the cores."""
    with _lock:
        place = next(number for number in range(len(_taken) + 1) if number not in _taken)
        _taken.add(place)
    try:
        yield place
    finally:
        with _lock:
            _taken.remove(place)
