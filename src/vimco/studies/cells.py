"""Cells: what one number of a table or one curve stands for."""

from typing import Any, NamedTuple

from vimco.runs.config import RunConfig

PAPER = RunConfig(data="binarized-mnist")  # the protocol of the paper's runs
TITLES = {
    "vimco": "VIMCO",
    "nvil": "NVIL",
    "rws": "RWS (wake)",
    "vimco-arithmetic": "VIMCO, arithmetic mean",
    "vimco-leave-one-out": "VIMCO, f̂ = 0",
    "vimco-learned": "VIMCO, learned f(x)",
    "naive": "naive",
    "rws-sleep": "RWS (sleep)",
    "rws-both": "RWS (wake and sleep)",
}


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
        return cls(**{name: getattr(config, name) for name in cls._fields})

    @property
    def title(self) -> str:
        """What a person calls it, without its K."""
        proposal = f", {self.proposal} proposal" if self.task == "structured" else ""
        return title_of(self.estimator) + proposal

    @property
    def short_title(self) -> str:
        """As the paper writes it in a legend: VIMCO (5)."""
        return f"{title_of(self.estimator).removesuffix(' (wake)')} ({self.num_samples})"


def title_of(estimator: str) -> str:
    """What a person calls an estimator; one that is new here keeps the name it has."""
    return TITLES.get(estimator, estimator)


def variations(config: RunConfig) -> dict[str, Any]:
    """Where a run departs from the paper's protocol, beside what makes a cell, its rate, seed and averaging."""
    free = {*Cell._fields, "data", "learning_rate", "seed", "averaging", "slice_size"}
    default = PAPER.identity
    return {name: value for name, value in config.identity.items() if name not in free and value != default[name]}
