"""Crashes at chosen steps: a process ends before, within or after a write, flush, rename or removal of a file."""

import contextlib
import os
import re
import signal
from functools import partial
from pathlib import Path

import pytest

from vimco import files

STEPS = ("_write", "_flush", "_rename", "_remove")  # every change of a file is one of these functions
HOW = ("before", "within", "after")


class Killed(BaseException):
    """The simulated end of the process. It is not an `Exception`, so that no code handles it."""


def raise_killed():
    """End a simulated process: its memory is lost, its files stay."""
    raise Killed


def send_sigkill():
    """End this process."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def killed_where(is_here, how="before", end=raise_killed):
    """End the process at the first step where `is_here(number, place)`: before it, after it, or within it, if a write.

    Steps are counted from 1; a place is a step's name and the name of its file. As in a killed process, no cleanup
    happens afterwards. Yield the list of places so far.
    """
    taken, is_dead = [], False

    def step(name, original, *arguments):
        nonlocal is_dead
        if is_dead:
            raise Killed
        taken.append((name, _file_name(arguments[0])))
        is_dead = is_here(len(taken), taken[-1])
        if not is_dead:
            original(*arguments)
            return
        if how == "within" and name == "_write":
            descriptor, content = arguments
            original(descriptor, content[: len(content) // 2])
        elif how == "after":
            original(*arguments)
        end()

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(files, name, partial(step, name, getattr(files, name)))
        yield taken


def killed_at(step, how="before", end=raise_killed):
    """End the process at the n-th step."""
    return killed_where(lambda number, _place: number == step, how, end)


def counted_steps():
    """Count the steps of a process that is not killed."""
    return killed_at(None)


def _file_name(which):
    """Return the name of a file, from its path or descriptor, without process and time; a folder has none.

    The name is that of a place where to crash, which is new only once.
    """
    path = Path(f"/proc/self/fd/{which}").readlink() if isinstance(which, int) else which
    return "" if path.is_dir() else re.sub(r"\.\d+(?=\.|$)", "", path.name)
