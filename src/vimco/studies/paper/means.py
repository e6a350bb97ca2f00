"""Sec. 2.5.3: the estimate of the left-out f in VIMCO's signal. At K = 2 both means are the one other sample."""

from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.curve import COLOURS, Curve
from vimco.runs.directory import Run
from vimco.studies.claims import Claim, by_curves
from vimco.studies.curves import plot, without_short_ones
from vimco.studies.document import Block
from vimco.studies.paper.protocol import at_every_rate, generative
from vimco.studies.results import chosen
from vimco.studies.study import Study, register_study
from vimco.studies.tables import likelihood_tables

STAND_INS = {
    "vimco": "geometric mean",
    "vimco-arithmetic": "arithmetic mean",
    "vimco-leave-one-out": "f̂ = 0",
    "vimco-learned": "learned f(x)",
}
SIZES = (5, 10)
CAPTION = "The bound on the validation set with the training K, against updates, in the runs chosen by it."


def runs() -> list[RunConfig]:
    """Geometric and arithmetic mean, f̂ = 0, learned f(x), at K = 5 and 10."""
    return at_every_rate(cell for K in SIZES for name in STAND_INS for cell in generative(name, K))


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Stand-ins in columns, K in rows; a panel of curves for each K."""
    rows = {str(K): [generative(name, K)[0] for name in STAND_INS] for K in SIZES}
    panels = {
        f"K = {K}": [
            Curve(title, "", points, colour, line)
            for (name, title), colour, line in zip(STAND_INS.items(), COLOURS, ("-", "--", ":", "-."), strict=False)
            for run in without_short_ones(chosen(found, generative(name, K)[0]))
            if (points := run.curve("validation_bound"))
        ]
        for K in SIZES
    }
    return [
        *likelihood_tables(study, found, "K", rows, titles=tuple(STAND_INS.values())),
        plot(study.name, panels, "validation bound (nats)", CAPTION),
    ]


CLAIMS = tuple(
    Claim(
        f"The geometric mean is slightly better than the arithmetic: K = {K}",
        "Sec. 2.5.3",
        by_curves([*generative("vimco", K), *generative("vimco-arithmetic", K)], lambda v: v[0] > v[1]),
    )
    for K in SIZES
)

register_study(
    Study(
        "means",
        "What stands in for the left-out sample in VIMCO's signal",
        "test negative log-likelihood, validation bound",
        runs,
        show,
        evaluation_samples=1000,
        claims=CLAIMS,
    )
)
