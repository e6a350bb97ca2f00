"""The seam between a study and what runs its commands: tasks, jobs, and the engine that starts them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@runtime_checkable  # for beartype, in the tests
class Task(Protocol):
    """Something to be done by a command of the program `vimco`."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    def arguments(self) -> list[str]:
        """The words after `vimco`."""
        ...


@dataclass(frozen=True)
class Ending:
    """How a job ended."""

    notes: tuple[str, ...] = ()  # sentences for the person
    failure: str | None = None
    is_stopped: bool = False  # it was asked to stop, and has saved what it had done
    is_lost: bool = False  # its process was killed, by the system for want of memory say


@runtime_checkable
class Job(Protocol):
    """A command under way."""

    def ending(self) -> Ending | None:
        """How it ended; None while it runs."""
        ...

    def stop(self) -> None:
        """Ask it to save what it has done, and to end."""
        ...

    def kill(self) -> None:
        """End it at once. What it had saved stays."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Where commands run: `local.LocalWorkers`, or anything else with these two members, such as a cluster."""

    number: int  # jobs at a time

    def start(self, arguments: Sequence[str]) -> Job:
        """Start the program `vimco` with these arguments, in the current directory."""
        ...
