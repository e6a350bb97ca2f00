"""Figure 2: the validation bound of structured prediction in training, with the prior and with a learned proposal."""

from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import Cell
from vimco.studies.claims import Claim, by_curves, rises
from vimco.studies.curves import OF_BOUNDS, curves, plot
from vimco.studies.document import Block
from vimco.studies.paper.protocol import PROPOSALS, at_every_rate, structured
from vimco.studies.study import Study, register_study

SIZES = (2, 5, 20, 50)


def cells(proposal: str) -> list[Cell]:
    """Return the curves of one panel."""
    return [*structured(proposal, "nvil", 1, *SIZES), *structured(proposal, "vimco", *SIZES)]


def runs() -> list[RunConfig]:
    """Three layers, bottom half from top half: VIMCO and NVIL at K = 2, 5, 20, 50, NVIL at 1, with both proposals."""
    return at_every_rate([*cells("prior"), *cells("learned")])


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Samples from the prior, and from a learned proposal."""
    panels = {title.capitalize(): curves(found, cells(proposal)) for proposal, title in PROPOSALS.items()}
    return [plot(study.name, panels, "validation bound (nats)", OF_BOUNDS)]


CLAIMS = (
    Claim(
        "With the prior as proposal, VIMCO improves with every increase of K",
        "Figure 2, left",
        by_curves(structured("prior", "vimco", *SIZES), rises),
    ),
    Claim(
        "With the prior as proposal, NVIL at K = 1 and 2 is ahead of VIMCO at 2",
        "Figure 2, left",
        by_curves([*structured("prior", "nvil", 1, 2), *structured("prior", "vimco", 2)], lambda v: min(v[:2]) > v[2]),
    ),
    Claim(
        "With the prior as proposal, VIMCO is ahead of NVIL at K = 20 and 50",
        "Figure 2, left",
        by_curves(
            [*structured("prior", "vimco", 20, 50), *structured("prior", "nvil", 20, 50)],
            lambda v: v[0] > v[2] and v[1] > v[3],
        ),
    ),
    Claim(
        "With a learned proposal, VIMCO is ahead of NVIL at K = 2, 5, 20, 50, by more the larger K",
        "Figure 2, right",
        by_curves(
            [*structured("learned", "vimco", *SIZES), *structured("learned", "nvil", *SIZES)],
            lambda v: rises([0.0, *(vimco - nvil for vimco, nvil in zip(v[:4], v[4:], strict=True))]),
        ),
    ),
    Claim(
        "VIMCO and NVIL are closer together with a learned proposal than with the prior: K = 20 and 50",
        "Figure 2",
        by_curves(
            [
                cell
                for where in ("prior", "learned")
                for name in ("vimco", "nvil")
                for cell in structured(where, name, 20, 50)
            ],
            lambda v: v[4] - v[6] < v[0] - v[2] and v[5] - v[7] < v[1] - v[3],
        ),
    ),
    Claim(
        "The worst result with a learned proposal is better than the best with the prior",
        "Figure 2",
        by_curves([*cells("learned"), *cells("prior")], lambda v: min(v[:9]) > max(v[9:])),
    ),
)

register_study(
    Study(
        "figure-2",
        "Figure 2: the validation bound of structured prediction in training",
        "validation bound against updates",
        runs,
        show,
        claims=CLAIMS,
    )
)
