"""Processes on this machine that work on tasks: each with threads of its own, stopped without loss.

Another engine takes their place as an object in the clothes of `LocalWorkers`, which are those of `execution.Workers`:
it says how many tasks it takes at a time, makes a standard `concurrent.futures.Executor`, and can be asked to stop.
"""

import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event


class LocalWorkers:
    """A number of processes, each held to its own cores: how many threads a run has decides its last bits."""

    def __init__(self, number: int, threads: int | None = None):
        self.number = number
        self.threads = threads or max(1, len(_cores()) // number)
        self._context = multiprocessing.get_context("spawn")  # a fork of a process that runs JAX may hang
        self._stopping = self._context.Event()

    def executor(self) -> Executor:
        """A new pool; also after one has been broken by the death of a process."""
        counter = self._context.Value("i", 0)
        return ProcessPoolExecutor(
            self.number, self._context, initializer=_start, initargs=(counter, self.threads, self._stopping)
        )

    def stop(self) -> None:
        """Asks every process to save what it is at, and to end."""
        self._stopping.set()


def kill_all() -> None:
    """Ends every child process at once. What they had saved stays."""
    for child in multiprocessing.active_children():
        child.kill()


def is_stopping() -> bool:
    """Inside a worker: whether it has been asked to stop."""
    return _stopping is not None and _stopping.is_set()


# Inside a worker:
at_work = threading.Lock()  # held during a task, so that an orphan ends only between tasks
_stopping: Event | None = None


def _start(counter: "Synchronized[int]", threads: int, stopping: Event) -> None:
    """Runs first in each process, before JAX looks at how many cores there are."""
    global _stopping
    _stopping = stopping
    with counter.get_lock():
        place = counter.value
        counter.value += 1
    if sys.platform == "linux":
        cores = _cores()
        os.sched_setaffinity(0, {cores[(place * threads + i) % len(cores)] for i in range(threads)})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one tells us what to do
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Should the first process be killed, saves and ends: an idle worker would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    assert _stopping is not None
    _stopping.set()
    with at_work:
        os._exit(1)


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(os.cpu_count() or 1))
