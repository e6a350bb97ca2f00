"""The runs behind each table and figure of the paper, and the table of their names."""

import dataclasses
from itertools import product
from typing import Literal

from vimco.errors import UsageError
from vimco.runs.config import EstimatorName, RunConfig
from vimco.studies.study import PAPER, Study

RATES = (3e-4, 1e-3, 3e-3)
RATES_OF_STRUCTURED_NVIL = (1e-4, 3e-4, 1e-3)
SAMPLES_OF_GENERATIVE, SAMPLES_OF_STRUCTURED = 1000, 100  # for the negative log-likelihood

Proposal = Literal["learned", "prior"]
PROPOSALS: tuple[Proposal, ...] = ("prior", "learned")
MEANS: tuple[EstimatorName, ...] = ("vimco", "vimco-arithmetic", "vimco-leave-one-out", "vimco-learned")


def table_1() -> list[RunConfig]:
    """Table 1: the 200-200-200 network of whole images, VIMCO, NVIL and RWS (wake), and NVIL at K = 1."""
    estimators: tuple[EstimatorName, ...] = ("vimco", "nvil", "rws")
    cells: list[tuple[EstimatorName, int]] = [("nvil", 1), *product(estimators, (2, 5, 10, 50))]
    return [_generative(estimator, K, rate) for (estimator, K), rate in product(cells, RATES)]


def figure_1() -> list[RunConfig]:
    """Figure 1: the curves of Table 1's runs."""
    return table_1()


def figure_2() -> list[RunConfig]:
    """Figure 2: three layers predict the bottom half of an image, with samples from the prior or a learned proposal."""
    estimators: tuple[EstimatorName, ...] = ("vimco", "nvil")
    cells: list[tuple[EstimatorName, int]] = [("nvil", 1), *product(estimators, (2, 5, 20, 50))]
    return [
        _structured((200, 200, 200), proposal, estimator, K, rate)
        for proposal, (estimator, K) in product(PROPOSALS, cells)
        for rate in (RATES_OF_STRUCTURED_NVIL if estimator == "nvil" else RATES)
    ]


def structured_nll() -> list[RunConfig]:
    """The end of Sec. 5.2: two layers, K = 20, VIMCO with both proposals. RWS refuses the prior, and is an extra."""
    cells: list[tuple[Proposal, EstimatorName]] = [("prior", "vimco"), ("learned", "vimco"), ("learned", "rws")]
    return [
        _structured((200, 200), proposal, estimator, 20, rate) for (proposal, estimator), rate in product(cells, RATES)
    ]


def figure_3() -> list[RunConfig]:
    """Figure 3 (supplement C): the learning signal in Table 1's runs of VIMCO and NVIL at K = 2, 5, 10."""
    return [run for run in table_1() if run.estimator in ("vimco", "nvil") and run.num_samples in (2, 5, 10)]


def figure_4() -> list[RunConfig]:
    """Figure 4 (supplement E): one of Figure 2's models, VIMCO at K = 20 with a learned proposal."""
    return [run for run in figure_2() if (run.proposal, run.estimator, run.num_samples) == ("learned", "vimco", 20)]


def means() -> list[RunConfig]:
    """Sec. 2.5.3: what stands in for the left-out f. At K = 2 both means are the one other sample, so K = 5 and 10."""
    return [_generative(estimator, K, rate) for K, estimator, rate in product((5, 10), MEANS, RATES)]


def _generative(estimator: EstimatorName, K: int, rate: float) -> RunConfig:
    return dataclasses.replace(PAPER, estimator=estimator, num_samples=K, learning_rate=rate)


def _structured(
    layers: tuple[int, ...], proposal: Proposal, estimator: EstimatorName, K: int, rate: float
) -> RunConfig:
    return dataclasses.replace(_generative(estimator, K, rate), task="structured", layers=layers, proposal=proposal)


STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study("table-1", "Table 1: negative log-likelihood of generative models", table_1, SAMPLES_OF_GENERATIVE),
        Study("figure-1", "Figure 1: the validation bound of generative models in training", figure_1),
        Study("figure-2", "Figure 2: the validation bound of structured prediction in training", figure_2),
        Study(
            "structured-nll",
            "Structured prediction: negative log-likelihood of the two-layer model",
            structured_nll,
            SAMPLES_OF_STRUCTURED,
        ),
        Study("figure-3", "Figure 3: the size of the learning signal in training", figure_3),
        Study("figure-4", "Figure 4: completions of digits by the three-layer model", figure_4),
        Study("means", "What stands in for the left-out sample in VIMCO's signal", means, SAMPLES_OF_GENERATIVE),
    )
}


def named_study(name: str) -> Study:
    """The study that the command line calls `name`."""
    if name not in STUDIES:
        raise UsageError(f"There is no study {name!r}; choose one of {', '.join(STUDIES)}.")
    return STUDIES[name]
