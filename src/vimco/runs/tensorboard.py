"""TensorBoard event files: a copy of `metrics.jsonl`."""

import shutil
import struct
import time
from pathlib import Path
from typing import Any

from vimco.errors import UsageError
from vimco.files import append_to_file, write_file
from vimco.runs.directory import Run
from vimco.runs.observer import Observer

NOT_PLOTTED = ("update", "epoch", "seconds", "processor_seconds")


class EventFiles(Observer):
    """An observer that writes the lines of metrics to the folder `tensorboard` of the run directory.

    It makes the records with tensorboardX and writes them itself. The writer of that library is a thread that ends
    silently on a full disk or a clock jump; training would then hang.
    """

    def __init__(self) -> None:
        try:
            import tensorboardX  # noqa: F401
        except ImportError:
            raise UsageError('--tensorboard needs an extra: pip install ".[tensorboard]" in the repository.') from None
        self.path: Path | None = None

    def started(self, run: Run, update: int, total: int | None) -> None:  # noqa: ARG002
        """Write the file again from the metrics so far.

        It then contains lines that a killed process had not yet written, and no line twice. It has another name than
        the one before, so that a TensorBoard that has read that one starts again.
        """
        folder = run.path / "tensorboard"
        if folder.is_symlink():
            raise UsageError(f"{folder} is a symbolic link, and nothing is written through it: remove it.")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        self.path = folder / f"events.out.tfevents.{time.time_ns()}"
        write_file(self.path, b"".join([_record(file_version="brain.Event:2"), *map(_line, run.metrics())]))

    def logged(self, line: dict[str, Any]) -> None:
        """Add a line."""
        if self.path is not None:
            append_to_file(self.path, _line(line))


def _line(line: dict[str, Any]) -> bytes:
    """Return the records of a line of metrics."""
    from tensorboardX.summary import scalar

    values = {name: value for name, value in line.items() if name not in NOT_PLOTTED and value is not None}
    return b"".join(_record(step=line["update"], summary=scalar(name, value)) for name, value in values.items())


def _record(**content: Any) -> bytes:
    """Return an event as it stands in the file: its length, a checksum of the length, the event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    event = Event(wall_time=time.time(), **content).SerializeToString()
    length = struct.pack("<Q", len(event))
    return b"".join((length, struct.pack("<I", masked_crc32c(length)), event, struct.pack("<I", masked_crc32c(event))))
