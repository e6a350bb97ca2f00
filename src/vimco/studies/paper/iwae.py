"""Importance-weighted autoencoders (Burda, Grosse & Salakhutdinov, 2015): the same bound, reparameterised latents."""

from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import Cell
from vimco.studies.document import Block, Text
from vimco.studies.paper.protocol import at_every_rate
from vimco.studies.study import Study, register_study
from vimco.studies.tables import likelihood_tables

SIZES = (1, 5, 50)
# Negative log-likelihood in nats with 5000 samples, fixed binarization, by stochastic layers (deepest first), in the
# order of SIZES: their Table 2. K = 1 is the variational autoencoder.
PUBLISHED = {(50,): (88.71, 87.63, 87.10), (50, 100): (88.08, 86.17, 85.32)}
REMARK = (
    "The published numbers are from 3280 passes over the training set at rates that fall in eight stages, with "
    "mini-batches of 20 and Adam's epsilon 1e-4. The runs here keep to this project's protocol, a constant rate and "
    "mini-batches of 24; vimco train --recipe burda is the published one. "
    "vimco evaluate also counts the active units."
)


def cell(layers: tuple[int, ...], K: int, estimator: str = "pathwise") -> Cell:
    """Return the cell of a model."""
    return Cell("gaussian", "learned", layers, estimator, K)


def runs() -> list[RunConfig]:
    """Gaussian models of whole images with one and two layers: pathwise and DReG at K = 1, 5, 50."""
    return at_every_rate(cell(layers, K, name) for layers in PUBLISHED for K in SIZES for name in ("pathwise", "dreg"))


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Estimators in columns, layers and K in rows."""
    rows = {
        f"{'-'.join(map(str, layers))}, K = {K}": [cell(layers, K), cell(layers, K, "dreg")]
        for layers in PUBLISHED
        for K in SIZES
    }
    published = {
        cell(layers, K): value for layers, row in PUBLISHED.items() for K, value in zip(SIZES, row, strict=True)
    }
    return [*likelihood_tables(study, found, "layers", rows, published, titles=("IWAE", "DReG")), Text(REMARK)]


register_study(
    Study(
        "iwae",
        "Importance-weighted autoencoders: negative log-likelihood of Gaussian models",
        "test negative log-likelihood, 5000 samples",
        runs,
        show,
        evaluation_samples=5000,
    )
)
