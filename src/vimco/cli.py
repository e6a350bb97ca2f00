"""The command line: parse, call, print."""

import dataclasses
import json
import os
import signal
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vimco import __version__, data, runs, session
from vimco.checkpoints import write_atomically
from vimco.config import BUDGET, RunConfig
from vimco.errors import UsageError
from vimco.evaluation import Evaluation
from vimco.experiment import Split
from vimco.runs import Run, Weights
from vimco.terminal import TrainingDisplay, download_progress, evaluation_progress

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

Runs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
OneRun = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class Train:
    """Train a model, in a new run directory or on from an old one.

    A run that was stopped or killed goes on with --resume RUN, and one that has ended with --resume RUN --updates N.
    """

    config: Annotated[RunConfig, tyro.conf.OmitArgPrefixes]
    output: Path | None = None
    """The run directory to make. By default a new one under runs/."""
    resume: Path | None = None
    """Go on with the run in this directory; a budget given with it takes the place of the run's own."""

    def __call__(self) -> None:
        """Trains, and says what came out."""
        if self.resume is not None:
            _refuse_changes(self.resume, self.config, self.output)
            budget = {name: getattr(self.config, name) for name in BUDGET}
            run = session.resume(self.resume, TrainingDisplay(out, err), **budget)
        else:
            run = session.train(self.config, self.output, TrainingDisplay(out, err))
        _print_result(run)


@dataclass(frozen=True)
class Evaluate:
    """Estimate the negative log-likelihood of one or more runs; with several, compare them pairwise.

    It is minus the K-sample bound with many samples, averaged over all examples: an upper estimate that
    tightens as K grows. The bound in the training log is the same thing with the training K.
    """

    run: Runs
    num_samples: int = 1000
    """K, the number of proposal samples per example (1000 in the paper; 100 for structured prediction)."""
    split: Split = "test"
    """The examples to evaluate on."""
    weights: Weights = "best"
    """Which parameters: the best by validation, the latest, or the best averaged ones."""
    seed: int = 0
    """Where the samples come from. The same for all runs."""
    json: bool = False
    """Print JSON in place of sentences."""
    per_example: Path | None = None
    """Also write the bound of every example to this CSV file."""

    def __call__(self) -> None:
        """Evaluates, prints, and keeps the result in each run's summary."""
        if not self.run:
            raise UsageError("Name one or more run directories to evaluate.")
        if self.num_samples < 1:
            raise UsageError(f"--num-samples must be positive; got {self.num_samples}.")
        loaded = [runs.load(path) for path in self.run]
        evaluations = [self._evaluation(run) for run in loaded]
        if self.per_example is not None:
            _write_per_example(self.per_example, loaded, evaluations)
        if self.json:
            records = [
                {"run": str(run.path), "split": self.split, "weights": self.weights, **evaluation.to_json()}
                for run, evaluation in zip(loaded, evaluations, strict=True)
            ]
            out.print_json(json.dumps(records[0] if len(records) == 1 else records))
            return
        for run, evaluation in zip(loaded, evaluations, strict=True):
            _print_evaluation(run, evaluation, self.split, self.weights)
        for run, evaluation in zip(loaded[1:], evaluations[1:], strict=True):
            _print_comparison(loaded[0], evaluations[0], run, evaluation)

    def _evaluation(self, run: Run) -> Evaluation:
        with evaluation_progress(err, str(run.path)) as progress:
            evaluation = run.evaluate(
                self.num_samples, self.split, weights=self.weights, seed=self.seed, progress=progress
            )
        run.record_evaluation(evaluation, self.split, self.weights, self.seed)
        return evaluation


@dataclass(frozen=True)
class Sample:
    """Draw a picture of what a run has learned.

    Generative models: data, reconstructions and samples. Structured models: the original images on top, below them
    the same top halves with the bottom half's probabilities given one draw from the prior, in grey.
    """

    run: OneRun
    output: Path | None = None
    """The PNG file to write; by default samples.png in the run directory."""
    rows: int = 6
    """Rows of samples or completions."""
    columns: int = 12
    """Images in a row."""
    weights: Weights = "best"
    """Which parameters: the best by validation, the latest, or the best averaged ones."""
    seed: int = 0
    """Which images and draws."""

    def __call__(self) -> None:
        """Draws, and says where the picture is."""
        if self.rows < 1 or self.columns < 1:
            raise UsageError("--rows and --columns must be positive.")
        path = session.draw_samples(
            runs.load(self.run), self.output, rows=self.rows, columns=self.columns, weights=self.weights, seed=self.seed
        )
        out.print(f"Picture: {path}")


@dataclass(frozen=True)
class DataList:
    """List the data sets that have a name."""

    def __call__(self) -> None:
        """Prints a table."""
        table = Table(box=None, pad_edge=False)
        for heading in ("name", "train / validation / test", "pixels", "where", "what"):
            table.add_column(heading, overflow="fold")
        for record in data.available():
            sizes = " / ".join(f"{size:,}" for size in record.sizes)
            pixels = f"{record.image_shape[0]} x {record.image_shape[1]}"
            table.add_row(record.name, sizes, pixels, record.where, record.description)
        Console(highlight=False, width=None if out.is_terminal else 160).print(table)
        out.print("Your own: --data FILE.npy or FILE.npz, images of 0 and 1 (grey levels with --binarize SEED).")


@dataclass(frozen=True)
class DataFetch:
    """Fetch a published data set once, and keep it in the cache."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    from_folder: Annotated[Path | None, tyro.conf.arg(name="from", metavar="FOLDER")] = None
    """Take the published files from this folder in place of the network."""

    def __call__(self) -> None:
        """Fetches, and says where the data are."""
        with download_progress(err) as progress:
            path = data.fetch(self.name, self.from_folder, progress)
        out.print(f"{self.name} is ready: {path}")


@dataclass(frozen=True)
class Data:
    """List the data sets, or fetch one."""

    action: Annotated[DataList, tyro.conf.subcommand("list")] | Annotated[DataFetch, tyro.conf.subcommand("fetch")]

    def __call__(self) -> None:
        """Does what was asked for."""
        self.action()


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Sample, tyro.conf.subcommand("sample")]
    | Annotated[Data, tyro.conf.subcommand("data")]
)


OVERVIEW = """\
Train models with discrete latent variables by multi-sample bounds, and compare gradient estimators.

  vimco train                     train a model: the paper's, on the MNIST that comes with the package
  vimco train --resume RUN        go on with a run that was stopped, killed or has ended
  vimco evaluate RUN [RUN ...]    negative log-likelihood, with errors; with several runs, paired comparisons
  vimco sample RUN                a picture of samples and reconstructions, or of completions
  vimco data list                 the data sets
  vimco data fetch NAME           fetch a published data set, from the network or a folder

Some first steps:

  vimco train --num-samples 5 --minutes 2 --output runs/first
  vimco train --task structured --num-samples 20 --layers 200 200
  vimco train --estimator nvil --num-samples 1 --data binarized-mnist --updates 200000

vimco COMMAND --help explains a command's options; vimco --version gives the version.
"""


def main(arguments: list[str] | None = None) -> None:
    """The program `vimco`. Leaves with status 2 after a user's mistake, and 130 or 143 after a signal."""
    arguments = sys.argv[1:] if arguments is None else arguments
    warnings.showwarning = lambda message, *_args, **_options: err.print(f"[yellow]Note:[/] {escape(str(message))}")
    try:
        if arguments in ([], ["-h"], ["--help"]):
            out.print(OVERVIEW, end="", markup=False)
        elif arguments == ["--version"]:
            out.print(f"vimco {__version__}")
        else:
            tyro.cli(Command, prog="vimco", args=arguments, config=(tyro.conf.OmitSubcommandPrefixes,))()
    except UsageError as error:
        err.print(f"[red]Error:[/] {escape(str(error))}")
        sys.exit(2)
    except session.Interrupted as interruption:
        err.print(f"{interruption} Go on with: vimco train --resume {interruption.run.path}", markup=False)
        sys.exit(128 + interruption.signal_number)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has gone, as with `vimco ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _refuse_changes(path: Path, config: RunConfig, output: Path | None) -> None:
    """A resumed run keeps its configuration: only its budget may be given anew."""
    if output is not None:
        raise UsageError("--resume goes on in the same directory: leave --output out.")
    own, default = runs.load(path).config, RunConfig()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in BUDGET and value != getattr(default, field.name) and value != getattr(own, field.name):
            option = "--" + field.name.replace("_", "-")
            raise UsageError(
                f"{option} cannot change when a run is resumed (it is {getattr(own, field.name)} in {path}): leave it "
                "out, or start a new run, perhaps with --init-from."
            )


def _print_result(run: Run) -> None:
    summary = run.summary()
    out.print(f"Done: {summary['updates']:,} updates ({summary['epochs']:g} epochs, {summary['minutes']:g} minutes).")
    for name, title in (("best", "Best validation bound"), ("best_average", "With averaged parameters")):
        if summary[name] is not None:
            best = summary[name]
            out.print(f"{title}: {best['validation_bound']:.2f} nats, at update {best['update']:,}.")
    if summary["note"]:
        out.print(summary["note"])
    out.print(f"Pictures: {run.path / 'curves.png'}, {run.path / 'samples.png'}")
    out.print(f"Likelihood: vimco evaluate {run.path}")


def _print_evaluation(run: Run, evaluation: Evaluation, split: str, weights: str) -> None:
    out.print(
        f"{run.path}: negative log-likelihood {evaluation.negative_log_likelihood:.2f} nats "
        f"± {evaluation.standard_error:.2f} (choice of examples) ± {evaluation.monte_carlo_error:.3f} (Monte Carlo)"
    )
    out.print(
        f"  {split} split, all {len(evaluation.bound):,} examples, K = {evaluation.num_samples}, {weights} weights; "
        f"effective sample size {evaluation.mean_effective_sample_size:.1f} of {evaluation.num_samples}"
    )
    note = run.summary().get("note", "")
    if note:
        out.print(f"  {note}")


def _print_comparison(first: Run, before: Evaluation, second: Run, after: Evaluation) -> None:
    if len(before.bound) != len(after.bound) or first.data["checksum"] != second.data["checksum"]:
        out.print(f"{second.path} and {first.path} were evaluated on different examples: no paired comparison.")
        return
    difference = before.bound - after.bound  # negative log-likelihood of the second minus that of the first
    error = float(difference.std(ddof=1) / len(difference) ** 0.5)
    mean = float(difference.mean())
    verdict = "lower, that is better" if mean < 0 else "higher, that is worse"
    out.print(
        f"{second.path} is {abs(mean):.3f} ± {error:.3f} nats {verdict} than {first.path} "
        f"(paired over {len(difference):,} examples)"
    )


def _write_per_example(path: Path, loaded: list[Run], evaluations: list[Evaluation]) -> None:
    lines = ["run,example,bound,variance,effective_sample_size"]
    for run, evaluation in zip(loaded, evaluations, strict=True):
        columns = zip(evaluation.bound, evaluation.variance, evaluation.effective_sample_size, strict=True)
        lines += [f"{run.path},{i},{b:.6f},{v:.6g},{e:.6g}" for i, (b, v, e) in enumerate(columns)]
    write_atomically(path, ("\n".join(lines) + "\n").encode())
