"""VIMCO with a learned f(x): the first variant of Sec. 2.5.3, which needs no second sample."""

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient

from vimco.estimators.baselines import BaselineNetwork, RunningMoments
from vimco.estimators.estimator import Estimator, score_term, weight_term
from vimco.samples import Batch, Estimate, ImportanceSamples
from vimco.signals import effective_sample_size, multi_sample_bound, vimco_signal


class LearnedVIMCO(Estimator):
    """Eq. 9 with f̂ = f(x), a mapping trained to predict f(x, h). Any K ≥ 1.

    log f(x) = c + b(x): b is a network that learns from mean_k (log f_k − log f(x))² and from nothing else, and c the
    running mean of log f_k − b(x). At K = 1 this is NVIL with the same network, the same c and no normaliser.
    """

    network: BaselineNetwork | None = None
    moments: RunningMoments = eqx.field(default_factory=RunningMoments)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """The estimate; `batch` is needed with a network."""
        log_weights = stop_gradient(samples.log_weights)
        prediction = self.moments.mean if self.network is None else self.moments.mean + self.network(batch)
        log_f = jnp.broadcast_to(prediction, log_weights.shape[1:])
        error = log_weights - log_f
        signal = vimco_signal(log_weights, stop_gradient(log_f)[None])
        surrogate = score_term(signal, samples) + weight_term(log_weights, samples)
        if self.network is not None:
            surrogate = surrogate - jnp.mean(jnp.where(jnp.isfinite(log_weights), error, 0.0) ** 2, axis=0)
        residual = stop_gradient(error) + self.moments.mean
        bound = multi_sample_bound(log_weights)
        return Estimate(surrogate, bound, signal, effective_sample_size(log_weights), residual)

    def updated(self, estimate: Estimate) -> "LearnedVIMCO":
        """The estimator whose running mean has seen this estimate."""
        assert estimate.residual is not None, "an estimate of this estimator's own"
        return eqx.tree_at(lambda e: e.moments, self, self.moments.updated(estimate.residual))
