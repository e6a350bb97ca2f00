"""U-statistics: the average of an estimator over subsets of the samples (Burroni et al., 2023)."""

import dataclasses
import itertools
import math
from typing import Annotated, Any, ClassVar

import equinox as eqx
import numpy as np
from array_api_compat import array_namespace, device

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant
from vimco.estimators.vimco import VIMCO
from vimco.samples import Batch, Estimate, ImportanceSamples, Need

# Fields of shape (K, *B); and all that can be divided among subsets.
PER_SAMPLE = ("log_joint", "log_proposal", "log_score", "log_likelihood", "frozen_log_weights", "reward")
DIVISIBLE = (*PER_SAMPLE, "auxiliary_log_weights", "log_proposal_of_dreams", "latents_attached")
MOST_SUBSETS = 100_000


def subsets(num_samples: int, size: int, repeats: int | None = None) -> np.ndarray:
    """Return subsets of `size` of the samples 0, …, n − 1: one column for each, of shape (size, number of subsets).

    All of them if `repeats` is None; else the blocks of `repeats` permutations, each cut into n // size parts. Samples
    are exchangeable, so the permutations are drawn once and reused for every update.
    """
    if not 1 <= size <= num_samples:
        raise UsageError(
            f"A subset of {num_samples} samples has 1 to {num_samples} of them; got {size}. Use more samples, or "
            "fewer in a subset."
        )
    if repeats is None:
        if (number := math.comb(num_samples, size)) > MOST_SUBSETS:
            raise UsageError(
                f"{num_samples} samples have {number:,} subsets of {size}: cut them into blocks instead: repeats=5."
            )
        return np.array(list(itertools.combinations(range(num_samples), size))).T
    if repeats < 1:
        raise UsageError(f"The samples must be cut into blocks 1 or more times; got {repeats}.")
    generator, blocks = np.random.default_rng(0), num_samples // size
    orders = [np.arange(num_samples), *(generator.permutation(num_samples) for _ in range(repeats - 1))]
    return np.concatenate([order[: blocks * size].reshape(blocks, size) for order in orders]).T


def places_of(numbers: np.ndarray, num_samples: int) -> np.ndarray:
    """Return where each sample stands in the flattened `numbers`, (K, most); the rest of a row is one past the end."""
    flat = numbers.ravel()
    order, counts = np.argsort(flat, kind="stable"), np.bincount(flat, minlength=num_samples)
    places = np.full((num_samples, counts.max()), flat.size)
    places[np.arange(counts.max()) < counts[:, None]] = order
    return places


class SubsetAverage(Estimator):
    """The average of `estimator` over subsets of `size` of the K samples: the same mean, and less variance.

    Its objective is L^m with m = `size`, from K > m samples, without further evaluations of the model: the average is
    over the coefficients of each sample. `repeats` is the number of permutations that are cut into blocks; None takes
    all subsets.
    """

    ascends: ClassVar[str] = "what the averaged estimator ascends, with as many samples as a subset has"

    estimator: Estimator
    size: int = eqx.field(static=True)
    repeats: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if type(self.estimator).updated is not Estimator.updated:
            raise UsageError(
                f"{type(self.estimator).__name__} carries state from update to update, which an average over subsets "
                "has no place for: use an estimator without."
            )
        if indivisible := [need.what for need in self.estimator.needs if need.field not in DIVISIBLE]:
            raise UsageError(
                f"{type(self.estimator).__name__} needs {indivisible[0]}, which cannot be divided among subsets of the "
                "samples: use an estimator that needs nothing but the weights, such as VIMCO."
            )

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate. `objective` is the average over the subsets, `bound` that of all K samples."""
        numbers = subsets(samples.num_samples, self.size, self.repeats)
        xp = array_namespace(samples.log_joint)
        index = xp.asarray(numbers, device=device(samples.log_joint))
        # Of shape (m, number of subsets, *B).
        fields = {name: values[index] for name in PER_SAMPLE if (values := getattr(samples, name)) is not None}
        shape = (numbers.shape[1], *samples.log_joint.shape[1:])
        if (auxiliary := samples.auxiliary_log_weights) is not None:
            fields["auxiliary_log_weights"] = xp.broadcast_to(auxiliary[:, None], (auxiliary.shape[0], *shape))
        if (dreams := samples.log_proposal_of_dreams) is not None:
            fields["log_proposal_of_dreams"] = xp.broadcast_to(dreams, shape)
        estimate = self.estimator(dataclasses.replace(samples, **fields), batch)
        signal = estimate.learning_signal
        places = xp.asarray(places_of(numbers, samples.num_samples), device=device(signal))
        flat = xp.reshape(signal, (numbers.size, *samples.log_joint.shape[1:]))
        in_subsets = xp.concat([flat, xp.zeros_like(flat[:1])])[places]  # (K, most, *B)
        return Estimate(
            xp.mean(estimate.surrogate, axis=0),
            held_constant(samples.log_weights),
            xp.sum(in_subsets, axis=1) / numbers.shape[1],
            objective=xp.mean(estimate.bound if estimate.objective is None else estimate.objective, axis=0),
        )

    @property
    def needs(self) -> tuple[Need, ...]:
        """The needs of the averaged estimator."""
        return self.estimator.needs


@ESTIMATORS.register("vimco-subsets", "VIMCO, subsets")
def _vimco_subsets(
    *_: Any,
    size: Annotated[int, "Samples in a subset: the K of the objective."] = 2,
    repeats: Annotated[int, "How often the samples are cut into blocks of this size.", 10_000] = 5,
) -> SubsetAverage:
    """VIMCO for a bound with fewer samples than are drawn, averaged over subsets of them (a U-statistic)."""
    return SubsetAverage(VIMCO(), size, repeats)
