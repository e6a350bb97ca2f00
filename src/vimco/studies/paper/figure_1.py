"""Figure 1: the validation bound of generative models in training."""

from collections.abc import Sequence

from vimco.estimators import ESTIMATORS
from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.claims import Claim, by_curves
from vimco.studies.curves import OF_BOUNDS, curves, plot
from vimco.studies.document import Block
from vimco.studies.paper import table_1
from vimco.studies.paper.protocol import generative
from vimco.studies.study import Study, register_study
from vimco.studies.tables import spread_over_seeds


def runs() -> list[RunConfig]:
    """Those of `table-1`."""
    return table_1.runs()


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """VIMCO beside NVIL, and VIMCO beside RWS; and how far seeds are apart."""
    panels = {
        f"VIMCO and {ESTIMATORS.title_of(other)}": curves(
            found, [cell for name in (other, "vimco") for cell in study.cells if cell.estimator == name]
        )
        for other in ("nvil", "rws")
    }
    return [plot(study.name, panels, "validation bound (nats)", OF_BOUNDS), *spread_over_seeds(study, found)]


CLAIMS = (
    Claim(
        "NVIL's bound improves a little with K, and degrades from K = 10",
        "Figure 1",
        by_curves(generative("nvil", 1, 2, 5, 10, 50), lambda v: max(v[1], v[2]) > max(v[0], v[3]) and v[4] < v[3]),
    ),
    Claim(
        "VIMCO optimizes the multi-sample bound better than NVIL, by more the larger K",
        "Figure 1",
        by_curves(
            [*generative("vimco", 5, 10, 50), *generative("nvil", 5, 10, 50)],
            lambda v: 0 < v[0] - v[3] < v[1] - v[4] < v[2] - v[5],
        ),
    ),
    Claim(
        "VIMCO optimizes the bound better than RWS at K = 2",
        "Figure 1",
        by_curves([*generative("vimco", 2), *generative("rws", 2)], lambda v: v[0] > v[1]),
    ),
    *(
        Claim(
            f"VIMCO and RWS optimize the bound alike (here: within a nat): K = {K}",
            "Figure 1",
            by_curves([*generative("vimco", K), *generative("rws", K)], lambda v: abs(v[1] - v[0]) < 1),
        )
        for K in (5, 10, 50)
    ),
    Claim(
        "RWS learns slightly faster at larger K (here: ahead after a quarter of the updates)",
        "Figure 1",
        by_curves(
            [*generative("rws", 10, 50), *generative("vimco", 10, 50)],
            lambda v: v[0] > v[2] and v[1] > v[3],
            share=0.25,
        ),
    ),
)

register_study(
    Study(
        "figure-1",
        "Figure 1: the validation bound of generative models in training",
        "validation bound against updates: VIMCO and NVIL, VIMCO and RWS",
        runs,
        show,
        claims=CLAIMS,
    )
)
