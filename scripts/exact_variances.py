"""Print the exact noise of each estimator's gradient on tiny models, summed over every set of K samples.

    python scripts/exact_variances.py

The number is the signal-to-noise ratio ‖E g‖ / √(E ‖g − E g‖²) of the proposal's gradient (of all of it, for the prior
as proposal). Ratios can be compared between estimators that ascend different objectives; variances cannot.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from enumeration import PROPOSAL_OF_TABLE, Toy, num_auxiliary, sbn_toy, table_toy
from test_variance import LOG_JOINT, ideal_baseline, with_baseline

from vimco import OVIS, RLOO, RWS, VIMCO, Estimator, Naive, SubsetAverage, arithmetic_mean_of_others, left_out

GOOD = [0.2, -0.4, -1.0, 0.9, -0.5, 0.3, -1.2, 0.6]
SAMPLES = (2, 3, 4)
ESTIMATORS: dict[str, Callable[[Toy, int], Estimator]] = {
    "naive": lambda _toy, _K: Naive(),
    "NVIL, ideal constant baseline": lambda toy, K: with_baseline(ideal_baseline(toy, K)),
    "VIMCO": lambda _toy, _K: VIMCO(),
    "VIMCO, arithmetic mean": lambda _toy, _K: VIMCO(arithmetic_mean_of_others),
    "VIMCO, f̂ = 0": lambda _toy, _K: VIMCO(left_out),
    "VIMCO, average over pairs": lambda _toy, _K: SubsetAverage(VIMCO(), 2),
    "OVIS, one auxiliary sample": lambda _toy, _K: OVIS(1),
    "RWS (wake)": lambda _toy, _K: RWS(),
    "RWS (wake), centred": lambda _toy, _K: RWS(centred=True),
    "RLOO": lambda _toy, _K: RLOO(),
}
OF_ONE_SAMPLE = ("naive", "NVIL, ideal constant baseline")
LEARNED_ONLY = {"RWS (wake)", "RWS (wake), centred"}  # refused with the prior


def toys() -> Iterator[tuple[str, Toy, slice]]:
    """Return a poor proposal and a good one, of a categorical latent with eight values; and bits from the prior."""
    yield "uniform proposal", table_toy(LOG_JOINT, [0.0] * 8), PROPOSAL_OF_TABLE
    yield "good proposal", table_toy(LOG_JOINT, GOOD), PROPOSAL_OF_TABLE
    yield "prior as proposal", sbn_toy("structured-prior"), slice(None)


def signal_to_noise(toy: Toy, estimator: Estimator, K: int, parameters: slice) -> float:
    """Return ‖E g‖ / √(E ‖g − E g‖²)."""
    probability = toy.probabilities(K + num_auxiliary(estimator))
    gradients = toy.gradients(estimator, K)[:, parameters]
    mean = probability @ gradients
    variance = probability @ np.sum((gradients - mean) ** 2, axis=1)
    return float(np.linalg.norm(mean) / np.sqrt(variance))


def table(title: str, toy: Toy, parameters: slice) -> Iterator[str]:
    """Return the lines of a table in Markdown: estimators by number of samples."""
    yield f"| {title} | " + " | ".join(f"K = {K}" for K in SAMPLES) + " |"
    yield "|---" * (len(SAMPLES) + 1) + "|"
    for name, make in ESTIMATORS.items():
        if not (toy.proposal_is_prior and name in LEARNED_ONLY):
            ratios = [signal_to_noise(toy, make(toy, K), K, parameters) for K in SAMPLES]
            yield f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |"


def table_of_one_sample() -> Iterator[str]:
    """Return the lines of a table in Markdown for K = 1: estimators by toy."""
    every = list(toys())
    yield "| K = 1 | " + " | ".join(title for title, _, _ in every) + " |"
    yield "|---" * (len(every) + 1) + "|"
    for name in OF_ONE_SAMPLE:
        ratios = [signal_to_noise(toy, ESTIMATORS[name](toy, 1), 1, parameters) for _, toy, parameters in every]
        yield f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |"


if __name__ == "__main__":
    with jax.enable_x64(True):
        for toy in toys():
            print(*table(*toy), "", sep="\n")
        print(*table_of_one_sample(), sep="\n")
