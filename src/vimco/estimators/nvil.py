"""NVIL: learned baselines, the same signal for all samples (Eq. 8; Mnih & Gregor, 2014)."""

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient

from vimco.estimators.baselines import BaselineNetwork, RunningMoments
from vimco.estimators.estimator import Estimator, score_term, weight_term
from vimco.samples import Batch, Estimate, ImportanceSamples
from vimco.signals import effective_sample_size, multi_sample_bound


class NVIL(Estimator):
    """Eq. 8: L̂ − b(x) − b multiplies every score; then variance normalisation. Any K ≥ 1.

    With r = L̂ − b(x), and c and v the running mean and variance of r, the signal is (r − c) / max(1, √v). The network
    b(x) learns from (r − c)² and from nothing else. Exactly unbiased while max(1, √v) is 1: the normaliser scales the
    first term of Eq. 8 but not the second. c and v are used before they see the current samples.

    Start c and v with one draw that is not used for learning, `estimator.updated(estimator(samples, batch))`: from
    c = 0 the first signals are as large as the bound.
    """

    input_baseline: BaselineNetwork | None = None  # b(x)
    moments: RunningMoments = eqx.field(default_factory=RunningMoments)
    constant_baseline: bool = eqx.field(static=True, default=True)  # b = c
    variance_normalisation: bool = eqx.field(static=True, default=True)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """The estimate; `batch` is needed with an input-dependent baseline."""
        log_weights = stop_gradient(samples.log_weights)
        bound = multi_sample_bound(log_weights)
        residual = bound
        if self.input_baseline is not None:
            residual = residual - self.input_baseline(batch)
        centred = residual - self.moments.mean if self.constant_baseline else residual
        centred = jnp.where(jnp.isfinite(bound), centred, 0.0)  # all f zero: nothing to learn from

        signal = jnp.broadcast_to(stop_gradient(centred), log_weights.shape)
        scale = jnp.maximum(1.0, jnp.sqrt(self.moments.variance)) if self.variance_normalisation else 1.0
        surrogate = score_term(signal / scale, samples) + weight_term(log_weights, samples)
        if self.input_baseline is not None:
            surrogate = surrogate - centred**2
        return Estimate(surrogate, bound, signal, effective_sample_size(log_weights), stop_gradient(residual))

    def updated(self, estimate: Estimate) -> "NVIL":
        """NVIL whose running moments have seen this estimate."""
        assert estimate.residual is not None, "an estimate of this estimator's own"
        return eqx.tree_at(lambda e: e.moments, self, self.moments.updated(estimate.residual))
