"""The tasks of a study: train a run, evaluate one, or measure gradients. Each is a command of the program."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from vimco.errors import UsageError
from vimco.runs import directory
from vimco.runs.checkpoints import latest_update
from vimco.runs.config import RunConfig, words_of
from vimco.runs.directory import EVALUATION_SEED, Run, Weights
from vimco.studies.cells import in_words
from vimco.studies.results import chosen, collected
from vimco.studies.study import arguments_of, digest, distinct_cells, kind, label, run_name

SAMPLES_OF_A_PART = 1000  # samples that a command draws for each example, if there are several workers
WAIT_SECONDS = 60  # for a process that still trains in the directory, such as one whose worker was retired


@dataclass(frozen=True)
class Training:
    """A run of a study, and its directory."""

    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        """The readable name, which tells apart runs of a study that depart from the protocol."""
        departures = in_words(kind(self.config)[1])
        return label(self.config) + (f" ({departures})" if departures else "")

    @property
    def target(self) -> int:
        """The update at which it is done."""
        assert self.config.updates is not None
        return self.config.updates

    def up_to(self, share: float) -> "Training":
        """Return the training of this run up to a share of its updates."""
        return replace(self, config=self._with_updates(max(1, round(share * self.target))))

    def _with_updates(self, updates: int) -> RunConfig:
        """Return the configuration with another budget, which does not move the horizon of a schedule."""
        horizon = self.config.horizon if self.config.schedule != "constant" else None
        return replace(self.config, updates=updates, schedule_updates=horizon)

    def run(self) -> Run | None:
        """Return the run on disk; None before it has started."""
        return directory.load(self.path) if (self.path / directory.CONFIG).exists() else None

    def is_done(self) -> bool:
        """Return whether it has done the target number of updates, or more."""
        run = self.run()
        return run is not None and run.summary().get("updates", 0) >= self.target

    def arguments(self) -> list[str]:
        """Return the command that trains, resumes or extends the run; it may be started again."""
        run = self.run()
        if run is not None and digest(run.config) != digest(self.config):
            raise UsageError(f"{self.path} holds a run of another configuration than its name says: move it away.")
        config = self._with_updates(max(self.target, latest_update(self.path)))
        return ["train", *arguments_of(config), "--output", str(self.path), "--or-resume", "--wait", str(WAIT_SECONDS)]


@dataclass(frozen=True)
class Evaluating:
    """The negative log-likelihood of a run on the test split, to be measured and recorded in its summary."""

    path: Path
    num_samples: int
    weights: Weights
    part: tuple[int, int] | None = None  # (2, 5): the second of five

    @property
    def name(self) -> str:
        """The readable name."""
        part = f", part {self.part[0]} of {self.part[1]}" if self.part else ""
        return f"evaluation of {self.path.name}, {self.weights} weights{part}"

    def arguments(self) -> list[str]:
        """Return the command that evaluates the run and records the result, or a part of it."""
        options = {"num_samples": self.num_samples, "weights": self.weights, "seed": EVALUATION_SEED}
        return ["evaluate", str(self.path), *words_of(options | ({"part": self.part} if self.part else {}))]

    def parts_due(self, number: int) -> list["Evaluating"]:
        """Return the parts that are still to be done."""
        if number == 1:
            return [self]
        run = directory.load(self.path)
        parts = [(i + 1, number) for i in range(number)]
        done = {part for part in parts if run.evaluated_part(self.num_samples, self.weights, part) is not None}
        return [replace(self, part=part) for part in parts if part not in done]

    def join(self, number: int) -> None:
        """Record the evaluation, if it was done in parts and all of them are there."""
        if number > 1:
            directory.load(self.path).join_parts(self.num_samples, self.weights, number)


@dataclass(frozen=True)
class Measuring:
    """The noise of estimators' gradients at the end of a training, to be recorded in the summary of its run."""

    training: Training
    estimators: tuple[str, ...]

    @property
    def name(self) -> str:
        """The readable name."""
        return f"noise of gradients of {self.training.path.name}"

    def arguments(self) -> list[str]:
        """Return the command that measures and records."""
        return ["noise", str(self.training.path), "--weights", "latest", "--estimators", *self.estimators]

    def is_due(self) -> bool:
        """Return whether the run has ended there and not gone on, and something is not measured."""
        run, target = self.training.run(), self.training.target
        if run is None or not run.is_finished or run.updates != target:
            return False
        measured = {record["estimator"] for record in run.noise_of_training() if record["update"] == target}
        return not set(self.estimators) <= measured


def planned(configurations: Sequence[RunConfig], output: Path) -> list[Training]:
    """Return the trainings of these configurations, in directories that studies share."""
    return [Training(config, output / "runs" / run_name(config)) for config in configurations]


def evaluations_due(trainings: Sequence[Training], num_samples: int) -> list[Evaluating]:
    """Return the missing evaluations: of the chosen run of each cell and seed, with raw and averaged parameters.

    Runs are chosen as for a table, among all runs of the folder: one of an earlier study may be the best of its cell.
    A run that departs from the paper's protocol has no cell to be chosen for, and is evaluated itself.
    """
    configurations = [training.config for training in trainings]
    names = {config.data for config in configurations}
    runs, _ = collected({training.path.parent for training in trainings if training.path.parent.is_dir()})
    contents = {run.data["checksum"] for training in trainings if (run := training.run()) is not None}
    candidates = [run for run in runs if run.config.data in names and run.data["checksum"] in contents]
    kinds: tuple[Weights, ...] = ("best", "best-average")
    departing = {training.path for training in trainings if kind(training.config)[1]}
    wanted = [
        *product([run for run in candidates if run.path in departing], kinds),
        *(
            (run, weights)
            for cell, weights in product(distinct_cells(configurations), kinds)
            for run in chosen(candidates, cell, weights)
        ),
    ]
    due = [
        Evaluating(run.path, num_samples, weights)
        for run, weights in wanted
        if run.is_finished and run.best(weights) and run.evaluation(num_samples, weights) is None
    ]
    return list(dict.fromkeys(due))
