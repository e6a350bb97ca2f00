"""The command `vimco evaluate`: parse, call, print."""

import csv
import io
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro

from vimco.cli.layout import Layout
from vimco.cli.options import Parameters, Plugin, refuse_missing_folder
from vimco.cli.terminal import evaluation_progress, note, out
from vimco.errors import UsageError
from vimco.files import write_file
from vimco.models import MODELS
from vimco.runs import directory
from vimco.runs.config import MAX_INTEGER
from vimco.runs.directory import Run
from vimco.runs.experiment import Split
from vimco.runs.store import with_null
from vimco.runs.team import Team
from vimco.training.evaluation import PATHS, Evaluation, paired_comparison

Runs = Annotated[
    tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(one or more)")
]


@dataclass(frozen=True)
class Evaluate:
    """Estimate the negative log-likelihood of one or more runs; with several, compare them pairwise.

    It is minus the K-sample bound with many samples, averaged over all examples: in expectation an upper bound that
    tightens as K grows. The bound in the training log is the same quantity with the training K.
    """

    run: Runs
    """Run directories."""
    num_samples: int = 1000
    """K, the number of proposal samples per example (1000 in the paper; 100 for structured prediction)."""
    split: Split = "test"
    """The examples to evaluate on."""
    weights: Parameters = "best"
    seed: int = 0
    """The random seed of the samples, the same for all runs."""
    jackknife: bool = False
    """Also estimate -log P(x) by the jackknife over the samples: less biased than the bound, and not a bound itself.
    Doubles the work."""
    json: bool = False
    """Print JSON instead of sentences."""
    per_example: Path | None = None
    """Also write the bound of every example to this CSV file."""
    part: tuple[int, int] | None = None
    """Only a part of the examples, such as 2 5, the second of five, for `vimco study`, which joins them: write it to
    the run directory."""
    layout: Annotated[Layout, tyro.conf.OmitArgPrefixes] = field(default_factory=Layout)
    plugin: Plugin = None

    def __call__(self) -> None:
        """Evaluate the runs, print the results, and keep each in its run's summary."""
        if not self.run:
            raise UsageError("Name one or more run directories to evaluate.")
        if not 1 <= self.num_samples <= MAX_INTEGER:
            raise UsageError(f"--num-samples must be positive, and at most {MAX_INTEGER:,}; got {self.num_samples}.")
        if self.jackknife and self.num_samples < 2:
            raise UsageError("--jackknife leaves out one sample at a time: it needs --num-samples 2 or more.")
        if self.part is not None and not 1 <= self.part[0] <= self.part[1]:
            raise UsageError(f"--part 2 5 is the second of five; got {self.part[0]} {self.part[1]}.")
        others = (self.split != "test", self.seed != directory.EVALUATION_SEED, self.jackknife, self.json)
        if self.part is not None and (self.per_example is not None or any(others) or self.layout != Layout()):
            raise UsageError(
                "--part evaluates the test split with seed 0 on one device, and prints nothing: leave out --split, "
                "--seed, --jackknife, --json, --per-example and the options of devices."
            )
        refuse_missing_folder("--per-example", self.per_example)
        with self.layout.join("evaluate"):
            self._evaluate()

    def _evaluate(self) -> None:
        team = Team()
        with team.as_one():
            loaded = [directory.load(path) for path in self.run]
        team.require_same(runs=str([run.facts for run in loaded]))
        evaluations = [self._evaluate_run(run) for run in loaded]
        if self.part is not None:
            return
        if self.json:
            records: list[dict[str, Any]] = [
                {"run": str(run.path), "split": self.split, "weights": self.weights, **evaluation.to_json()}
                for run, evaluation in zip(loaded, evaluations, strict=True)
            ]
            for record, run, evaluation in zip(records[1:], loaded[1:], evaluations[1:], strict=True):
                if _are_comparable(loaded[0], run, self.split):
                    record["minus_first"] = with_null(paired_comparison(evaluations[0], evaluation)._asdict())
            out.print_json(json.dumps(records[0] if len(records) == 1 else records), ensure_ascii=True)
        else:
            for run, evaluation in zip(loaded[1:], evaluations[1:], strict=True):
                _print_comparison(loaded[0], evaluations[0], run, evaluation, self.split)
        if self.per_example is not None and jax.process_index() == 0:
            _write_per_example(self.per_example, loaded, evaluations)

    def _evaluate_run(self, run: Run) -> Evaluation:
        """Evaluate a run, keep the result, and print it."""
        with evaluation_progress(str(run.path)) as progress:
            evaluation = run.evaluate(
                self.num_samples,
                self.split,
                weights=self.weights,
                seed=self.seed,
                progress=progress,
                jackknife=self.jackknife,
                devices=self.layout.devices,
                part=self.part or (1, 1),
            )
        if self.part is not None:
            run.record_part(evaluation, self.weights, self.part)
            return evaluation
        problem = None
        if jax.process_index() == 0:
            try:
                run.record_evaluation(evaluation, self.split, self.weights, self.seed)
            except UsageError as error:  # print the result even if the directory cannot be written
                problem = f"The evaluation is not kept. {error}"
        if not self.json:
            _print_evaluation(run, evaluation, self.split, self.weights)
        if problem is not None:
            note(problem)
        return evaluation


def _print_evaluation(run: Run, evaluation: Evaluation, split: str, weights: str) -> None:
    is_known = evaluation.num_samples > 1
    monte_carlo = f"± {evaluation.monte_carlo_error:.3f} (Monte Carlo)" if is_known else "(Monte Carlo error unknown)"
    out.print(
        f"{run.path}: negative log-likelihood {evaluation.negative_log_likelihood:.2f} nats "
        f"± {evaluation.standard_error:.2f} (choice of examples) {monte_carlo}"
    )
    out.print(
        f"  {split} split, all {len(evaluation.bound):,} examples, K = {evaluation.num_samples}, {weights} weights; "
        f"effective sample size {evaluation.mean_effective_sample_size:.1f} of {evaluation.num_samples}"
    )
    if evaluation.jackknife is not None:
        value = evaluation.jackknife_negative_log_likelihood
        out.print(f"  by the jackknife {value:.2f} nats: less biased than the bound, and not a bound itself")
    if evaluation.active_units is not None:
        out.print(f"  active units, deepest layer first: {' + '.join(map(str, evaluation.active_units))}")
    if evaluation.prediction is not None:
        error, of_one, _ = evaluation.prediction
        out.print(f"  labels wrong: {error:.2%} by the mean of {PATHS} samples from the prior, {of_one:.2%} by one")
    if run.data.get("note"):
        out.print(f"  {run.data['note']}")


def _are_comparable(first: Run, second: Run, split: str) -> bool:
    """Return whether both runs model the same observations. Scenes for training are made from the run's seed."""
    has_own_scenes = split == "train" and MODELS[first.config.task].of_scenes
    return (
        first.data["checksum"] == second.data["checksum"]
        and first.config.task == second.config.task
        and (first.config.seed == second.config.seed or not has_own_scenes)
    )


def _print_comparison(first: Run, before: Evaluation, second: Run, after: Evaluation, split: str) -> None:
    if not _are_comparable(first, second, split):
        out.print(f"{second.path} and {first.path} are of different tasks, data or scenes: no paired comparison.")
        return
    comparison = paired_comparison(before, after)
    paired = f"(paired over {len(before.bound):,} examples)"
    if comparison.difference == 0 or math.isnan(comparison.difference):
        what = "the same number as" if comparison.difference == 0 else "no number to compare with that of"
        out.print(f"{second.path} has {what} {first.path} {paired}")
        return
    verdict = "lower, that is better" if comparison.difference < 0 else "higher, that is worse"
    out.print(
        f"{second.path} is {abs(comparison.difference):.3f} ± {comparison.standard_error:.3f} nats {verdict} than "
        f"{first.path} {paired}"
    )


def _write_per_example(path: Path, loaded: list[Run], evaluations: list[Evaluation]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "example", "bound", "variance", "effective_sample_size"])
    for run, evaluation in zip(loaded, evaluations, strict=True):
        columns = zip(evaluation.bound, evaluation.variance, evaluation.effective_sample_size, strict=True)
        writer.writerows([run.path, i, f"{b:.6f}", f"{v:.6g}", f"{e:.6g}"] for i, (b, v, e) in enumerate(columns))
    write_file(path, text.getvalue().encode())
