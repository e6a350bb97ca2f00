"""Progress: a live bar on a terminal, and few plain lines in a log file."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
from rich import progress
from rich.table import Column, Table
from rich.text import Text

from vimco.data import DownloadHook
from vimco.errors import UsageError, printable
from vimco.models import MODELS
from vimco.report.terminal import Terminal, wide
from vimco.runs.directory import Run
from vimco.runs.observer import Observer

out = Terminal()
err = Terminal(stderr=True)


def labelled(label: str, colour: str, message: str) -> Text:
    """Return a message with a coloured label before it."""
    return Text.assemble((label, colour), " ", printable(message, "\n\t"))


def note(message: str) -> None:
    """Print a note to stderr."""
    err.print(labelled("Note:", "yellow", message))


def message_of(error: Exception) -> str | None:
    """Return what a user is told of an error that is not the program's; None for one that is."""
    if isinstance(error, UsageError):
        return str(error)
    if isinstance(error, OSError):  # for example, a file or folder that may not be read
        return f"{error}."
    is_of_devices = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
    if isinstance(error, MemoryError) or is_of_devices:
        return "The memory does not suffice. Try fewer samples or a --slice-size, a smaller batch, or smaller layers."
    return None


def give_up_closed_streams() -> None:
    """Let all output go nowhere that cannot be written any more: to a pipe without a reader, to a full disk."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def unread_or_not() -> Iterator[None]:
    """Print if possible: a long computation goes on without a reader."""
    try:
        yield
    except OSError:
        give_up_closed_streams()


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without lines."""
    table = Table(*(Column(heading, overflow="fold") for heading in headings), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    wide(out).print(table)


def bars(*columns: progress.ProgressColumn | str, transient: bool = True) -> progress.Progress:
    """Return bars that are shown if stderr is a terminal; a string is a column of text."""
    shown = [progress.TextColumn(column, markup=False) if isinstance(column, str) else column for column in columns]
    return progress.Progress(*shown, console=err, transient=transient, disable=not err.is_terminal)


class TrainingDisplay(Observer):
    """An observer that shows a bar with the latest metrics, and a line for every validation."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()  # closing it removes the bar from the screen
        self.show_download: DownloadHook | None = None

    def downloaded(self, name: str, done: int, total: int) -> None:
        """Show the progress of the download."""
        if self.show_download is None:
            self.show_download = self.stack.enter_context(download_progress())
        self.show_download(name, done, total)

    def started(self, run: Run, update: int, total: int | None) -> None:
        """Print the run and its directory, and show a bar."""
        self.ended()
        config = run.config
        self.total, self.minutes = total, config.minutes
        estimator = " ".join((config.estimator, *config.estimator_options))
        model = config.model.replace(config.task, MODELS[config.task].title, 1)
        what = f"{model} on {config.data}, {estimator}, K = {config.num_samples}"
        goes = f"resumes at update {update:,}" if update else "starts"
        with unread_or_not():
            out.print(f"{run.path}: {what}; {goes}. Ctrl-C stops and saves.")
        time_left = progress.TimeRemainingColumn(compact=True)
        columns = (progress.BarColumn(bar_width=24), progress.TaskProgressColumn(), time_left)
        self.bar = bars("update {task.fields[update]:,}", *columns, "{task.fields[text]}")
        self.stack.enter_context(self.bar)
        self.task = self.bar.add_task("", total=1.0, update=update, text="compiling")

    def advanced(self, update: int, seconds: float, latest: dict[str, Any]) -> None:
        """Update the bar."""
        parts = []
        if latest:
            parts += [f"{latest['updates_per_second']:.0f}/s", f"training bound {latest['train_bound']:.2f}"]
        if "validation_bound" in latest:
            parts.append(f"validation {latest['validation_bound']:.2f}")
        self.bar.update(self.task, completed=self._done(update, seconds), update=update, text="  ".join(parts))

    def logged(self, line: dict[str, Any]) -> None:
        """Print a line if it has a validation; the others are in the metrics file."""
        if "validation_bound" not in line:
            return
        average = f" (averaged {line['average_validation_bound']:.2f})" if "average_validation_bound" in line else ""
        with unread_or_not():
            err.print(
                f"update {line['update']:>9,}  training bound {line['train_bound']:8.2f}  "
                f"validation {line['validation_bound']:8.2f}{average}  {line['updates_per_second']:.0f} updates/s"
            )

    def warned(self, message: str) -> None:
        """Print a note."""
        with unread_or_not():
            note(message)

    def ended(self) -> None:
        """Remove the bar from the screen."""
        self.stack.close()

    def _done(self, update: int, seconds: float) -> float:
        """Return the used part of the budget, from 0 to 1."""
        return min(1.0, update / self.total if self.total is not None else seconds / (60 * (self.minutes or 1)))


@contextlib.contextmanager
def evaluation_progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar of evaluated examples; yield the function that updates it."""
    columns = (progress.BarColumn(bar_width=30), progress.MofNCompleteColumn(), "examples")
    with bars("{task.description}", *columns, progress.TimeRemainingColumn()) as bar:
        task = bar.add_task(printable(name), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def download_progress() -> Iterator[DownloadHook]:
    """Show a bar for each downloaded file; yield the function that updates it."""
    with bars("{task.description}", progress.BarColumn(), progress.DownloadColumn(), transient=False) as bar:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(printable(name), total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield show
