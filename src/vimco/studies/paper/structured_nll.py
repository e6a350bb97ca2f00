"""The end of Sec. 5.2: the negative log-likelihood of bottom halves of images given their top halves."""

from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.cells import Cell
from vimco.studies.claims import Claim, by_likelihoods
from vimco.studies.document import Block, Text
from vimco.studies.paper.protocol import PROPOSALS, at_every_rate, structured
from vimco.studies.study import Study, register_study
from vimco.studies.tables import distances, likelihood_tables

PUBLISHED = {"prior": 56.5, "learned": 46.1}  # VIMCO, with 100 samples from the proposal it was trained with
RAIKO = 53.8  # the best result before, as Sec. 5.2 quotes it


def cell(proposal: str, estimator: str = "vimco") -> Cell:
    """Return the two-layer model with K = 20."""
    return structured(proposal, estimator, 20, layers=(200, 200))[0]


def runs() -> list[RunConfig]:
    """Two layers, K = 20: VIMCO with both proposals, RWS with the learned one."""
    return at_every_rate([cell("prior"), cell("learned"), cell("learned", "rws")])


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Estimators in columns, proposals in rows."""
    rows = {title: [cell(proposal, name) for name in ("vimco", "rws")] for proposal, title in PROPOSALS.items()}
    published = {cell(proposal): value for proposal, value in PUBLISHED.items()}
    return [
        *likelihood_tables(study, found, "K = 20", rows, published),
        *distances(study, found, published),
        Text(
            f"The best result before the paper was {RAIKO} (Raiko et al., the same model trained with a biased "
            "estimator, as the paper quotes it). RWS needs a proposal to learn, so it has no number with the prior."
        ),
    ]


CLAIMS = (
    Claim(
        "A learned proposal takes the two-layer model below 50 nats, the prior does not",
        "Sec. 5.2",
        by_likelihoods([cell("learned"), cell("prior")], lambda v: v[0] < 50 <= v[1], num_samples=100),
    ),
)

register_study(
    Study(
        "structured-nll",
        "Structured prediction: negative log-likelihood of the two-layer model",
        "test negative log-likelihood, 100 samples",
        runs,
        show,
        evaluation_samples=100,
        claims=CLAIMS,
        is_front=True,
    )
)
