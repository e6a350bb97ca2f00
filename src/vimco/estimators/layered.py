"""The parts shared by the estimators that use the layers of a binary proposal one by one."""

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from vimco.estimators.baselines import BaselineNetwork, RunningMoments
from vimco.estimators.estimator import Estimator, weighted_sum
from vimco.samples import BINARY_LAYERS, Batch, Estimate, ImportanceSamples, Layers, Need
from vimco.signals import normalized_weights

Objective = Literal["bound", "elbo"]


def local_log_weights(layers: Layers) -> Float[Array, "n K B"]:
    """Return the part of log f that layer i can change: the terms of this layer and of those sampled after it."""
    terms = stop_gradient(jnp.stack(layers.log_weights))
    return jnp.cumsum(terms[::-1], axis=0)[::-1]


def model_term(samples: ImportanceSamples, objective: Objective = "elbo") -> Float[Array, "B"]:
    """Return Σ_k c_k log P(x, h^k), or log P(x | h^k) where the prior is the proposal: the objective's gradient for P.

    c_k is 1/K for the ELBO, and the normalized weight w̃_k for the bound. Scores of the proposal are not in it: for the
    ELBO −1/K ∇ log Q(h^k) has mean zero, and for the bound −w̃_k belongs to the coefficient of ∇ log Q(h^k).
    """
    terms = samples.log_weights if samples.proposal_is_prior else samples.log_joint
    if objective == "elbo":
        return jnp.mean(terms, axis=0)
    return weighted_sum(normalized_weights(samples.log_weights), terms)


def scores_of_layers(coefficients: Float[Array, "n K B"], layers: Layers) -> Float[Array, "B"]:
    """Return Σ_i Σ_k stop(c_ik) log Q(h_i^k | layers sampled before it)."""
    return jnp.sum(stop_gradient(coefficients) * jnp.stack(layers.log_proposals), axis=(0, 1))


def layered_estimate(
    surrogate: Float[Array, "B"],
    samples: ImportanceSamples,
    signals: Float[Array, "n K B"],
    residual: Float[Array, "n K B"] | None = None,
    objective: Objective = "bound",
) -> Estimate:
    """Return the estimate. Its learning signal is the root mean square over layers."""
    log_weights = stop_gradient(samples.log_weights)
    signal = jnp.sqrt(jnp.mean(stop_gradient(signals) ** 2, axis=0))
    residual = None if residual is None else stop_gradient(residual)
    ascended = jnp.mean(log_weights, axis=0) if objective == "elbo" else None
    return Estimate(surrogate, log_weights, signal, residual, ascended)


class LayerBaselines(eqx.Module):
    """A constant c_i for each layer, the running mean of its signal, and a network's b_i(x).

    They take the number of layers from the first estimate, which a training loop does not learn from. Before it, all
    layers share one constant and one network.
    """

    network: BaselineNetwork | None = None
    moments: RunningMoments = eqx.field(default_factory=RunningMoments)
    normalised: bool = eqx.field(static=True, default=False)

    def __call__(
        self, signals: Float[Array, "n K B"], batch: Batch | None
    ) -> tuple[Float[Array, "n K B"], Float[Array, "n K B"], Float[Array, "_ 1 1"]]:
        """Return the signals minus their baselines, the residuals (signals minus b_i(x)), and the scales to divide by.

        Gradients flow into the network through both.
        """
        residual = signals
        if self.network is not None:
            prediction = jnp.moveaxis(self.network(batch), -1, 0) if self._has_layers else self.network(batch)[None]
            residual = signals - prediction[:, None]
        mean, variance = (jnp.reshape(m, (-1, 1, 1)) for m in (self.moments.mean, self.moments.variance))
        scale = jnp.maximum(1.0, jnp.sqrt(variance)) if self.normalised else jnp.ones_like(variance)
        return residual - mean, residual, scale

    def network_objective(self, centred: Float[Array, "n K B"]) -> Float[Array, "B"] | float:
        """Return the objective of the network: minus the squared residuals."""
        return 0.0 if self.network is None else -jnp.sum(jnp.mean(centred**2, axis=1), axis=0)

    def updated(self, residual: Float[Array, "n K B"]) -> "LayerBaselines":
        """Return the baselines with their moments updated by these residuals."""
        grown = self if self._has_layers else self._with_layers(residual.shape[0])
        moments = eqx.filter_vmap(lambda moments, values: moments.updated(values))(grown.moments, residual)
        return eqx.tree_at(lambda b: b.moments, grown, moments)

    @property
    def _has_layers(self) -> bool:
        return self.moments.mean.ndim == 1

    def _with_layers(self, n: int) -> "LayerBaselines":
        """Return the baselines with an entry for each of n layers, all with the present values."""
        moments = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], n, axis=0), self.moments)
        grown = eqx.tree_at(lambda b: b.moments, self, moments)
        if self.network is None:
            return grown
        weight = jnp.repeat(self.network.output_weight[:, None], n, axis=1)
        return eqx.tree_at(lambda b: b.network.output_weight, grown, weight)


class WithLayerBaselines(Estimator):
    """An estimator that needs the layers one by one and has `baselines` for them."""

    needs: ClassVar[tuple[Need, ...]] = (BINARY_LAYERS,)

    baselines: eqx.AbstractVar[LayerBaselines]

    def updated(self, estimate: Estimate) -> "WithLayerBaselines":
        """Return the estimator with its baselines updated by this estimate."""
        return eqx.tree_at(lambda e: e.baselines, self, self.baselines.updated(jnp.asarray(estimate.residual)))
