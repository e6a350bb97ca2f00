"""The engine of this machine: each command is a separate process on its own cores, stopped by a signal."""

import re
import signal
from collections.abc import Sequence

from vimco.plugins import plugin_arguments
from vimco.studies.runner.engine import Ending
from vimco_worker import Process, available_cores, cores_of

# The arguments of Python. With -P no file of the current folder takes the place of a module.
PROGRAM = ("-P", "-c", "from vimco.cli import main; main()")
STOPPED = (signal.SIGINT, signal.SIGTERM)


class LocalWorkers:
    """A number of processes, each on its own cores: the number of threads determines the last bits of a run."""

    def __init__(self, number: int, threads: int | None = None):
        self.number = number
        self.threads = threads or max(1, len(available_cores()) // number)
        self._places: list[_Job | None] = [None] * number

    def start(self, arguments: Sequence[str]) -> "_Job":
        """Start the program on free cores."""
        place = next(i for i, job in enumerate(self._places) if job is None or job.ending() is not None)
        self._places[place] = job = _Job(command(arguments), cores_of(place, self.threads))
        return job


class _Job(Process):
    """A command in a process of this machine."""

    def ending(self) -> Ending | None:
        """Return how it ended; None while it runs."""
        result = self.result()
        return None if result is None else ending_of(*result)


def command(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of Python that call the program `vimco`, with the user's plugins."""
    return [*PROGRAM, *plugin_arguments(), *arguments]


def ending_of(status: int, text: str) -> Ending:
    """Return how a command ended, from its exit status and its stderr."""
    notes = tuple(re.findall(r"^Note: (.*)$", text, re.MULTILINE))
    if status == 0:
        return Ending(notes)
    if (-status if status < 0 else status - 128) in STOPPED:
        return Ending(notes, is_stopped=True)
    if status < 0:
        return Ending(notes, is_lost=True)
    *_, message = ["", *re.split(r"^Error: ", text, flags=re.MULTILINE)[1:]]
    lines = text.strip().splitlines()
    return Ending(notes, failure=message.strip() or (lines[-1] if lines else f"exit status {status}"))
