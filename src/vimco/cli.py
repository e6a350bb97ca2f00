"""The command line: parse, call, print."""

import dataclasses
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import jax
import tyro
from rich.console import Console
from rich.table import Table

from vimco import __version__, data, drawings, runs, session
from vimco.cli_evaluate import Evaluate, refuse_missing_folder
from vimco.cli_studies import Report, RunStudy
from vimco.config import BUDGET, RunConfig
from vimco.errors import UsageError
from vimco.runs import Run, Weights
from vimco.terminal import TrainingDisplay, download_progress, err, headed, out

OneRun = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class Options(RunConfig):
    """What to train, on what, how, and for how long. The defaults are the paper's protocol (supplement B)."""

    def __post_init__(self) -> None:
        """Left to `RunConfig` itself: the parser would put words of its own before the message."""

    @property
    def checked(self) -> RunConfig:
        """The configuration."""
        return RunConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(self)})


@dataclass(frozen=True)
class Train:
    """Train a model, in a new run directory or on from an old one.

    A run that was stopped or killed goes on with --resume RUN, and one that has ended with --resume RUN --updates N.
    """

    config: Annotated[Options, tyro.conf.OmitArgPrefixes]
    output: Path | None = None
    """The run directory to make. By default a new one under runs/."""
    resume: Path | None = None
    """Go on with the run in this directory; a budget given with it takes the place of the run's own."""

    def __call__(self) -> None:
        """Trains, and says what came out."""
        config, display = self.config.checked, TrainingDisplay(out, err)
        try:
            if self.resume is not None:
                run = session.resume(self.resume, display, **{name: getattr(config, name) for name in BUDGET})
            else:
                run = session.train(config, self.output, display)
        finally:
            display.stopped()
        _print_result(run)


@dataclass(frozen=True)
class Sample:
    """Draw a picture of what a run has learned.

    Generative models: data, reconstructions and samples. Structured models: the original images on top, below them
    the same top halves with the bottom half's probabilities given one draw from the prior, in grey.
    """

    run: OneRun
    """A run directory."""
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
        if self.output is not None:
            refuse_missing_folder("--output", self.output)
        path = drawings.draw_samples(
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
        Console(highlight=False, width=None if out.is_terminal else 160).print(table, markup=False)
        out.print("Your own: --data FILE.npy or FILE.npz, images of 0 and 1 (grey levels with --binarize SEED).")


@dataclass(frozen=True)
class DataFetch:
    """Fetch a published data set once, and keep it in the cache."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """The name of the set: see `vimco data list`."""
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
    | Annotated[RunStudy, tyro.conf.subcommand("study")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Data, tyro.conf.subcommand("data")]
)


OVERVIEW = """\
Train models with discrete latent variables by multi-sample bounds, and compare gradient estimators.

  vimco train                     train a model: the paper's, on the MNIST that comes with the package
  vimco train --resume RUN        go on with a run that was stopped, killed or has ended
  vimco evaluate RUN [RUN ...]    negative log-likelihood, with errors; with several runs, paired comparisons
  vimco sample RUN                a picture of samples and reconstructions, or of completions
  vimco study [NAME]              a table or figure of the paper, computed; without a name, the list of them
  vimco report FOLDER             tables and figures of all runs in a folder, as a page and as Markdown
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
    warnings.showwarning = lambda message, *_args, **_options: err.print(headed("Note:", "yellow", str(message)))
    try:
        if arguments in ([], ["-h"], ["--help"]):
            out.print(OVERVIEW, end="")
        elif arguments == ["--version"]:
            out.print(f"vimco {__version__}")
        else:
            command = tyro.cli(
                Command, prog="vimco", args=arguments, config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.DisallowNone)
            )
            if isinstance(command, Train) and command.resume is not None:
                _refuse_changes(command, command.resume, arguments)
            command()
    except UsageError as error:
        _leave(str(error))
    except session.Interrupted as interruption:
        err.print(f"{interruption} Go on with: vimco train --resume {shlex.quote(str(interruption.run.path))}")
        sys.exit(128 + interruption.signal_number)
    except KeyboardInterrupt:
        err.print("Stopped.")
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has gone, as with `vimco ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:  # a file or folder that may not be read, for example
        _leave(f"{error}.")
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        _leave("The memory does not suffice. Try fewer samples or a --slice-size, a smaller batch, or smaller layers.")


def _leave(message: str) -> NoReturn:
    err.print(headed("Error:", "red", message))
    sys.exit(2)


def _refuse_changes(command: Train, path: Path, arguments: Sequence[str]) -> None:
    """A resumed run keeps its configuration: only its budget may be given anew."""
    if command.output is not None:
        raise UsageError("--resume goes on in the same directory: leave --output out.")
    own = runs.load(path).config
    given = {argument.split("=")[0].replace("_", "-") for argument in arguments}
    for field in dataclasses.fields(own):
        option, value = "--" + field.name.replace("_", "-"), getattr(own, field.name)
        is_given = not given.isdisjoint({option, option.replace("--", "--no-", 1)})
        if is_given and field.name not in BUDGET and getattr(command.config, field.name) != value:
            raise UsageError(
                f"{option} cannot change when a run is resumed (it is {value} in {path}): leave it out, or start a new "
                "run, perhaps with --init-from."
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
    out.print(f"Likelihood: vimco evaluate {shlex.quote(str(run.path))}")
