"""Observers: callbacks for the events of a run."""

import warnings
from typing import Any

from vimco.runs.directory import Run
from vimco.runs.experiment import Experiment


class Observer:
    """Callbacks for the events of a run; by default they do nothing, except that warnings are issued.

    The terminal, the event files of TensorBoard and the pictures at the end are observers.
    """

    def downloaded(self, name: str, done: int, total: int) -> None:
        """Handle the progress of a download: bytes received, and bytes in all."""

    def started(self, run: Run, update: int, total: int | None) -> None:
        """Handle the start of training at `update`; `total` is None for a budget of time."""

    def advanced(self, update: int, seconds: float, latest: dict[str, Any]) -> None:
        """Handle the end of a compiled call: `seconds` of training so far, and the latest line of metrics."""

    def logged(self, line: dict[str, Any]) -> None:
        """Handle a new line of metrics."""

    def finished(self, run: Run, experiment: Experiment, model: Any) -> None:
        """Handle the end of the budget; `model` is the best by validation."""

    def ended(self) -> None:
        """Handle the end of the session, after success or failure: close files."""

    def warned(self, message: str) -> None:
        """Handle a warning."""
        warnings.warn(message, stacklevel=2)
