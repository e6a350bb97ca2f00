"""A study: runs that are compared with each other, how they are shown and named, and the table of all studies.

Runs of a study that differ in learning rate and seed only make up a `Cell`: one number of a table, or one curve. The
learning rate of a cell is chosen by the validation bound, as in the paper (supplement B).
"""

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from vimco.data.catalogue import DATASETS
from vimco.errors import UsageError
from vimco.files import in_home
from vimco.models import MODELS
from vimco.registry import Names
from vimco.runs.config import DEFAULT_UPDATES, RunConfig, words_of
from vimco.runs.directory import Run
from vimco.studies.cells import PAPER, Cell, in_words, variations
from vimco.studies.claims import Claim
from vimco.studies.document import Block, Section, Text

Kind = tuple[Cell, dict[str, Any]]  # what `kind` returns


def distinct_cells(runs: Iterable[RunConfig]) -> list[Cell]:
    """Return the cells of some runs, each once, in their order."""
    return list(dict.fromkeys(map(Cell.of, runs)))


@dataclass(frozen=True)
class Study:
    """A table or a figure: its runs, how they are shown, and what the paper claims about them.

    `runs()` lists the runs; its docstring describes them in the list of studies. They depart from `cells.PAPER` in the
    fields of a `Cell` and the learning rate alone: tables and claims leave out runs that depart elsewhere. Seed, data
    and averaging come from the command line; so do the updates, or else from the run, or else they are 100,000.
    `show(study, found)` returns blocks of a document from the runs that exist. The chosen runs are evaluated with
    `evaluation_samples`, if given. `noise(cell)` names the estimators whose gradients are measured in the runs of a
    cell, at a fiftieth, a fifth and the end of the training.
    """

    name: str
    title: str
    shows: str  # a few words for the list of studies
    runs: Callable[[], list[RunConfig]]
    show: Callable[["Study", Sequence[Run]], list[Block]]
    evaluation_samples: int | None = None
    claims: tuple[Claim, ...] = ()
    noise: Callable[[Cell], tuple[str, ...]] = lambda _cell: ()
    data: str = PAPER.data  # where the command line names none
    is_front: bool = False  # shown before the remarks of a report
    shows_too: Callable[[Run], bool] = lambda _run: False  # whether it shows a run that it does not plan
    lists_missing: bool = True  # a list of what was not run follows what is shown

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells of its numbers or curves."""
        return distinct_cells(self.runs())

    @cached_property
    def _kinds(self) -> list[Kind]:
        return list(map(kind, self.runs()))

    def is_run(self, runs: Sequence[Run]) -> bool:
        """Return whether there is something to show among these runs."""
        return any(kind(run.config) in self._kinds or self.shows_too(run) for run in runs)

    def section(self, runs: Sequence[Run]) -> Section:
        """Return its results so far, and what was run at none of its learning rates."""
        found, missing = [kind(run.config) for run in runs], list[Kind]()
        for planned in self._kinds:
            if planned not in found and planned not in missing:
                missing.append(planned)
        if not self.is_run(runs):
            return Section(self.name, self.title, (Text(f"Not run. The command is: vimco study {self.name}"),))
        sizes: dict[str, list[str]] = {}
        has_one_model = len({(cell.task, cell.layers) for cell in self.cells}) == 1
        for cell, departures in missing:
            title = cell.title if has_one_model else f"{cell.title}, {'-'.join(map(str, cell.layers))}"
            title += f" ({in_words(departures)})" if departures else ""
            sizes.setdefault(title, []).append(str(cell.num_samples))
        listed = "; ".join(f"{title}, K = {', '.join(numbers)}" for title, numbers in sizes.items())
        rest = [Text(f"Not run: {listed}.")] if missing and self.lists_missing else []
        return Section(self.name, self.title, (*self.show(self, runs), *rest))

    def adjusted(
        self,
        *,
        updates: int | None = None,
        data: str | None = None,
        rates: Sequence[float] = (),
        seeds: Sequence[int] = (0,),
        averaging: float | None = None,
        only: Sequence[str] = (),
    ) -> list[RunConfig]:
        """Return its runs, each once, with these seeds; `updates`, `rates` and `data` replace its own.

        The updates count mini-batches of the paper: a run with larger ones has fewer updates, on as many images.
        `only` keeps the runs whose label has a part that matches one of the patterns.
        """
        data = data or self.data
        if data not in DATASETS and not in_home(data).is_file():
            raise UsageError(f"{data} is neither a data set's name (see `vimco data list`) nor a file.")
        if not seeds:
            raise UsageError("--seeds needs one or more numbers.")
        runs = [
            dataclasses.replace(
                run,
                learning_rate=rate,
                seed=seed,
                data=data,
                averaging=averaging,
                **_length(max(1, updates * PAPER.batch_size // run.batch_size) if updates else run.updates),
            )
            for run in self.runs()
            for rate in (rates or (run.learning_rate,))
            for seed in seeds
        ]
        patterns = [f"*-{part}-*" for part in only or ["*"]]
        kept = [run for run in dict.fromkeys(runs) if any(fnmatchcase(f"-{label(run)}-", each) for each in patterns)]
        if not kept:
            raise UsageError(
                f"No run of {self.name} matches {' or '.join(only)}. The runs have names like {label(runs[0])}; a "
                "pattern is a part of one, between dashes, and may hold * and ?."
            )
        return kept


def _length(updates: int | None) -> dict[str, Any]:
    """Return a budget with the usual cadence, or a shorter one, so that a curve has ten points or more."""
    updates = updates or DEFAULT_UPDATES
    return {
        "updates": updates,
        "log_every": min(PAPER.log_every, max(1, updates // 20)),
        "validate_every": min(PAPER.validate_every, max(1, updates // 10)),
    }


STUDIES: Names[Study] = Names("study")


def register_study(study: Study) -> Study:
    """Register a study for the program and the report; return it."""
    STUDIES.add(study.name, study)
    return study


def label(config: RunConfig) -> str:
    """Return the readable name of a run of a study."""
    family = MODELS[config.task]
    proposal = [config.proposal] if "proposal" in family.parameters else []
    layers = map(str, config.layers) if "layers" in family.parameters else []
    model = "-".join((config.task, *proposal, *config.task_options, *layers))
    estimator = "-".join((config.estimator, *config.estimator_options))
    return f"{model}-{estimator}-K{config.num_samples}-lr{config.learning_rate:g}-seed{config.seed}"


def digest(config: RunConfig) -> str:
    """Return twelve hexadecimal digits that identify a run, the same for any budget and cadence.

    Only fields that differ from the defaults are hashed, so that a new option does not change the names of old runs.
    A path is hashed as written.
    """
    default = RunConfig().identity
    differing = {name: value for name, value in config.identity.items() if value != default[name]}
    return hashlib.sha256(json.dumps(differing, sort_keys=True).encode()).hexdigest()[:12]


def run_name(config: RunConfig) -> str:
    """Return the name of the run's directory."""
    return f"{label(config)}-{digest(config)}"


def arguments_of(config: RunConfig) -> list[str]:
    """Return the options of `vimco train` for a configuration."""
    given = {field.name: (getattr(config, field.name), field.default) for field in dataclasses.fields(config)}
    return words_of({name: value for name, (value, default) in given.items() if value != default})


def train_command(config: RunConfig, output: str) -> str:
    """Return the command line that trains this run from its beginning."""
    return shlex.join(["vimco", "train", *arguments_of(config), "--output", output])


def kind(config: RunConfig) -> Kind:
    """Return the cell of a run, and where it departs from the paper's protocol, whatever its length, rate and seed."""
    return Cell.of(config), {name: v for name, v in variations(config).items() if name != "schedule_updates"}
