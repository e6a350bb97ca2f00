"""The naive estimator (Eq. 7)."""

from typing import Any

from vimco.estimators.estimator import ESTIMATORS, Estimator, estimate_from_signal, held_constant
from vimco.samples import Batch, Estimate, ImportanceSamples
from vimco.signals import naive_signal


class Naive(Estimator):
    """Eq. 5 from one set of samples (Eq. 7): unbiased, but of very large variance, since L̂ multiplies every score."""

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; any K ≥ 1."""
        log_weights = held_constant(samples.log_weights)
        return estimate_from_signal(naive_signal(log_weights), log_weights, samples)


@ESTIMATORS.register("naive", "naive")
def _naive(*_: Any) -> Naive:
    """The bound multiplies every score (Eq. 7): unbiased, of very large variance."""
    return Naive()
