"""VIMCO: a learning signal of its own for every sample (Eqs. 9 and 10)."""

from collections.abc import Callable

import equinox as eqx

from vimco.errors import UsageError
from vimco.estimators.estimator import Estimator, held_constant, score_term, weight_term
from vimco.samples import Batch, Estimate, ImportanceSamples
from vimco.signals import effective_sample_size, geometric_mean_of_others, multi_sample_bound, vimco_signal


class VIMCO(Estimator):
    """Unbiased estimator of ∇L^K from per-sample learning signals (Eq. 10). Has no parameters.

    `estimate_of_f` maps log-weights to log f̂ of Eq. 9: `geometric_mean_of_others`, as in the paper,
    `arithmetic_mean_of_others`, or `left_out`.
    """

    estimate_of_f: Callable = eqx.field(static=True, default=geometric_mean_of_others)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """The estimate; K ≥ 2."""
        del batch
        K = samples.num_samples
        if K < 2:
            raise UsageError(
                f"VIMCO compares samples with each other, so it needs K >= 2; got K = {K}. "
                "Use NVIL (or VIMCO with a learned f(x)) for K = 1."
            )
        log_weights = held_constant(samples.log_weights)
        signal = vimco_signal(log_weights, self.estimate_of_f(log_weights))
        surrogate = score_term(signal, samples) + weight_term(log_weights, samples)
        return Estimate(surrogate, multi_sample_bound(log_weights), signal, effective_sample_size(log_weights))
