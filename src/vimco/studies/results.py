"""Run directories as a reader of results sees them: collected, sorted into cells, chosen by validation. Nothing trains.

Runs may be unfinished, without evaluation, or made by `vimco train` outside of any study: what is there is read, and
what is missing is None.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from vimco.errors import UsageError
from vimco.runs import directory
from vimco.runs.directory import Run, Weights
from vimco.studies.study import Cell, variations

EVALUATION_SEED = 0  # of the samples behind every number of a table
VALIDATION = {"best": "validation_bound", "best-average": "average_validation_bound"}


@dataclass(frozen=True)
class Result:
    """What one run has to say."""

    name: str
    run: Run

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of its metrics."""
        return self.run.metrics()

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What came out; empty before the end."""
        return self.run.summary()

    @property
    def updates(self) -> int:
        """How far it is."""
        return max([self.summary.get("updates", 0), *(line["update"] for line in self.metrics[-1:])])

    @property
    def is_finished(self) -> bool:
        """Whether it has come to the end of its budget, and is not being extended."""
        return self.summary.get("updates", -1) >= self.updates

    def best(self, weights: Weights = "best") -> tuple[int, float] | None:
        """Update and value of its best validation bound."""
        name = VALIDATION[weights]
        points = [(line[name], line["update"]) for line in self.metrics if line.get(name) is not None]
        if not points:
            best = self.summary.get(weights.replace("-", "_"))
            return (best["update"], best["validation_bound"]) if best else None
        bound, update = max(points, key=lambda point: (point[0], -point[1]))
        return update, bound

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """Everything that was measured; what was not a finite number is NaN."""
        return _readable(self.summary.get("evaluations", []))

    @property
    def stages(self) -> dict[int, list[dict[str, Any]]]:
        """What was measured before it was extended, by the number of updates it then had."""
        return {stage["updates"]: _readable(stage["evaluations"]) for stage in self.summary.get("stages", [])}

    def evaluation(
        self, num_samples: int, weights: Weights = "best", updates: int | None = None
    ) -> dict[str, Any] | None:
        """Its recorded evaluation on the test split, if there is one: of its best parameters, or after `updates`.

        A run that is extended may find better parameters: an evaluation of the earlier ones is none of these.
        """
        wanted: dict[str, Any] = {
            "split": "test",
            "weights": weights,
            "num_samples": num_samples,
            "seed": EVALUATION_SEED,
        }
        records = self.stages.get(updates or 0)
        if records is None and updates in (None, self.updates):
            best = self.best(weights)
            records, wanted = self.evaluations, {**wanted, "update": best[0] if best else None}
        for record in records or []:
            if all(record.get(name) == value for name, value in wanted.items()):
                return record
        return None


def _readable(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: float("nan") if v is None else v for k, v in record.items()} for record in records]


def collected(folders: Iterable[Path]) -> tuple[list[Result], list[str]]:
    """Every run in these folders, at any depth, each once and sorted by name; and why others could not be read."""
    found: dict[Path, Run] = {}
    problems = []
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder.")
        for path in sorted(folder.rglob(directory.CONFIG)):
            try:
                found[path.parent.resolve()] = directory.load(path.parent)
            except UsageError as error:
                problems.append(str(error))
    names = [path.name for path in found]
    results = [
        Result(path.name if names.count(path.name) == 1 else f"{path.parent.name}/{path.name}", run)
        for path, run in found.items()
    ]
    return sorted(results, key=lambda result: result.name), problems


def on_protocol(results: Iterable[Result], cell: Cell) -> list[Result]:
    """The runs of a cell that keep to the paper's protocol."""
    return [r for r in results if Cell.of(r.run.config) == cell and not variations(r.run.config)]


def chosen(results: Iterable[Result], cell: Cell, weights: Weights = "best") -> list[Result]:
    """For each seed, the finished run of a cell with the best validation bound; before any has finished, the best yet.

    A run in progress, or one that broke off, is never chosen over a finished one: it has not been evaluated, and would
    hide a number that was measured.
    """
    best: dict[int, tuple[tuple[bool, float], Result]] = {}
    for result in on_protocol(results, cell):
        seed, bound = result.run.config.seed, result.best(weights)
        if bound is None:
            continue
        rank = (result.is_finished, bound[1])
        if seed not in best or rank > best[seed][0]:
            best[seed] = (rank, result)
    return [best[seed][1] for seed in sorted(best)]


@dataclass(frozen=True)
class Number:
    """A negative log-likelihood in nats: of one run, or averaged over the seeds."""

    value: float
    standard_error: float  # over the test images for one seed; over the seeds for more
    results: tuple[Result, ...]
    updates: int  # after which it was measured; of the shortest of its runs


def number(
    results: Sequence[Result], cell: Cell, num_samples: int, weights: Weights = "best", updates: int | None = None
) -> Number | None:
    """The negative log-likelihood of a cell, now or after so many updates; None where no chosen run was evaluated."""
    pairs = [(result, result.evaluation(num_samples, weights, updates)) for result in chosen(results, cell, weights)]
    evaluated = [(result, record) for result, record in pairs if record is not None]
    if not evaluated:
        return None
    values = [record["negative_log_likelihood"] for _, record in evaluated]
    error = evaluated[0][1]["standard_error"] if len(values) == 1 else stdev(values) / len(values) ** 0.5
    lengths = [updates or result.summary.get("updates", result.updates) for result, _ in evaluated]
    return Number(fmean(values), error, tuple(result for result, _ in evaluated), min(lengths))


def numbers_of_equal_length(results: Sequence[Result], cells: Sequence[Cell], num_samples: int) -> list[Number | None]:
    """The numbers of several cells, after equally many updates if there are such, or as they are now."""
    now = [number(results, cell, num_samples) for cell in cells]
    lengths = [{length for r in chosen(results, cell) for length in (r.updates, *r.stages)} for cell in cells]
    for length in sorted(set.intersection(*lengths), reverse=True):
        then = [number(results, cell, num_samples, updates=length) for cell in cells]
        if None not in then:
            return then
    return now
