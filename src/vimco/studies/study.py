"""A study: runs that are compared with each other, and how they are named.

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
from pathlib import Path
from typing import Any, NamedTuple

from vimco.data.catalogue import NAMES
from vimco.errors import UsageError
from vimco.runs.config import RunConfig

PAPER = RunConfig(data="binarized-mnist")  # the protocol of the paper's runs


class Cell(NamedTuple):
    """What one number or curve stands for. Its runs differ in learning rate and seed."""

    task: str
    proposal: str
    layers: tuple[int, ...]
    estimator: str
    num_samples: int

    @classmethod
    def of(cls, config: RunConfig) -> "Cell":
        """The cell that a run belongs to."""
        return cls(config.task, config.proposal, config.layers, config.estimator, config.num_samples)


def distinct_cells(runs: Iterable[RunConfig]) -> list[Cell]:
    """The cells of some runs, each once, in their order."""
    return list(dict.fromkeys(map(Cell.of, runs)))


@dataclass(frozen=True)
class Study:
    """A table or a figure: its runs, and the samples with which the chosen ones are evaluated (none: they are not)."""

    name: str
    title: str
    runs: Callable[[], list[RunConfig]]
    evaluation_samples: int | None = None

    @property
    def cells(self) -> list[Cell]:
        """The numbers or curves that it is made of."""
        return distinct_cells(self.runs())

    def adjusted(
        self,
        *,
        updates: int,
        data: str = PAPER.data,
        rates: Sequence[float] = (),
        seeds: Sequence[int] = (0,),
        averaging: float | None = None,
        only: Sequence[str] = (),
    ) -> list[RunConfig]:
        """Its runs, each once, with this budget and these seeds; `rates` take the place of the paper's.

        `only` keeps the runs whose label has a part that matches one of the patterns.
        """
        if data not in NAMES and not Path(data).expanduser().is_file():
            raise UsageError(f"{data} is neither a data set's name (see `vimco data list`) nor a file.")
        shared: dict[str, Any] = {"updates": updates, "data": data, "averaging": averaging, **cadence(updates)}
        runs = [
            dataclasses.replace(run, learning_rate=rate, seed=seed, **shared)
            for run in self.runs()
            for rate in (rates or (run.learning_rate,))
            for seed in seeds
        ]
        kept = [run for run in dict.fromkeys(runs) if not only or any(_matches(label(run), p) for p in only)]
        if not kept:
            raise UsageError(
                f"No run of {self.name} matches {' or '.join(only)}. The runs have names like {label(runs[0])}; a "
                "pattern is a part of one, between dashes, and may hold * and ?."
            )
        return kept


def cadence(updates: int) -> dict[str, int]:
    """The usual cadence, or a closer one where a budget is small: a curve has ten points or more."""
    default = RunConfig()
    return {
        "log_every": min(default.log_every, max(1, updates // 20)),
        "validate_every": min(default.validate_every, max(1, updates // 10)),
    }


def label(config: RunConfig) -> str:
    """What a person calls a run of a study."""
    task = f"structured-{config.proposal}" if config.task == "structured" else "generative"
    layers = "-".join(map(str, config.layers))
    return f"{task}-{layers}-{config.estimator}-K{config.num_samples}-lr{config.learning_rate:g}-seed{config.seed}"


def digest(config: RunConfig) -> str:
    """Twelve hexadecimal digits that name a run: the same for any budget and cadence.

    Only what differs from the defaults counts, so that an option that comes later leaves the names of old runs alone.
    A path counts as it is written.
    """
    default = RunConfig().identity
    differing = {name: value for name, value in config.identity.items() if value != default[name]}
    return hashlib.sha256(json.dumps(differing, sort_keys=True).encode()).hexdigest()[:12]


def run_name(config: RunConfig) -> str:
    """The name of the run's directory."""
    return f"{label(config)}-{digest(config)}"


def command(config: RunConfig, output: str) -> str:
    """The command line that trains this run from its beginning."""
    parts = ["vimco", "train"]
    for field in dataclasses.fields(config):
        value, option = getattr(config, field.name), "--" + field.name.replace("_", "-")
        if value == field.default:
            continue
        if isinstance(value, bool):
            parts.append(option if value else option.replace("--", "--no-", 1))
        else:
            parts += [option, *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return shlex.join([*parts, "--output", output])


def variations(config: RunConfig) -> dict[str, Any]:
    """Where a run departs from the paper's protocol, beside what makes a cell, its rate, seed and averaging."""
    free = {*Cell._fields, "data", "learning_rate", "seed", "averaging", "slice_size"}
    default = PAPER.identity
    return {name: value for name, value in config.identity.items() if name not in free and value != default[name]}


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(f"-{name}-", f"*-{pattern}-*")
