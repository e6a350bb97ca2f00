"""The records at the seams: what models hand to estimators, and estimators to the training loop."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from array_api_compat import array_namespace
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

AnyArray = Any  # a JAX array, or a PyTorch tensor: the records that estimators know hold either


class Batch(eqx.Module):
    """A mini-batch of observations x and contexts c.

    A generative model has a context of width zero: it conditions on nothing (Sec. 3).
    """

    observation: Float[Array, "B D"]  # x
    context: Float[Array, "B C"]  # c

    def __init__(self, observation: Float[Array, "B D"], context: Float[Array, "B C"] | None = None):
        self.observation = observation
        self.context = observation[:, :0] if context is None else context


class Examples(eqx.Module):
    """A whole split on the device. Binary data stay bytes: 50,000 images of 784 pixels are 39 MB, as floats 157 MB."""

    observation: Shaped[Array, "N D"]
    context: Shaped[Array, "N C"]

    def __init__(self, observation: Shaped[Array, "N D"], context: Shaped[Array, "N C"] | None = None):
        self.observation = observation
        self.context = observation[:, :0] if context is None else context

    def __len__(self) -> int:
        return self.observation.shape[0]

    def batch(self, rows: Int[Array, "B"], dtype: jnp.dtype) -> Batch:
        """The batch of these rows, as floats."""
        return Batch(self.observation[rows].astype(dtype), self.context[rows].astype(dtype))


class ImportanceSamples(eqx.Module):
    """K weighted samples of the latents per example: all that an estimator knows about a model.

    Gradients must be able to flow through both log-probabilities into the parameters, and through reparameterised
    latents, but not into the discrete ones.
    """

    log_joint: Float[AnyArray, "K *B"]  # log P(x, h^k | c)
    log_proposal: Float[AnyArray, "K *B"]  # log Q(h^k | x, c)
    # log Q of the latents that are *not* reparameterised, where that is not all of them; None: log_proposal.
    log_score: Float[AnyArray, "K *B"] | None = None
    # log Q(h | x, c) at dreams (x, h) ~ P(x, h | c), for the sleep update (Eq. 12) alone.
    log_proposal_of_dreams: Float[AnyArray, "*B"] | None = None
    # log f of S more samples from the same proposal, for OVIS's baseline alone; no gradient flows through them.
    auxiliary_log_weights: Float[AnyArray, "S *B"] | None = None
    # log P(x | h^k, c), a part of `log_joint`, for likelihood annealing alone.
    log_likelihood: Float[AnyArray, "K *B"] | None = None
    # log f with all parameters held constant and the latents attached, for STL and DReG alone. Where it is given,
    # `log_joint` holds the latents constant: parameters and latents then have coefficients of their own.
    frozen_log_weights: Float[AnyArray, "K *B"] | None = None
    # True where every latent is attached: reparameterised, or passed straight through. Needed by `Pathwise`.
    latents_attached: bool = eqx.field(static=True, default=False)
    # True where the samples come from the model's own prior (Eq. 1), whose parameters are then the proposal's too:
    # log f does not contain log Q.
    proposal_is_prior: bool = eqx.field(static=True, default=False)
    # True where P and Q have parameters in common (a shared network, say), or where f is not P / Q.
    shared_parameters: bool = eqx.field(static=True, default=False)

    @classmethod
    def from_weights(
        cls,
        log_weights: Float[AnyArray, "K *B"],
        log_proposal: Float[AnyArray, "K *B"],
        log_score: Float[AnyArray, "K *B"] | None = None,
        *,
        proposal_is_prior: bool = False,
    ) -> "ImportanceSamples":
        """The record for any f: `log_weights` is log f(x, h^k), and `log_proposal` the log Q it was sampled from.

        Where log f and log Q share parameters, nobody but the caller knows, so `shared_parameters` is set.
        """
        return cls(
            log_weights + log_proposal,
            log_proposal,
            log_score,
            proposal_is_prior=proposal_is_prior,
            shared_parameters=not proposal_is_prior,
        )

    @property
    def log_weights(self) -> Float[AnyArray, "K *B"]:
        """log f(x, h^k) = log P(x, h^k | c) − log Q(h^k | x, c)  (Eq. 2)."""
        return self.log_joint - self.log_proposal

    @property
    def num_samples(self) -> int:
        """K."""
        return self.log_joint.shape[0]


class Estimate(eqx.Module):
    """What an estimator makes of the samples. The gradient of `surrogate` is the estimate of ∇L^K, per example."""

    surrogate: Float[AnyArray, "*B"]  # to be maximised; its value means nothing
    bound: Float[AnyArray, "*B"]  # L̂, Eq. 4, whatever the estimator ascends
    learning_signal: Float[AnyArray, "K *B"]  # what multiplies ∇ log Q(h^k): centred, before any normalisation
    effective_sample_size: Float[AnyArray, "*B"]
    residual: Float[AnyArray, "..."] | None = None  # what an estimator's state follows, such as running moments
    objective: Float[AnyArray, "*B"] | None = None  # the estimate of what is ascended; None: the bound

    @property
    def signal_rms(self) -> Float[AnyArray, ""]:
        """Root mean square of the learning signal over samples and examples (supplement C)."""
        xp = array_namespace(self.learning_signal)
        return xp.sqrt(xp.mean(self.learning_signal**2))


@runtime_checkable  # for beartype, in the tests
class Model(Protocol):
    """What the loop asks of a model; only the sleep update asks for dreams."""

    def importance_samples(self, key: PRNGKeyArray, batch: Batch, num_samples: int) -> ImportanceSamples:
        """K weighted samples for each example."""
        ...
