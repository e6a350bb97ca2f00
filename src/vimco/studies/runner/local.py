"""The engine of this machine: each command is a separate process on its own cores, stopped by a signal."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from vimco.plugins import plugin_arguments
from vimco.studies.runner.engine import Ending

# A process that replaces itself by the command. First it asks Linux for SIGTERM when the study's process dies, so that
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
PROGRAM = (sys.executable, "-c", "from vimco.cli import main; main()")
STOPPED = (signal.SIGINT, signal.SIGTERM)


class LocalWorkers:
    """A number of processes, each on its own cores: the number of threads determines the last bits of a run."""

    def __init__(self, number: int, threads: int | None = None):
        self.number = number
        self.threads = threads or max(1, len(_cores()) // number)
        self._places: list[_Process | None] = [None] * number

    def start(self, arguments: Sequence[str]) -> "_Process":
        """Start the program on free cores."""
        place = next(i for i, process in enumerate(self._places) if process is None or process.ending() is not None)
        cores = _cores()
        own = {cores[(place * self.threads + i) % len(cores)] for i in range(self.threads)}
        process = _Process(arguments, sorted(own))
        self._places[place] = process
        return process


class _Process:
    """A command in a separate process."""

    def __init__(self, arguments: Sequence[str], cores: Sequence[int]):
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        self.is_asked = False
        self.known_ending: Ending | None = None
        launcher = (sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), ",".join(map(str, cores)))
        self.process = subprocess.Popen(
            [*launcher, *PROGRAM, *plugin_arguments(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            env={**os.environ, "NO_COLOR": "1", "FORCE_COLOR": ""},
            process_group=0,  # Ctrl-C in a terminal reaches only the study, which then stops its runs
        )

    def ending(self) -> Ending | None:
        """Return how it ended; None while it runs."""
        if self.known_ending is None and self.process.poll() is not None:
            with self.errors:
                self.errors.seek(0)
                text = self.errors.read().decode(errors="replace")
            self.known_ending = _ending(self.process.returncode, text)
        return self.known_ending

    def stop(self) -> None:
        """Ask it to stop, once: a second signal would end it without saving."""
        if not self.is_asked and self.process.poll() is None:
            self.process.terminate()
        self.is_asked = True

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        self.ending()


def _ending(status: int, text: str) -> Ending:
    """Return how a command ended, from its exit status and its stderr."""
    notes = tuple(re.findall(r"^Note: (.*)$", text, re.MULTILINE))
    if status == 0:
        return Ending(notes)
    if (-status if status < 0 else status - 128) in STOPPED:
        return Ending(notes, is_stopped=True)
    if status < 0:
        return Ending(notes, is_lost=True)
    _, found, message = text.rpartition("Error: ")
    lines = text.strip().splitlines()
    return Ending(notes, failure=message.strip() if found else lines[-1] if lines else f"exit status {status}")


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(os.cpu_count() or 1))
