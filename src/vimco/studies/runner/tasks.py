"""What a worker does for a study: train a run, or evaluate one. Tasks are plain data, to be sent anywhere."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vimco.errors import UsageError
from vimco.runs import directory, session
from vimco.runs.config import RunConfig
from vimco.runs.directory import EVALUATION_SEED, Run, Weights
from vimco.runs.observer import Observer
from vimco.studies.results import chosen, collected
from vimco.studies.runner import workers
from vimco.studies.study import digest, distinct_cells, label, run_name


@runtime_checkable  # for beartype, in the tests
class Task(Protocol):
    """Something to be done by a worker."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    def __call__(self) -> list[str]:
        """Does it, and returns notes for the person."""
        ...


@dataclass(frozen=True)
class Training:
    """A run of a study, and its directory."""

    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        """What a person calls it."""
        return label(self.config)

    @property
    def target(self) -> int:
        """The update at which it is done."""
        assert self.config.updates is not None
        return self.config.updates

    def run(self) -> Run | None:
        """The run as it stands on disk; None before its beginning."""
        return directory.load(self.path) if (self.path / directory.CONFIG).exists() else None

    def is_done(self) -> bool:
        """Whether it has come as far as asked for; further is far enough."""
        run = self.run()
        return run is not None and run.summary().get("updates", 0) >= self.target

    def __call__(self) -> list[str]:
        """Trains, resumes or extends the run; returns notes. Leaves with `session.Interrupted` where it has to stop."""
        observer = _WorkerObserver()
        run = self.run()
        if run is None:
            session.train(self.config, self.path, observer)
        elif digest(run.config) != digest(self.config):
            raise UsageError(f"{self.path} holds a run of another configuration than its name says: move it away.")
        else:
            done = directory.latest_checkpoint(self.path)[1]["update"] if directory.has_checkpoint(self.path) else 0
            session.resume(self.path, observer, updates=max(self.target, done))
        return observer.notes


@dataclass(frozen=True)
class Evaluating:
    """The negative log-likelihood of a run on the test split, to be measured and recorded in its summary."""

    path: Path
    num_samples: int
    weights: tuple[Weights, ...]  # in one task, since they are recorded in one file

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"evaluation of {self.path.name}"

    def __call__(self) -> list[str]:
        """Evaluates, and records it."""
        run = directory.load(self.path)
        for weights in self.weights:
            evaluation = run.evaluate(
                self.num_samples, weights=weights, seed=EVALUATION_SEED, progress=_leave_if_stopping
            )
            run.record_evaluation(evaluation, "test", weights, seed=EVALUATION_SEED)
        return []


def planned(configurations: Sequence[RunConfig], output: Path) -> list[Training]:
    """The runs with their directories, which studies share."""
    return [Training(config, output / "runs" / run_name(config)) for config in configurations]


def evaluations_due(trainings: Sequence[Training], num_samples: int) -> list[Evaluating]:
    """What is still to be measured: the chosen run of each cell and seed, with raw and with averaged parameters.

    Chosen as a table chooses, among all runs of the folder: one of an earlier study may be the best of its cell.
    """
    configurations = [training.config for training in trainings]
    names, seeds = {config.data for config in configurations}, {config.seed for config in configurations}
    runs, _ = collected({training.path.parent for training in trainings if training.path.parent.is_dir()})
    candidates = [run for run in runs if run.config.data in names and run.config.seed in seeds]
    due: dict[Path, tuple[Weights, ...]] = {}
    kinds: tuple[Weights, ...] = ("best", "best-average")
    for cell, weights in product(distinct_cells(configurations), kinds):
        for run in chosen(candidates, cell, weights):
            if run.is_finished and run.evaluation(num_samples, weights) is None:
                due[run.path] = (*due.get(run.path, ()), weights)
    return [Evaluating(path, num_samples, weights) for path, weights in due.items()]


@dataclass(frozen=True)
class Ending:
    """How a task ended, as its worker tells it."""

    notes: tuple[str, ...] = ()
    failure: str | None = None
    is_stopped: bool = False


def perform(task: Task) -> Ending:
    """Does a task, inside a worker, and tells how it ended: an error of one run is no error of the study."""
    with workers.at_work:
        try:
            return Ending(tuple(task()))
        except (session.Interrupted, _Stopped):
            return Ending(is_stopped=True)
        except UsageError as error:
            return Ending(failure=str(error))
        except Exception as error:
            return Ending(failure=f"{type(error).__name__}: {error}")


class _Stopped(Exception):  # noqa: N818 - not an error
    """An evaluation was asked to stop."""


def _leave_if_stopping(*_progress: int) -> None:
    if workers.is_stopping():
        raise _Stopped


class _WorkerObserver(Observer):
    """Keeps warnings for the report at the end, and stops the session when the worker has to stop."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def advanced(self, update: int, seconds: float, latest: dict[str, Any]) -> None:  # noqa: ARG002
        """Tells the session to save and leave, in the way it knows."""
        if workers.is_stopping():
            signal.raise_signal(signal.SIGTERM)

    def warned(self, message: str) -> None:
        """Keeps it."""
        self.notes.append(message)
