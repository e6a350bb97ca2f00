"""MuProp (Gu, Levine, Sutskever & Mnih, 2016): a first-order expansion about the means as control variate."""

from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from vimco.errors import UsageError, check_choice
from vimco.estimators.baselines import RunningMoments, optional_network
from vimco.estimators.estimator import ESTIMATORS
from vimco.estimators.layered import (
    LayerBaselines,
    Objective,
    WithLayerBaselines,
    layered_estimate,
    local_log_weights,
    model_term,
    scores_of_layers,
)
from vimco.samples import BINARY_LAYERS, Batch, BinaryChain, Estimate, ImportanceSamples, required
from vimco.signals import multi_sample_bound, normalized_weights, vimco_signal


class MuProp(WithLayerBaselines):
    """The score of layer i times the residual of a linear function of the layer, plus that function's gradient.

    h̄ is the chain of means from x, f̄ = log f(h̄), and g_i the total derivative of f̄ along the chain for layer i:

        signal_i = F(h) − F̄ − g_i · (h_i − h̄_i) − c_i − b_i(x),    added: g_i · σ(a_i), on the *sampled* parents

    F̄ and g_i do not depend on the sample, so it is exactly unbiased. `objective` chooses F:

    - bound: L^K, position by position. F̄ is then Eq. 9's log 1/K (Σ_{j≠k} f_j + f̂) with f̂ = exp f̄: VIMCO with the
      model at its means as the estimate of f, and g_i shrunk by ŵ = f̂ / (Σ_{j≠k} f_j + f̂). With a learned proposal
      the coefficient of ∇ log Q(h^k) is L̂ − w̃_k; all of it is expanded, which takes ŵ from F̄ and shrinks g_i by ŵ²;
    - elbo: log f, averaged over the K draws. `local_signals` then gives each layer the part of log f that it can
      change.

    `baselines` subtract c_i and b_i(x), and with `normalised` divide both the signal and the added term by
    max(1, √v_i): with the second term unscaled, as published, the mean is biased towards the mean-field gradient.
    """

    ascends: ClassVar[str] = "L^K, or the ELBO"

    objective: Objective = eqx.field(static=True, default="bound")
    local_signals: bool = eqx.field(static=True, default=False)
    baselines: LayerBaselines = eqx.field(default_factory=LayerBaselines)

    def __check_init__(self) -> None:
        check_choice("objective of MuProp", self.objective, Objective)
        if self.local_signals and self.objective == "bound":
            raise UsageError(
                "A signal for each layer goes with objective=elbo: the logarithm of a mean over samples is not a sum "
                "over layers, and local weights inside it are biased."
            )

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; any K ≥ 1."""
        layers, K = required(samples, BINARY_LAYERS), samples.num_samples
        means, terms, slopes = expansion(layers.chain, layers.latents)
        at_means = jnp.cumsum(terms[::-1], axis=0)[::-1]  # (n, 1, B): the part of f̄ from layer i on
        log_weights = stop_gradient(samples.log_weights)
        if self.objective == "bound":
            signals = vimco_signal(log_weights, at_means[0])[None]
            # log 1/K (Σ_{j≠k} f_j + f̂) is the bound less the signal
            others = multi_sample_bound(log_weights) - signals[0]
            share = jnp.exp(at_means[0] - jnp.log(K) - others)
            shrinkage, weight = share, 1.0
            if not samples.proposal_is_prior:
                signals = signals - (normalized_weights(log_weights) - share)
                shrinkage = share**2
        else:
            signals = local_log_weights(layers) if self.local_signals else log_weights[None]
            signals = signals - (at_means if self.local_signals else at_means[:1])
            shrinkage, weight = jnp.ones_like(log_weights), 1 / K
        linear = [jnp.sum(g * (h - m), axis=-1) for g, h, m in zip(slopes, layers.latents, means, strict=True)]
        centred, residual, scale = self.baselines(signals - shrinkage * jnp.stack(linear), batch)
        added = [jnp.sum(g * jax.nn.sigmoid(a), axis=-1) for g, a in zip(slopes, layers.logits, strict=True)]
        surrogate = weight * (
            scores_of_layers(centred / scale, layers)
            + jnp.sum(
                stop_gradient(shrinkage / scale) * jnp.stack([jnp.broadcast_to(a, shrinkage.shape) for a in added]),
                axis=(0, 1),
            )
        )
        surrogate = surrogate + model_term(samples, self.objective) + self.baselines.network_objective(centred)
        return layered_estimate(surrogate, samples, weight * centred, residual, self.objective)


@ESTIMATORS.register("muprop", "MuProp")
def _muprop(
    key: PRNGKeyArray,
    mean: Float[Array, "D"],
    *,
    objective: Annotated[Objective, "Ascend the K-sample bound, or the ELBO by K draws."] = "bound",
    local_signals: Annotated[bool, "A signal for each layer; with objective=elbo."] = False,
    baseline_width: Annotated[int, "Hidden units of the networks b(x); 0 leaves them out."] = 0,
    variance_normalisation: Annotated[bool, "Divide by the running deviation of each layer's signal."] = False,
    decay: Annotated[float, "Decay of the running moments."] = 0.8,
) -> MuProp:
    """A first-order expansion about the units' means as control variate (Gu et al., 2016)."""
    network = optional_network(key, mean, baseline_width)
    baselines = LayerBaselines(network, RunningMoments(decay), variance_normalisation)
    return MuProp(objective=objective, local_signals=local_signals, baselines=baselines)


def expansion(
    chain: BinaryChain, latents: tuple[Float[Array, "K B _"], ...]
) -> tuple[tuple[Float[Array, "1 B _"], ...], Float[Array, "n 1 B"], tuple[Float[Array, "1 B _"], ...]]:
    """Return the chain of means, the terms of log f there, and the total derivatives of log f for each layer's mean."""
    chain = stop_gradient(chain)

    def at_means(shifts: tuple[Float[Array, "1 B _"], ...]) -> tuple[Float[Array, ""], tuple]:
        means, logits = chain.walk(lambda i, a: jax.nn.sigmoid(a) + shifts[i])
        terms = jnp.stack(chain.log_weights(means, logits))
        return jnp.sum(terms), (means, terms)

    slopes, (means, terms) = jax.grad(at_means, has_aux=True)(tuple(jnp.zeros_like(h[:1]) for h in latents))
    return means, terms, slopes
