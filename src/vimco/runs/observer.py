"""Observers: who is told about a run as it goes."""

import warnings
from typing import Any

from vimco.runs.directory import Run
from vimco.runs.experiment import Experiment


class Observer:
    """Told about a run as it goes; does nothing by itself but pass warnings on.

    The terminal, the event files of TensorBoard and the pictures at the end are observers.
    """

    def downloaded(self, name: str, done: int, total: int) -> None:
        """So many bytes of a file of the data set have come, of how many."""

    def started(self, run: Run, update: int, total: int | None) -> None:
        """Training goes on from `update`; `total` is None where the budget is one of time."""

    def advanced(self, update: int, seconds: float, latest: dict[str, Any]) -> None:
        """A compiled call has ended; `seconds` of training so far, and the latest line of metrics."""

    def logged(self, line: dict[str, Any]) -> None:
        """A line of metrics has been written."""

    def finished(self, run: Run, experiment: Experiment, model: Any) -> None:
        """The run has come to the end of its budget; `model` is the best by validation."""

    def ended(self) -> None:
        """The session is over, however it ended: time to close files."""

    def warned(self, message: str) -> None:
        """Something that a person should know."""
        warnings.warn(message, stacklevel=2)
