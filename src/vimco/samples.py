"""The records at the seams: what models hand to estimators, and estimators to the training loop."""

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Batch(eqx.Module):
    """A mini-batch of observations x and contexts c.

    A generative model has a context of width zero: it conditions on nothing (Sec. 3).
    """

    observation: Float[Array, "B D"]  # x
    context: Float[Array, "B C"]  # c

    def __init__(self, observation: Float[Array, "B D"], context: Float[Array, "B C"] | None = None):
        self.observation = observation
        self.context = observation[:, :0] if context is None else context


class ImportanceSamples(eqx.Module):
    """K weighted samples of the latents per example: all that an estimator knows about a model.

    Gradients must be able to flow through both log-probabilities into the parameters, and through reparameterised
    latents, but not into the discrete ones.
    """

    log_joint: Float[Array, "K *B"]  # log P(x, h^k | c)
    log_proposal: Float[Array, "K *B"]  # log Q(h^k | x, c)
    # log Q of the latents that are *not* reparameterised, where that is not all of them; None: log_proposal.
    log_score: Float[Array, "K *B"] | None = None
    # log Q(h | x, c) at dreams (x, h) ~ P(x, h | c), for the sleep update (Eq. 12) alone.
    log_proposal_of_dreams: Float[Array, "*B"] | None = None
    # True where the samples come from the model's own prior (Eq. 1), whose parameters are then the proposal's too.
    proposal_is_prior: bool = eqx.field(static=True, default=False)

    @classmethod
    def from_weights(
        cls,
        log_weights: Float[Array, "K *B"],
        log_proposal: Float[Array, "K *B"],
        log_score: Float[Array, "K *B"] | None = None,
    ) -> Self:
        """The record for any f: `log_weights` is log f(x, h^k), and `log_proposal` the log Q it was sampled from."""
        return cls(log_weights + log_proposal, log_proposal, log_score)

    @property
    def log_weights(self) -> Float[Array, "K *B"]:
        """log f(x, h^k) = log P(x, h^k | c) − log Q(h^k | x, c)  (Eq. 2)."""
        return self.log_joint - self.log_proposal

    @property
    def num_samples(self) -> int:
        """K."""
        return self.log_joint.shape[0]


class Estimate(eqx.Module):
    """What an estimator makes of the samples. The gradient of `surrogate` is the estimate of ∇L^K, per example."""

    surrogate: Float[Array, "*B"]  # to be maximised; its value means nothing
    bound: Float[Array, "*B"]  # L̂, Eq. 4
    learning_signal: Float[Array, "K *B"]  # what multiplies ∇ log Q(h^k): centred, before any normalisation
    effective_sample_size: Float[Array, "*B"]
    residual: Float[Array, "..."] | None = None  # what the running moments of a learned baseline follow

    @property
    def signal_rms(self) -> Float[Array, ""]:
        """Root mean square of the learning signal over samples and examples (supplement C)."""
        return jnp.sqrt(jnp.mean(jax.lax.stop_gradient(self.learning_signal) ** 2))
