"""The models and learning rates that the studies of the paper share (supplement B)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from vimco.runs.config import RunConfig
from vimco.runs.recipes import RECIPES
from vimco.studies.cells import PAPER, Cell

SOURCE = "A. Mnih, D. J. Rezende: Variational Inference for Monte Carlo Objectives. ICML 2016."
RATES, RATES_OF_STRUCTURED_NVIL = (3e-4, 1e-3, 3e-3), (1e-4, 3e-4, 1e-3)
PROPOSALS = {"prior": "samples from the prior", "learned": "samples from a learned proposal"}


def generative(estimator: str, *sizes: int) -> list[Cell]:
    """Return cells of the 200-200-200 model of whole images, one for each K."""
    return [Cell("generative", "learned", (200, 200, 200), estimator, K) for K in sizes]


def structured(proposal: str, estimator: str, *sizes: int, layers: tuple[int, ...] = (200, 200, 200)) -> list[Cell]:
    """Return cells of the models that predict the bottom half of an image, one for each K."""
    return [Cell("structured", proposal, layers, estimator, K) for K in sizes]


def recipe(name: str, updates: int | None = None) -> dict[str, Any]:
    """Return the options of a recipe, for a budget if one is given; averaging comes from the command line."""
    options = {option: value for option, value in RECIPES[name].options.items() if option != "averaging"}
    completed = RECIPES[name].completed(replace(PAPER, updates=updates, **options))
    return {**options, "estimator_options": completed.estimator_options}


def at_every_rate(cells: Iterable[Cell]) -> list[RunConfig]:
    """Return the runs of some cells, with each of the paper's learning rates."""
    return [
        replace(PAPER, learning_rate=rate, **cell._asdict())
        for cell in cells
        for rate in (RATES_OF_STRUCTURED_NVIL if (cell.task, cell.estimator) == ("structured", "nvil") else RATES)
    ]
