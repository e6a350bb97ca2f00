"""VIMCO with a learned baseline for each layer, which knows the layers that were sampled before it."""

import equinox as eqx
import jax.numpy as jnp
from jax.lax import stop_gradient

from vimco.estimators.estimator import weight_term
from vimco.estimators.layered import (
    LayerBaselines,
    WithLayerBaselines,
    layered_estimate,
    layers_of,
    local_log_weights,
    scores_of_layers,
)
from vimco.samples import Batch, Estimate, ImportanceSamples
from vimco.signals import vimco_signal


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
        layers = layers_of(samples)
        log_weights = stop_gradient(samples.log_weights)
        errors, residual, _ = self.baselines(local_log_weights(layers), batch)
        signals = jnp.stack([vimco_signal(log_weights, log_weights - error) for error in stop_gradient(errors)])
        surrogate = scores_of_layers(signals, layers) + weight_term(log_weights, samples)
        return layered_estimate(surrogate + self.baselines.network_objective(errors), samples, signals, residual)
