"""The naive estimator (Eq. 7)."""

from vimco.estimators.estimator import Estimator, held_constant, score_term, weight_term
from vimco.samples import Batch, Estimate, ImportanceSamples
from vimco.signals import effective_sample_size, multi_sample_bound, naive_signal


class Naive(Estimator):
    """Eq. 5 from one set of samples (Eq. 7): unbiased, and of hopeless variance, since L̂ multiplies every score."""

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """The estimate; any K ≥ 1."""
        del batch
        log_weights = held_constant(samples.log_weights)
        signal = naive_signal(log_weights)
        surrogate = score_term(signal, samples) + weight_term(log_weights, samples)
        return Estimate(surrogate, multi_sample_bound(log_weights), signal, effective_sample_size(log_weights))
