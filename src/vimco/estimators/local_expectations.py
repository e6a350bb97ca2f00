"""Local expectation gradients (Titsias & Lázaro-Gredilla, 2015): a sum over both values of every unit."""

import math
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from vimco.errors import check_choice
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant
from vimco.estimators.layered import Objective, layered_estimate, local_log_weights, model_term
from vimco.samples import BINARY_LAYERS, Batch, Estimate, ImportanceSamples, Need, required
from vimco.signals import arithmetic_mean_of_others, geometric_mean_of_others, normalized_weights, vimco_signal


class LocalExpectations(Estimator):
    """The sum over the two values of each unit, with the other units as drawn:

        Σ_v Q(v | h_-d) F(h with h_d = v) ∇ log Q(h_d = v | parents),    Q(v | h_-d) ∝ Q(v | parents) Q(children | v)

    Exactly unbiased. `objective` chooses F, the whole coefficient of ∇ log Q(h^k):

    - bound: log 1/K Σ_j f_j − w̃_k with sample k changed, summed over the K samples. With the prior as proposal log f
      does not contain log Q, so −w̃_k is not there;
    - elbo: the part of log f that the layer can change, averaged over the K samples.

    For K ≥ 2 a baseline from the other samples is subtracted: F with f_k replaced by Eq. 9's f̂, or the mean of the
    others. It multiplies a sum of mean zero. At K = 1 there is none, as published: units with children then keep the
    noise of (Q(v | h_-d) − Q(v | parents)) log f.

    A unit costs a few multiplications for each unit of its child layers; memory does not grow with pairs of units.
    """

    ascends: ClassVar[str] = "L^K, or the ELBO"
    needs: ClassVar[tuple[Need, ...]] = (BINARY_LAYERS,)

    objective: Objective = eqx.field(static=True, default="bound")

    def __check_init__(self) -> None:
        check_choice("objective of local expectations", self.objective, Objective)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; any K ≥ 1."""
        layers, K = required(samples, BINARY_LAYERS), samples.num_samples
        log_weights = held_constant(samples.log_weights)
        chain, logits = stop_gradient((layers.chain, layers.logits))
        local = local_log_weights(layers)
        surrogate, signals = jnp.zeros(log_weights.shape[1]), []
        for i, value in enumerate(layers.latents):
            change, of_later = chain.flips(i, layers.latents, logits)
            if self.objective == "bound":
                now, flipped = _of_bound(log_weights, change, samples.proposal_is_prior)
            else:
                baseline = (jnp.sum(local[i], axis=0) - local[i]) / max(K - 1, 1)  # 0 at K = 1
                now = (local[i] - baseline)[..., None] / K
                flipped = now + change / K
            is_one = value == 1
            of_one, of_zero = jnp.where(is_one, now, flipped), jnp.where(is_one, flipped, now)
            # log Q(children | 1) − log Q(children | 0)
            odds = jnp.where(is_one, -of_later, of_later)
            mean = jax.nn.sigmoid(logits[i])
            posterior = jax.nn.sigmoid(logits[i] + odds)
            of_logit = posterior * of_one * (1 - mean) - (1 - posterior) * of_zero * mean
            surrogate = surrogate + jnp.sum(stop_gradient(of_logit) * layers.logits[i], axis=(0, -1))
            signals.append(jnp.broadcast_to(now, value.shape)[..., 0])
        surrogate = surrogate + model_term(samples, self.objective)
        return layered_estimate(surrogate, samples, jnp.stack(signals), objective=self.objective)


@ESTIMATORS.register("local-expectations", "local expectations")
def _local_expectations(
    *_: Any,
    objective: Annotated[Objective, "Ascend the K-sample bound, or the ELBO by K draws."] = "bound",
) -> LocalExpectations:
    """A sum over both values of every unit, the others as drawn (Titsias & Lázaro-Gredilla, 2015)."""
    return LocalExpectations(objective)


def _of_bound(
    log_weights: Float[Array, "K B"], change: Float[Array, "K B n"], proposal_is_prior: bool
) -> tuple[Float[Array, "K B 1"], Float[Array, "K B n"]]:
    """Return F less its baseline for the bound, and the same with sample k changed by the flip of each unit."""
    K = log_weights.shape[0]
    if K == 1:  # w̃ is 1, with any value
        now = log_weights[..., None]
        return now, now + change
    relative = log_weights - jnp.max(log_weights, axis=0)  # scaling all f alike changes none of the differences
    others = arithmetic_mean_of_others(relative) + math.log(K - 1)  # log Σ_{j≠k} f_j
    typical = geometric_mean_of_others(relative)  # log f̂
    changed = relative[..., None] + change
    now = vimco_signal(relative)[..., None]
    flipped = jnp.logaddexp(others[..., None], changed) - jnp.logaddexp(others, typical)[..., None]
    if proposal_is_prior:
        return now, flipped
    share = jax.nn.sigmoid(typical - others)[..., None]  # w̃_k with f̂ for f_k
    return (
        now - (normalized_weights(relative)[..., None] - share),
        flipped - (jax.nn.sigmoid(changed - others[..., None]) - share),
    )
