"""Importance-weighted autoencoders (Burda, Grosse & Salakhutdinov, 2015): the same bound, reparameterised latents."""

from collections.abc import Mapping, Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import Cell
from vimco.studies.claims import Check, Claim, by_likelihoods, falls
from vimco.studies.document import Block, Entry, Table, Text, short_count
from vimco.studies.paper.protocol import at_every_rate
from vimco.studies.results import chosen
from vimco.studies.study import Study, register_study
from vimco.studies.tables import likelihood_tables

SIZES = (1, 5, 50)
SOURCE = "Burda et al. (2015), Table 2"
# Negative log-likelihood in nats with 5000 samples, fixed binarization, by stochastic layers (deepest first), in the
# order of SIZES: their Table 2. K = 1 is the variational autoencoder.
PUBLISHED = {(50,): (88.71, 87.63, 87.10), (50, 100): (88.08, 86.17, 85.32)}
# Active units in the same order, the layer next to x first.
PUBLISHED_UNITS = {(50,): ((19,), (22,), (24,)), (50, 100): ((16, 5), (21, 5), (24, 7))}
NUM_SAMPLES = 5000
REMARK = (
    "The published numbers are from 3280 passes over the training set at rates that fall in eight stages, with "
    "mini-batches of 20 and Adam's epsilon 1e-4. The runs here keep to this project's protocol, a constant rate and "
    "mini-batches of 24; vimco train --recipe burda is the published one. A "
    "unit is active if the variance of its posterior mean over the test images is above 0.01. At a constant rate the "
    "means of unused units keep moving about that threshold, so averaged parameters are counted where they were "
    "evaluated."
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
    return [
        *likelihood_tables(study, found, "layers", rows, published, titles=("IWAE", "DReG")),
        active_units(found, rows),
        Text(REMARK),
    ]


def active_units(found: Sequence[Run], rows: Mapping[str, Sequence[Cell]]) -> Table:
    """Return the table of active units of the chosen runs, the layer next to x first, beside the published ones."""

    def entry(of_cell: Cell) -> Entry:
        run = next(iter(chosen(found, of_cell)), None)
        if run is None:
            return Entry("not run", is_missing=True)
        ended = run.summary().get("updates", run.updates)
        stages = {**run.stages, ended: run.evaluations}
        for length in sorted(stages, reverse=True):  # a run that was extended has those of before, until evaluated
            records = [r for r in stages[length] if r["split"] == "test" and isinstance(r.get("active_units"), list)]
            if records:
                record = max(records, key=lambda r: (r["weights"] == "best-average", r["update"], r["num_samples"]))
                kind = "averaged" if record["weights"] == "best-average" else "raw"
                updates = length if record["update"] <= length else run.updates  # it is being extended
                return Entry(_sum(record["active_units"][::-1]), f"{short_count(updates)} updates, {kind} parameters")
        return Entry("not evaluated", is_missing=True)

    published = [_sum(units) for row in PUBLISHED_UNITS.values() for units in row]
    body = [
        (Entry(title), *map(entry, cells), Entry(there))
        for (title, cells), there in zip(rows.items(), published, strict=True)
    ]
    headings = ("layers", "IWAE", "DReG", "IWAE, paper")
    return Table("Active units, the layer next to x first", headings, tuple(body), frozenset({3}))


def _sum(units: Sequence[int]) -> str:
    return " + ".join(map(str, units))


def _improves(layers: tuple[int, ...]) -> Check:
    return by_likelihoods([cell(layers, K) for K in SIZES], falls, NUM_SAMPLES)


CLAIMS = (
    Claim("With one stochastic layer, an autoencoder's likelihood improves with K", SOURCE, _improves((50,))),
    Claim("With two stochastic layers, an autoencoder's likelihood improves with K", SOURCE, _improves((50, 100))),
    Claim(
        "At K = 50 two stochastic layers have a better likelihood than one",
        SOURCE,
        by_likelihoods([cell((50,), 50), cell((50, 100), 50)], falls, NUM_SAMPLES),
    ),
)


register_study(
    Study(
        "iwae",
        "Importance-weighted autoencoders: negative log-likelihood of Gaussian models",
        "test negative log-likelihood, 5000 samples",
        runs,
        show,
        evaluation_samples=NUM_SAMPLES,
        claims=CLAIMS,
    )
)
