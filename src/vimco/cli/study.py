"""The command `vimco study`: parse, call, print."""

import contextlib
import math
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.progress import BarColumn, TaskID

from vimco import data
from vimco.cli.options import Plugin
from vimco.cli.terminal import bars, download_progress, err, labelled, note, out, print_table
from vimco.errors import UsageError, printable
from vimco.files import write_file
from vimco.plugins import plugin_arguments
from vimco.report.terminal import print_section
from vimco.runs.config import words_of
from vimco.studies import STUDIES, Cell, Study
from vimco.studies.results import collected
from vimco.studies.runner import LocalWorkers, Watch, durations, planned, run_study
from vimco.studies.runner.cluster import connect
from vimco.studies.runner.engine import Ending, Engine, Task
from vimco.studies.runner.execution import Outcome
from vimco.studies.runner.script import slurm_script
from vimco.studies.runner.tasks import Training


@dataclass(frozen=True)
class RunStudy:
    """Compute a table or a figure of the paper: train what is missing, evaluate, and show it beside the paper's.

    Without a name, list the studies. A study can be stopped at any time; the same command resumes it. Runs that two
    studies share are done once, and a larger --updates extends existing runs.
    """

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """The study, such as table-1."""
    updates: int | None = None
    """Updates of each run; by default 100,000, or what the study says of its runs. One that has done more counts as
    done."""
    rates: tuple[float, ...] = ()
    """Learning rates to choose from by validation, instead of the paper's."""
    seeds: tuple[int, ...] = (0,)
    """Do every run with each of these seeds."""
    only: tuple[str, ...] = ()
    """Only the runs whose name has one of these parts: vimco-K5, or lr0.001; * and ? are wildcards."""
    data: str | None = None
    """The data set, in place of the study's own: the paper's, for most."""
    averaging: float | None = None
    """Also keep averaged parameters, with this decay (0.999, say), and evaluate them too."""
    workers: int | None = None
    """Runs at a time, each in a separate process: 1; on a cluster as many as its workers have threads; and with a batch
    system a job for each run."""
    threads: int | None = None
    """Cores of each process; by default all are shared out, and a job of --script has one."""
    cluster: str | None = None
    """Run on a Dask cluster: the address of its scheduler, such as host:8786; or slurm, pbs, lsf or sge, whose jobs
    become a cluster."""
    cluster_options: Path | None = None
    """A YAML file with the options of dask-jobqueue for slurm, pbs, lsf or sge: cores, memory, walltime, queue."""
    output: Path = Path("studies")
    """Where run directories and figures go."""
    dry_run: bool = False
    """List the runs and the time that training them would take, and do nothing."""
    script: Literal["slurm"] | None = None
    """Train nothing: write a job array for this batch system, with a line for each run that is not done."""
    plugin: Plugin = None

    def __call__(self) -> None:
        """List the studies, or run one and print its results."""
        if self.name is None:
            _print_studies()
            return
        for option, value in (("--updates", self.updates), ("--workers", self.workers), ("--threads", self.threads)):
            if value is not None and value < 1:
                raise UsageError(f"{option} must be positive; got {value}.")
        if self.cluster is None and self.cluster_options is not None:
            raise UsageError("--cluster-options needs --cluster: slurm, pbs, lsf or sge.")
        if self.cluster is not None and self.script is not None:
            raise UsageError("--script writes a job array instead of running the study: leave --cluster out.")
        if self.workers is not None and self.script is not None:
            raise UsageError("The batch system decides how many jobs of a --script run at a time: leave --workers out.")
        for rate in self.rates:
            if not 0 < rate < math.inf:
                raise UsageError(f"--rates must be positive and finite; got {rate:g}.")
        study = STUDIES[self.name]
        configurations = study.adjusted(
            updates=self.updates,
            data=self.data,
            rates=self.rates,
            seeds=self.seeds,
            averaging=self.averaging,
            only=self.only,
        )
        trainings, damaged = _readable(planned(configurations, self.output))
        for training, reason in damaged:
            note(f"{training.name} is left out. {reason}")
        if not trainings:
            raise UsageError("No run of this study can be read.")
        _print_plan(study, trainings, self.workers or 1)
        if self.dry_run:
            return
        with download_progress() as progress:  # once, before all workers need it
            checksum = data.load_dataset(trainings[0].config.data, progress=progress).checksum
        for training in trainings:
            run = training.run()
            if run is not None and run.data["checksum"] != checksum:
                raise UsageError(
                    f"{run.path} was trained on other data of the name {run.config.data} (checksum "
                    f"{run.data['checksum'][:12]}…, now {checksum[:12]}…): restore them, or choose another --output."
                )
        if self.script is not None:
            self._write_script(trainings)
            return
        with self._engine(trainings) as engine:
            display = StudyDisplay(trainings, engine)
            with display.bars:
                outcome = run_study(trainings, study.evaluation_samples, engine, display, study.noise)
        if outcome.signal_number is None and (self.output / "runs").is_dir():  # it is not, if every run failed at once
            runs, problems = collected([self.output / "runs"])
            for problem in problems:
                note(problem)
            of_data = [run for run in runs if run.data["checksum"] == checksum]
            print_section(study.section(of_data), self.output, out)
        outcome.failures += damaged
        _finish(outcome, self.output)

    @contextlib.contextmanager
    def _engine(self, trainings: Sequence[Training]) -> Iterator[Engine]:
        """Return the engine for the length of the study: processes of this machine, or a cluster."""
        if self.cluster is None:
            yield LocalWorkers(self.workers or 1, self.threads)
            return
        most = len(trainings)  # or fewer; evaluations are no more
        with connect(
            self.cluster, self.cluster_options, self.output, number=self.workers, most=most, threads=self.threads
        ) as engine:
            out.print(f"Dask scheduler at {engine.address}; dashboard: {engine.client.dashboard_link}")
            yield engine

    def _write_script(self, trainings: Sequence[Training]) -> None:
        """Write the job array of what is not done beside the run directories, and print how to start it."""
        due = [training for training in trainings if not training.is_done()]
        if not due:
            out.print("All runs are done: there is nothing to write a script for.")
            return
        path = self.output / f"{self.name}.slurm"
        self.output.mkdir(parents=True, exist_ok=True)
        write_file(path, slurm_script(str(self.name), due, self.threads or 1, self._arguments()).encode())
        out.print(f"Wrote {path}, a job array of {len(due)}. Start it with: sbatch {shlex.quote(str(path))}")
        if any(STUDIES[str(self.name)].noise(Cell.of(training.config)) for training in due):
            note("The jobs train to the end, so the noise of gradients is then measured there alone.")

    def _arguments(self) -> list[str]:
        """Return the words of this command that say which runs it has."""
        names = ("updates", "rates", "seeds", "only", "data", "averaging", "output")
        options = {name: value for name in names if (value := getattr(self, name)) not in (None, ())}
        return ["study", str(self.name), *words_of(options)]


class StudyDisplay(Watch):
    """A bar for each running task on a terminal; a line for each task that ends."""

    def __init__(self, trainings: Sequence[Training], engine: Engine):
        self.trainings, self.engine = trainings, engine
        self.next_look = 0.0
        self.bars = bars("{task.description}", BarColumn(bar_width=24), "{task.fields[text]}")
        self.whole = self.bars.add_task("the whole study", total=1.0, text="")
        self.tasks: dict[str, TaskID] = {}

    def started(self, task: Task) -> None:
        """Show a bar."""
        self.tasks[task.name] = self.bars.add_task(printable(task.name), total=1.0, text="starting")
        if not err.is_terminal:
            out.print(f"started: {task.name}")

    def ended(self, task: Task, ending: Ending) -> None:
        """Replace the bar by a line."""
        how = "failed" if ending.failure else "stopped" if ending.is_stopped else "done"
        notes = [f"  Note: {text}" for text in ending.notes]
        self._replace_bar(task, f"{how}: {task.name}{_result_of(task, ending)}", *notes)

    def lost(self, task: Task) -> None:
        """Replace the bar by a line."""
        self._replace_bar(task, f"killed: {task.name}: its process died")

    def _replace_bar(self, task: Task, *lines: str) -> None:
        if task.name in self.tasks:
            self.bars.remove_task(self.tasks.pop(task.name))
        for line in lines:
            (self.bars.console if err.is_terminal else out).print(line)

    def waited(self, running: Sequence[Task]) -> None:
        """Update the bars every few seconds from the run directories."""
        if not err.is_terminal or time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + 3
        with contextlib.suppress(UsageError):  # a file that cannot be read is reported by its task
            self._look(running)

    def _look(self, running: Sequence[Task]) -> None:
        left = durations.seconds_of_each(self.trainings)
        num_done = sum(seconds == 0 for seconds in left)
        time_left = durations.words(durations.seconds_left(left, self.engine.number))
        text = f"{num_done} of {len(left)} runs, about {time_left} of training left"
        self.bars.update(self.whole, completed=num_done / len(left), text=text)
        for task in running:
            if isinstance(task, Training) and (run := task.run()) and task.name in self.tasks:
                (of_task,) = durations.seconds_of_each([task])  # which may be a stage of a training
                text = f"{run.updates:,} of {task.target:,}, about {durations.words(of_task)} left"
                self.bars.update(self.tasks[task.name], completed=run.updates / task.target, text=text)


def _readable(trainings: Sequence[Training]) -> tuple[list[Training], list[tuple[Task, str]]]:
    """Return the runs that are missing or can be read, and the others with the reason."""
    good, damaged = list[Training](), list[tuple[Task, str]]()
    for training in trainings:
        try:
            training.is_done()
            good.append(training)
        except UsageError as error:
            damaged.append((training, f"{error} Restore it, or move {training.path} away to train it anew."))
    return good, damaged


def _result_of(task: Task, ending: Ending) -> str:
    if ending.failure is not None:
        return f": {ending.failure}"
    if isinstance(task, Training) and (run := task.run()) and (best := run.best()):
        return f": validation bound {best[1]:.2f} at update {best[0]:,}"
    return ""


def _print_studies() -> None:
    rows = [(study.name, str(len(study.runs())), study.title) for study in STUDIES.values()]
    print_table(["name", "runs", "what"], rows)
    out.print("One of them: vimco study NAME; first look at what it would do: vimco study NAME --dry-run")


def _print_plan(study: Study, trainings: Sequence[Training], workers: int) -> None:
    seconds = durations.seconds_of_each(trainings)
    rows = []
    for training, left in zip(trainings, seconds, strict=True):
        run = training.run()
        state = "done" if training.is_done() else f"cut off at {run.updates:,}" if run else "missing"
        rows.append((training.name, state, "" if state == "done" else f"about {durations.words(left)}"))
    runs = "1 run" if len(trainings) == 1 else f"{len(trainings)} runs"
    lengths = " or ".join(f"{target:,}" for target in dict.fromkeys(training.target for training in trainings))
    out.print(f"{study.title}. {runs} of {lengths} updates:")
    print_table(["run", "state", "time left"], rows)
    num_done = sum(training.is_done() for training in trainings)
    total = durations.words(durations.seconds_left(seconds, workers))
    besides = "" if study.evaluation_samples is None else " (evaluations come on top)"
    out.print(f"{num_done} done, {len(trainings) - num_done} to do; training needs about {total} more{besides}.")


def _finish(outcome: Outcome, output: Path) -> None:
    """Print failures and the next command; exit with a status other than 0 after a failure or a signal."""
    for task, reason in outcome.failures:
        err.print(labelled("Failed:", "red", f"{task.name}: {reason}"))
    if outcome.signal_number is not None:
        err.print("Stopped; nothing is lost. The same command resumes.")
        sys.exit(128 + outcome.signal_number)
    if outcome.failures:
        sys.exit(1)
    out.print(f"A page of all results: {shlex.join(['vimco', *plugin_arguments(), 'report', str(output)])}")
