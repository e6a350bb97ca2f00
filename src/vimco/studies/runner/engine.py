"""The interface between a study and the engine that runs its commands: tasks, jobs, engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from vimco.errors import UsageError


class LostEngineError(UsageError):
    """An engine that can start nothing any more."""


@runtime_checkable  # for beartype, in the tests
class Task(Protocol):
    """A piece of work that a command of the program `vimco` does."""

    @property
    def name(self) -> str:
        """The readable name."""

    def arguments(self) -> list[str]:
        """Return the arguments of `vimco`."""


@dataclass(frozen=True)
class Ending:
    """How a job ended."""

    notes: tuple[str, ...] = ()  # sentences for the user
    failure: str | None = None
    is_stopped: bool = False  # it stopped on request, and has saved its state
    is_lost: bool = False  # its process was killed, for example by the system when memory ran out


@runtime_checkable
class Job(Protocol):
    """A running command."""

    def ending(self) -> Ending | None:
        """Return how it ended; None while it runs."""

    def stop(self) -> None:
        """Ask it to save its state and end."""

    def kill(self) -> None:
        """End it at once, without saving."""


@runtime_checkable
class Engine(Protocol):
    """The place where commands run: `local.LocalWorkers`, `cluster.DaskCluster`, or any object with these members."""

    @property
    def number(self) -> int:
        """Jobs at a time; it may change."""

    def start(self, arguments: Sequence[str]) -> Job:
        """Start the program `vimco` with these arguments, in the current directory."""
