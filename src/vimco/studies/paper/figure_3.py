"""Figure 3 (supplement C): the size of the learning signal in training."""

from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.claims import Claim, by_curves, second_half
from vimco.studies.curves import curves, plot, signal_points
from vimco.studies.document import Block
from vimco.studies.paper.protocol import at_every_rate, generative
from vimco.studies.study import Study, register_study

CELLS = [cell for estimator in ("nvil", "vimco") for cell in generative(estimator, 2, 5, 10)]
CAPTION = (
    "Root mean square of the learning signal over mini-batches, smoothed, against parameter updates, in the runs "
    "chosen by validation. NVIL's is the centred signal before variance normalisation. K in brackets."
)


def runs() -> list[RunConfig]:
    """VIMCO and NVIL of `table-1` at K = 2, 5, 10."""
    return at_every_rate(CELLS)


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """The learning signals of VIMCO and NVIL."""
    panels = {"VIMCO and NVIL": curves(found, CELLS, signal_points)}
    return [plot(study.name, panels, "learning signal (RMS)", CAPTION, is_logarithmic=True)]


CLAIMS = (
    Claim(
        "At K = 2 the learning signals of VIMCO and NVIL are alike (here: within a factor 1.5)",
        "Figure 3",
        by_curves(
            [*generative("vimco", 2), *generative("nvil", 2)],
            lambda v: 1 / 1.5 < v[1] / v[0] < 1.5,
            signal_points,
            second_half,
        ),
    ),
    Claim(
        "At K = 10 VIMCO's learning signal is about 3 times smaller (here: 2 to 4.5 times)",
        "Figure 3",
        by_curves(
            [*generative("vimco", 10), *generative("nvil", 10)],
            lambda v: 2 < v[1] / v[0] < 4.5,
            signal_points,
            second_half,
        ),
    ),
)

register_study(
    Study(
        "figure-3",
        "Figure 3: the size of the learning signal in training",
        "root mean square of the learning signal",
        runs,
        show,
        claims=CLAIMS,
    )
)
