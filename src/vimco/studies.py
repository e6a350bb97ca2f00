"""The paper's tables and figures: functions that return run configurations, and the table of their names.

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
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vimco.config import EstimatorName, RunConfig
from vimco.data.catalogue import NAMES
from vimco.errors import UsageError

RATES = (3e-4, 1e-3, 3e-3)
RATES_OF_STRUCTURED_NVIL = (1e-4, 3e-4, 1e-3)
PAPER = RunConfig(data="binarized-mnist")
SAMPLES_OF_GENERATIVE, SAMPLES_OF_STRUCTURED = 1000, 100  # for the negative log-likelihood

Proposal = Literal["learned", "prior"]
PROPOSALS: tuple[Proposal, ...] = ("prior", "learned")
MEANS: tuple[EstimatorName, ...] = ("vimco", "vimco-arithmetic", "vimco-leave-one-out", "vimco-learned")


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


def table_1() -> list[RunConfig]:
    """Table 1: the 200-200-200 network of whole images, VIMCO, NVIL and RWS (wake), and NVIL at K = 1."""
    estimators: tuple[EstimatorName, ...] = ("vimco", "nvil", "rws")
    cells: list[tuple[EstimatorName, int]] = [("nvil", 1), *product(estimators, (2, 5, 10, 50))]
    return [_generative(estimator, K, rate) for (estimator, K), rate in product(cells, RATES)]


def figure_1() -> list[RunConfig]:
    """Figure 1: the curves of Table 1's runs."""
    return table_1()


def figure_2() -> list[RunConfig]:
    """Figure 2: three layers predict the bottom half of an image, with samples from the prior or a learned proposal."""
    estimators: tuple[EstimatorName, ...] = ("vimco", "nvil")
    cells: list[tuple[EstimatorName, int]] = [("nvil", 1), *product(estimators, (2, 5, 20, 50))]
    return [
        _structured((200, 200, 200), proposal, estimator, K, rate)
        for proposal, (estimator, K) in product(PROPOSALS, cells)
        for rate in (RATES_OF_STRUCTURED_NVIL if estimator == "nvil" else RATES)
    ]


def structured_nll() -> list[RunConfig]:
    """The end of Sec. 5.2: two layers, K = 20, VIMCO with both proposals. RWS refuses the prior, and is an extra."""
    cells: list[tuple[Proposal, EstimatorName]] = [("prior", "vimco"), ("learned", "vimco"), ("learned", "rws")]
    return [
        _structured((200, 200), proposal, estimator, 20, rate) for (proposal, estimator), rate in product(cells, RATES)
    ]


def figure_3() -> list[RunConfig]:
    """Figure 3 (supplement C): the learning signal in Table 1's runs of VIMCO and NVIL at K = 2, 5, 10."""
    return [run for run in table_1() if run.estimator in ("vimco", "nvil") and run.num_samples in (2, 5, 10)]


def figure_4() -> list[RunConfig]:
    """Figure 4 (supplement E): one of Figure 2's models, VIMCO at K = 20 with a learned proposal."""
    return [run for run in figure_2() if (run.proposal, run.estimator, run.num_samples) == ("learned", "vimco", 20)]


def means() -> list[RunConfig]:
    """Sec. 2.5.3: what stands in for the left-out f. At K = 2 both means are the one other sample, so K = 5 and 10."""
    return [_generative(estimator, K, rate) for K, estimator, rate in product((5, 10), MEANS, RATES)]


def _generative(estimator: EstimatorName, K: int, rate: float) -> RunConfig:
    return dataclasses.replace(PAPER, estimator=estimator, num_samples=K, learning_rate=rate)


def _structured(
    layers: tuple[int, ...], proposal: Proposal, estimator: EstimatorName, K: int, rate: float
) -> RunConfig:
    return dataclasses.replace(_generative(estimator, K, rate), task="structured", layers=layers, proposal=proposal)


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


STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study("table-1", "Table 1: negative log-likelihood of generative models", table_1, SAMPLES_OF_GENERATIVE),
        Study("figure-1", "Figure 1: the validation bound of generative models in training", figure_1),
        Study("figure-2", "Figure 2: the validation bound of structured prediction in training", figure_2),
        Study(
            "structured-nll",
            "Structured prediction: negative log-likelihood of the two-layer model",
            structured_nll,
            SAMPLES_OF_STRUCTURED,
        ),
        Study("figure-3", "Figure 3: the size of the learning signal in training", figure_3),
        Study("figure-4", "Figure 4: completions of digits by the three-layer model", figure_4),
        Study("means", "What stands in for the left-out sample in VIMCO's signal", means, SAMPLES_OF_GENERATIVE),
    )
}


def named_study(name: str) -> Study:
    """The study that the command line calls `name`."""
    if name not in STUDIES:
        raise UsageError(f"There is no study {name!r}; choose one of {', '.join(STUDIES)}.")
    return STUDIES[name]


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
