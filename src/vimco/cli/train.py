"""The commands `vimco train` and `vimco resume`: parse, call, print."""

import dataclasses
import itertools
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import jax
import tyro

from vimco.cli.layout import Layout
from vimco.cli.options import OneRun, Plugin, print_options
from vimco.cli.terminal import TrainingDisplay, out
from vimco.errors import UsageError
from vimco.estimators import ESTIMATORS
from vimco.models import MODELS
from vimco.plugins import plugin_arguments
from vimco.runs import Run, directory, session
from vimco.runs.config import BUDGET, RunConfig, option
from vimco.runs.recipes import RECIPES
from vimco.runs.team import Team

RecipeName = Annotated[
    str | None,
    tyro.conf.arg(
        help="A set of options under one name; those that are given beside it win. "
        + "; ".join(f"{name}: {recipe.what} ({' '.join(recipe.words)})" for name, recipe in RECIPES.items())
    ),
]


@dataclass(frozen=True)
class Options(RunConfig):
    """What to train, on what, how, and for how long. The defaults are the paper's protocol (supplement B)."""

    def __post_init__(self) -> None:
        """Check nothing: `checked` does, so that the parser adds nothing to the error message."""

    @property
    def checked(self) -> RunConfig:
        """The configuration, checked."""
        return RunConfig(**vars(self))


@dataclass(frozen=True)
class Train:
    """Train a model in a new run directory, or resume a run.

    --resume RUN resumes a run that was stopped or killed; --resume RUN --updates N extends one that has ended.
    """

    config: Annotated[Options, tyro.conf.OmitArgPrefixes]
    recipe: RecipeName = None
    output: Path | None = None
    """The run directory to make. By default a new one under runs/."""
    or_resume: bool = False
    """If --output holds a run of this configuration already, resume it: for commands that may be started again."""
    wait: float = 0.0
    """With --or-resume: wait so many seconds for another process that trains in the directory, before giving up."""
    resume: Path | None = None
    """Resume the run in this directory; a budget given with it replaces the run's own."""
    layout: Annotated[Layout, tyro.conf.OmitArgPrefixes] = field(default_factory=Layout)
    plugin: Plugin = None

    def __call__(self) -> None:
        """Train the model, and print the results."""
        if not 0 <= self.wait < math.inf or (self.wait and not self.or_resume):
            raise UsageError(f"--wait is a number of seconds, and goes with --or-resume; got {self.wait:g}.")
        if self.or_resume and (self.resume is not None or self.output is None):
            raise UsageError("--or-resume needs --output, the directory of the run.")
        command = "resume" if self.resume is not None else "train --or-resume" if self.or_resume else "train"
        path = self.resume or self.output or "and the directory of the run"
        again = f"The last checkpoint, if there is one, stays: start all processes again with --resume {path}."
        with self.layout.join(command, again):
            display = TrainingDisplay()
            try:
                run = self._train(display)
            finally:
                display.ended()
            if jax.process_index() == 0:  # which has written what is read here
                _print_result(run)

    def _train(self, display: TrainingDisplay) -> Run:
        devices = self.layout.devices
        if self.resume is not None:
            budget = {name: getattr(self.config, name) for name in BUDGET}
            return session.resume(self.resume, display, devices=devices, **budget)
        with Team().as_one():  # a mistake of one process is one of all
            config = self.config.checked
        if self.or_resume:
            assert self.output is not None
            return session.train_or_resume(config, self.output, display, devices=devices, wait=self.wait)
        return session.train(config, self.output, display, devices=devices)


@dataclass(frozen=True)
class Resume:
    """Resume a run that was stopped, killed or has ended; the same as `vimco train --resume RUN`.

    A budget replaces the run's own, and counts from the run's beginning.
    """

    run: OneRun
    updates: int | None = None
    """Stop after this many updates."""
    epochs: float | None = None
    """Stop after this many passes over the training set."""
    minutes: float | None = None
    """Stop after this many minutes of training."""
    layout: Annotated[Layout, tyro.conf.OmitArgPrefixes] = field(default_factory=Layout)
    plugin: Plugin = None

    def __call__(self) -> None:
        """Resume the run, and print its results."""
        budget = Options(updates=self.updates, epochs=self.epochs, minutes=self.minutes)
        Train(budget, resume=self.run, layout=self.layout)()


def refuse_changes(command: Train, path: Path, arguments: Sequence[str]) -> None:
    """Refuse options that would change a resumed run's configuration; only its budget may change."""
    if command.output is not None:
        raise UsageError("--resume continues in the same directory: leave --output out.")
    if command.recipe is not None:
        raise UsageError("A resumed run keeps its options: leave --recipe out.")
    own = directory.load(path).config
    words = {argument.split("=")[0].replace("_", "-") for argument in arguments}
    names = [field.name for field in dataclasses.fields(own)]
    given = [name for name in names if words & {option(name), option(f"no_{name}")}]
    canonical = {
        "estimator_options": ESTIMATORS[own.estimator].canonical,
        "task_options": MODELS[own.task].canonical,
    }
    for name in given:
        asked = canonical.get(name, lambda value: value)(getattr(command.config, name))
        if name not in BUDGET and asked != getattr(own, name):
            raise UsageError(
                f"{option(name)} cannot change when a run is resumed (it is {getattr(own, name)} in {path}): leave it "
                "out, or start a new run, perhaps with --init-from."
            )


def print_named_options(arguments: Sequence[str]) -> None:
    """Print the options of the estimator and of the task that a command line names, after its help."""
    words = [part for argument in arguments for part in argument.split("=", 1)]
    for flag, registry in (("--estimator", ESTIMATORS), ("--task", MODELS)):
        for word, name in itertools.pairwise(words):
            if word == flag and not name.startswith("-"):
                out.print(f"\nOf {flag} {name}, given as {flag}-options option=value ...:")
                print_options(registry[name])


def _print_result(run: Run) -> None:
    summary = run.summary()
    out.print(f"Done: {summary['updates']:,} updates ({summary['epochs']:g} epochs, {summary['minutes']:g} minutes).")
    for name, title in (("best", "Best validation bound"), ("best_average", "With averaged parameters")):
        if summary[name] is not None:
            best = summary[name]
            out.print(f"{title}: {best['validation_bound']:.2f} nats, at update {best['update']:,}.")
    if summary["note"]:
        out.print(summary["note"])
    names = ["curves.png"] if MODELS[run.config.task].pictures is None else ["curves.png", "samples.png"]
    out.print(f"Pictures: {', '.join(str(run.path / name) for name in names)}")
    out.print(f"Likelihood: {shlex.join(['vimco', *plugin_arguments(), 'evaluate', str(run.path)])}")
