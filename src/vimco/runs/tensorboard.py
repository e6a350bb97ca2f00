"""TensorBoard event files, for those who look at runs with it: a copy of `metrics.jsonl`, which stays the original."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vimco.errors import UsageError
from vimco.runs.directory import Run

NOT_PLOTTED = ("update", "epoch", "seconds")


def summary_writer() -> type:
    """The class that writes event files. It is an extra, so it may be missing."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise UsageError('--tensorboard needs an extra: pip install "vimco[tensorboard]".') from None
    return SummaryWriter


@contextlib.contextmanager
def event_files(run: Run) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Gives a function that adds a line of metrics to the run's event files, or does nothing if it has none.

    They are made anew from the metrics so far: what a killed process had not yet written is then there, and nothing is
    there twice.
    """
    if not run.config.tensorboard:
        yield lambda _line: None
        return
    folder = run.path / "tensorboard"
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.closing(summary_writer()(str(folder))) as writer:

        def add(line: Mapping[str, Any]) -> None:
            for name, value in line.items():
                if name not in NOT_PLOTTED and value is not None:
                    writer.add_scalar(name, value, line["update"])

        for line in run.metrics():
            add(line)
        yield add
