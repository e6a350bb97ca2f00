"""Cells: the meaning of one number of a table or one curve."""

from typing import Any, NamedTuple

from vimco.estimators import ESTIMATORS
from vimco.models import MODELS
from vimco.runs.config import RunConfig

PAPER = RunConfig(data="binarized-mnist")  # the protocol of the paper's runs


class Cell(NamedTuple):
    """The meaning of one number or curve. Its runs differ in learning rate and seed."""

    task: str
    proposal: str
    layers: tuple[int, ...]
    estimator: str
    num_samples: int
    estimator_options: tuple[str, ...] = ()
    task_options: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: RunConfig) -> "Cell":
        """Return the cell that a run belongs to."""
        return cls(**{name: getattr(config, name) for name in cls._fields})

    @property
    def has_choice_of_proposal(self) -> bool:
        """Whether the model family offers more than one proposal, so that a title must name it."""
        return "proposal" in MODELS[self.task].parameters

    @property
    def title(self) -> str:
        """The readable name, without K."""
        proposal = f", {self.proposal} proposal" if self.has_choice_of_proposal else ""
        return " ".join((ESTIMATORS.title_of(self.estimator), *self.estimator_options)) + proposal

    @property
    def short_title(self) -> str:
        """The name in the paper's legends, such as VIMCO (5)."""
        return f"{' '.join((short_title_of(self.estimator), *self.estimator_options))} ({self.num_samples})"


def short_title_of(estimator: str) -> str:
    """Return the name of an estimator in the paper's legends."""
    short = ESTIMATORS[estimator].short_title if estimator in ESTIMATORS else ""
    return short or ESTIMATORS.title_of(estimator)


def variations(config: RunConfig) -> dict[str, Any]:
    """Return the fields in which a run departs from the paper's protocol, except cell, rate, seed and averaging."""
    free = {*Cell._fields, "data", "binarize", "learning_rate", "seed", "averaging", "slice_size"}
    default = PAPER.identity
    return {name: value for name, value in config.identity.items() if name not in free and value != default[name]}


def in_words(departures: dict[str, Any]) -> str:
    """Return the fields in which a run departs from the protocol for readers: schedule cosine, weight decay 0.01."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in departures.items())
