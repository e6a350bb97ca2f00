"""Table 1: the negative log-likelihood of generative models trained by VIMCO, NVIL and RWS."""

from collections.abc import Sequence

from vimco.runs.config import RunConfig
from vimco.runs.directory import Run
from vimco.studies.claims import Claim, by_likelihoods, falls
from vimco.studies.document import Block
from vimco.studies.paper.protocol import at_every_rate, generative
from vimco.studies.study import Study, register_study
from vimco.studies.tables import distances, likelihood_tables, likelihoods_of_seeds

COLUMNS = ("vimco", "nvil", "rws")
# Negative log-likelihood of the test set in nats, with 1000 proposal samples an image, by K.
PUBLISHED: dict[int, dict[str, float]] = {
    1: {"nvil": 95.2},
    2: {"vimco": 93.5, "nvil": 93.6, "rws": 94.6},
    5: {"vimco": 92.8, "nvil": 93.7, "rws": 93.4},
    10: {"vimco": 92.6, "nvil": 93.4, "rws": 93.0},
    50: {"vimco": 91.9, "nvil": 96.2, "rws": 92.5},
}


def runs() -> list[RunConfig]:
    """200-200-200 network of whole images: VIMCO, NVIL, RWS (wake) at K = 2, 5, 10, 50, NVIL at 1."""
    return at_every_rate(cell for K, row in PUBLISHED.items() for name in row for cell in generative(name, K))


def show(study: Study, found: Sequence[Run]) -> list[Block]:
    """Estimators in columns, K in rows; then how far from the paper, and how far seeds are apart."""
    rows = {str(K): [generative(name, K)[0] for name in COLUMNS] for K in PUBLISHED}
    published = {generative(name, K)[0]: value for K, row in PUBLISHED.items() for name, value in row.items()}
    return [
        *likelihood_tables(study, found, "K", rows, published),
        *distances(study, found, published),
        *likelihoods_of_seeds(study, found),
    ]


CLAIMS = (
    Claim("VIMCO improves from K = 2 to 5 to 10", "Table 1", by_likelihoods(generative("vimco", 2, 5, 10), falls)),
    Claim("VIMCO improves from K = 10 to 50", "Table 1", by_likelihoods(generative("vimco", 10, 50), falls)),
    Claim("RWS improves from K = 2 to 5 to 10", "Table 1", by_likelihoods(generative("rws", 2, 5, 10), falls)),
    Claim("RWS improves from K = 10 to 50", "Table 1", by_likelihoods(generative("rws", 10, 50), falls)),
    Claim(
        "VIMCO and NVIL are slightly better than RWS at K = 2",
        "Table 1",
        by_likelihoods([generative(name, 2)[0] for name in COLUMNS], lambda v: v[0] < v[2] and v[1] < v[2]),
    ),
    Claim(
        "NVIL stays virtually the same from K = 1 to 10 (here: within 1.8 nats, as in the paper)",
        "Table 1",
        by_likelihoods(generative("nvil", 1, 2, 5, 10), lambda v: max(v) - min(v) <= 1.8),
    ),
    Claim(
        "NVIL is markedly worse at K = 50 than at K = 10",
        "Table 1",
        by_likelihoods(generative("nvil", 10, 50), lambda v: v[1] > v[0] + 1),
    ),
    *(
        Claim(
            f"VIMCO and RWS have like likelihoods (here: within 1.5 nats), VIMCO with a slight edge: K = {K}",
            "Table 1",
            by_likelihoods([*generative("vimco", K), *generative("rws", K)], lambda v: 0 < v[1] - v[0] < 1.5),
        )
        for K in (2, 5, 10, 50)
    ),
)

register_study(
    Study(
        "table-1",
        "Table 1: negative log-likelihood of generative models",
        "test negative log-likelihood, 1000 samples",
        runs,
        show,
        evaluation_samples=1000,
        claims=CLAIMS,
        is_front=True,
    )
)
