"""Systems that the paper names, on structured prediction with samples from the prior (end of Sec. 5.2)."""

from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import Cell
from vimco.studies.claims import Claim, by_likelihoods
from vimco.studies.document import Block, Text
from vimco.studies.paper.protocol import at_every_rate
from vimco.studies.study import Study, register_study
from vimco.studies.tables import likelihood_tables

LAYERS = ((200, 200), (200, 200, 200))
SIZES = (1, 5, 20)
# Title: the estimator, its options, and the smallest K that it takes.
METHODS: dict[str, tuple[str, tuple[str, ...], int]] = {
    "VIMCO": ("vimco", (), 2),
    "NVIL": ("nvil", (), 1),
    "Raiko": ("straight-through", (), 1),
    "Tang": ("tang", (), 2),
    "Tang, centred": ("tang", ("centred=true",), 2),
    "MuProp": ("muprop", (), 1),
    "local expectations": ("local-expectations", (), 1),
}
# Negative log-likelihoods with 100 samples, by layers, K and method. K = 1 is Table 2 of Gu et al. (2016): NVIL, the
# straight-through estimator and MuProp with a constant baseline, the best on the test set. K = 20 is Sec. 5.2.
PUBLISHED = {
    ((200, 200), 1): {"NVIL": 63.2, "Raiko": 56.1, "MuProp": 57.7},
    ((200, 200, 200), 1): {"NVIL": 100.6, "Raiko": 54.4, "MuProp": 62.7},
    ((200, 200), 20): {"VIMCO": 56.5, "Raiko": 53.8},
}
REMARK = (
    "The numbers of other papers: at K = 1 those of Gu et al. (MuProp, Table 2), their best on the test set; at "
    "K = 20 those that Sec. 5.2 has for VIMCO and quotes for Raiko et al. With 240 units in a layer, K = 50 and ten "
    "million updates Maddison et al. (the Concrete distribution) have 51.8 with two layers and 50.2 with three for "
    "VIMCO. The straight-through estimator of Raiko et al. is biased for the layers that are sampled, and Tang & "
    "Salakhutdinov's EM for the prior; the others are unbiased."
)


def cell(method: str, layers: tuple[int, ...], K: int) -> Cell:
    """Return the cell of a method."""
    estimator, options, _ = METHODS[method]
    return Cell("structured", "prior", layers, estimator, K, options)


def runs() -> list[RunConfig]:
    """Bottom halves from the prior, two and three layers: seven methods at K = 1, 5, 20 as each allows."""
    return at_every_rate(
        cell(method, layers, K)
        for layers in LAYERS
        for K in SIZES
        for method, (_, _, least) in METHODS.items()
        if least <= K
    )


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Methods in columns, layers and K in rows."""
    rows = {
        f"{'-'.join(map(str, layers))}, K = {K}": [cell(method, layers, K) for method in METHODS]
        for layers in LAYERS
        for K in SIZES
    }
    published = {
        cell(method, layers, K): value for (layers, K), row in PUBLISHED.items() for method, value in row.items()
    }
    return [
        *likelihood_tables(study, found, "layers", rows, published, titles=tuple(METHODS)),
        Text(REMARK),
    ]


CLAIMS = (
    Claim(
        "With samples from the prior, the biased estimator of Raiko et al. has a better likelihood than VIMCO",
        "Sec. 5.2",
        by_likelihoods(
            [cell("Raiko", (200, 200), 20), cell("VIMCO", (200, 200), 20)], lambda v: v[0] < v[1], num_samples=100
        ),
    ),
)

register_study(
    Study(
        "related",
        "Systems that the paper names: structured prediction with samples from the prior",
        "test negative log-likelihood, 100 samples",
        runs,
        show,
        evaluation_samples=100,
        claims=CLAIMS,
    )
)
