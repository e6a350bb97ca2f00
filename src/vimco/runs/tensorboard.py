"""TensorBoard event files: a copy of `metrics.jsonl`."""

import shutil
from typing import Any

from vimco.errors import UsageError
from vimco.runs.directory import Run
from vimco.runs.observer import Observer

NOT_PLOTTED = ("update", "epoch", "seconds")


class EventFiles(Observer):
    """An observer that writes the lines of metrics to the folder `tensorboard` of the run directory."""

    def __init__(self) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UsageError('--tensorboard needs an extra: pip install "vimco[tensorboard]".') from None
        self.make_writer = SummaryWriter
        self.writer: Any = None

    def started(self, run: Run, update: int, total: int | None) -> None:  # noqa: ARG002
        """Write the files again from the metrics so far.

        They then contain lines that a killed process had not yet written, and no line twice.
        """
        folder = run.path / "tensorboard"
        if folder.is_symlink():
            raise UsageError(f"{folder} is a symbolic link, and nothing is written through it: remove it.")
        shutil.rmtree(folder, ignore_errors=True)
        self.writer = self.make_writer(str(folder))
        for line in run.metrics():
            self.logged(line)

    def logged(self, line: dict[str, Any]) -> None:
        """Add a line."""
        for name, value in line.items():
            if name not in NOT_PLOTTED and value is not None:
                self.writer.add_scalar(name, value, line["update"])

    def ended(self) -> None:
        """Write the remaining lines, and close the file."""
        if self.writer is not None:
            self.writer.close()
