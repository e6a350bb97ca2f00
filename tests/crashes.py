"""Crashes at chosen steps: a process ends before, within or after a write, flush, rename or removal of a file."""

import contextlib

import pytest

from vimco import files

STEPS = ("_write", "_flush", "_rename", "_remove")  # every change of a file is one of these functions
HOW = ("before", "within", "after")


class Killed(BaseException):
    """The process ends here. Not an Exception: nobody may handle it."""


@contextlib.contextmanager
def killed_at(step, how="before"):
    """Ends the process at the n-th step, counted from 1: before it, after it, or within it, if it is a write.

    What a killed process cannot do any more, clearing up, does not happen either. Yields the list of steps so far.
    """
    taken = []

    def counted(name, original):
        def replacement(*arguments):
            if step is not None and len(taken) >= step:
                raise Killed
            taken.append(name)
            if len(taken) == step:
                if how == "within" and name == "_write":
                    descriptor, content = arguments
                    original(descriptor, content[: len(content) // 2])
                elif how == "after":
                    original(*arguments)
                raise Killed
            original(*arguments)

        return replacement

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(files, name, counted(name, getattr(files, name)))
        yield taken


def counted_steps():
    """Counts the steps of a process that lives."""
    return killed_at(None)
