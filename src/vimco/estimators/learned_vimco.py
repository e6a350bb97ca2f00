"""VIMCO with a learned f(x), the first variant of Sec. 2.5.3, which needs no second sample; or one for each layer."""

import dataclasses
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from array_api_compat import array_namespace
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from vimco.estimators.baselines import BaselineNetwork, Moments, RunningMoments, optional_network
from vimco.estimators.estimator import ESTIMATORS, Estimator, estimate_from_signal, held_constant, weight_term
from vimco.estimators.layered import (
    LayerBaselines,
    WithLayerBaselines,
    layered_estimate,
    local_log_weights,
    scores_of_layers,
)
from vimco.samples import BINARY_LAYERS, AnyArray, Batch, Estimate, ImportanceSamples, required
from vimco.signals import vimco_signal


class LearnedVIMCO(Estimator):
    """Eq. 9 with f̂ = f(x), a mapping trained to predict f(x, h). Any K ≥ 1.

    log f(x) = c + b(x): b is a network that learns from mean_k (log f_k − log f(x))² and from nothing else, and c the
    running mean of log f_k − b(x). At K = 1 this is NVIL with the same network, the same c and no normaliser.
    """

    network: BaselineNetwork | None = None
    moments: RunningMoments = eqx.field(default_factory=RunningMoments)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; `batch` is needed with a network."""
        return learned_estimate(samples, None if self.network is None else self.network(batch), self.moments)

    def updated(self, estimate: Estimate) -> "LearnedVIMCO":
        """Return the estimator with its running mean updated by this estimate."""
        assert estimate.residual is not None, "an estimate of this estimator's own"
        return eqx.tree_at(lambda e: e.moments, self, self.moments.updated(jnp.asarray(estimate.residual)))


def learned_estimate(samples: ImportanceSamples, prediction: AnyArray | None, moments: Moments) -> Estimate:
    """Return the estimate from samples, the network's b(x) of shape (*B) and running moments, in any array library."""
    log_weights = held_constant(samples.log_weights)
    xp = array_namespace(log_weights)
    log_f = xp.broadcast_to(moments.mean if prediction is None else moments.mean + prediction, log_weights.shape[1:])
    error = log_weights - log_f
    signal = vimco_signal(log_weights, held_constant(log_f)[None])
    estimate = estimate_from_signal(signal, log_weights, samples)
    surrogate = estimate.surrogate
    if prediction is not None:
        surrogate = surrogate - xp.mean(xp.where(xp.isfinite(log_weights), error, 0.0) ** 2, axis=0)
    return dataclasses.replace(estimate, surrogate=surrogate, residual=held_constant(error) + moments.mean)


class LayerwiseVIMCO(WithLayerBaselines):
    """Eq. 9 for each layer i, with log f̂_i = the terms of log f from earlier layers + c_i + b_i(x). Any K ≥ 1.

    The signal is that of the whole bound: only the baseline differs from layer to layer. It may depend on the other
    samples and on the layers of its own sample that were drawn before layer i, so the estimate is exactly unbiased.
    c_i + b_i(x) predicts the rest of log f, the part that layer i can change. At K = 1 this is NVIL with a signal for
    each layer, without a normaliser.
    """

    baselines: LayerBaselines = eqx.field(default_factory=LayerBaselines)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; `batch` is needed with a network."""
        layers = required(samples, BINARY_LAYERS)
        log_weights = stop_gradient(samples.log_weights)
        errors, residual, _ = self.baselines(local_log_weights(layers), batch)
        signals = jnp.stack([vimco_signal(log_weights, log_weights - error) for error in stop_gradient(errors)])
        surrogate = scores_of_layers(signals, layers) + weight_term(log_weights, samples)
        return layered_estimate(surrogate + self.baselines.network_objective(errors), samples, signals, residual)


@ESTIMATORS.register("vimco-learned", "VIMCO, learned f(x)")
def _learned_vimco(
    key: PRNGKeyArray,
    mean: Float[Array, "D"],
    *,
    baseline_width: Annotated[int, "Hidden units of the network that predicts log f(x); 0 leaves it out."] = 100,
    decay: Annotated[float, "Decay of the running mean."] = 0.8,
    layer_baselines: Annotated[bool, "A baseline for each layer, which knows the layers sampled before it."] = False,
) -> LearnedVIMCO | LayerwiseVIMCO:
    """VIMCO with a learned f(x) as f̂. Works with one sample."""
    network, moments = optional_network(key, mean, baseline_width), RunningMoments(decay)
    return LayerwiseVIMCO(LayerBaselines(network, moments)) if layer_baselines else LearnedVIMCO(network, moments)
