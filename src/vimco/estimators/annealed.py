"""Likelihood annealing: an objective that is easy at first and becomes that of the model."""

import dataclasses
from typing import Annotated, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant
from vimco.estimators.renyi import share_of_warmup
from vimco.samples import LOG_LIKELIHOOD, Batch, Estimate, ImportanceSamples, Need, required


class Annealed(Estimator):
    """Any estimator with a likelihood to the power β, which rises from `start` to 1 over `updates` updates.

    log f is β log P(x | h) + log P(h) − log Q(h | x), with β = min(1, start + n / updates) after n estimates; the
    program makes one before its first update. Early in training the proposal stays close to the prior. The samples must
    carry `log_likelihood`. The estimate's `bound` is that of the model itself, β = 1; `objective` is the annealed one.
    """

    ascends: ClassVar[str] = "what the annealed estimator ascends, for a model with its likelihood to a power"

    estimator: Estimator
    updates: int = eqx.field(static=True)
    start: float = eqx.field(static=True)
    count: Int[Array, ""]  # estimates seen; a training loop makes one before its first update

    def __init__(self, estimator: Estimator, updates: int, start: float = 0.001):
        """Anneal the likelihood that `estimator` sees."""
        if updates < 1:
            raise UsageError(f"Annealing takes one or more updates; got {updates}.")
        if not 0 <= start <= 1:
            raise UsageError(f"Annealing starts at a power between 0 and 1; got {start}.")
        outside = {"auxiliary_log_weights", "frozen_log_weights", "log_proposal_of_dreams", "layers"}
        if outside & {need.field for need in estimator.needs}:
            raise UsageError(
                f"{type(estimator).__name__} takes weights of layers or of other samples, or dreams, which annealing "
                "would leave as they are: anneal VIMCO, or any other estimator that needs nothing but the samples."
            )
        self.estimator, self.updates, self.start = estimator, updates, start
        self.count = jnp.zeros((), jnp.int32)

    @property
    def inverse_temperature(self) -> Float[Array, ""]:
        """β of the next update."""
        return jnp.minimum(1.0, self.start + share_of_warmup(self.count, self.updates))

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate."""
        likelihood = required(samples, LOG_LIKELIHOOD)
        excess = jnp.where(likelihood > -jnp.inf, (1 - self.inverse_temperature) * likelihood, 0.0)
        annealed = {"log_joint": samples.log_joint - excess, "log_likelihood": likelihood - excess}
        estimate = self.estimator(dataclasses.replace(samples, **annealed), batch)
        return dataclasses.replace(
            estimate,
            log_weights=held_constant(samples.log_weights),
            objective=estimate.bound if estimate.objective is None else estimate.objective,
        )

    def updated(self, estimate: Estimate) -> "Annealed":
        """Return the estimator one update later."""
        return eqx.tree_at(lambda e: (e.estimator, e.count), self, (self.estimator.updated(estimate), self.count + 1))

    @property
    def needs(self) -> tuple[Need, ...]:
        """The likelihood, and the needs of the annealed estimator."""
        return (LOG_LIKELIHOOD, *self.estimator.needs)


@ESTIMATORS.register("annealed", "annealed")
def _annealed(
    key: PRNGKeyArray,
    mean: Float[Array, "D"],
    *,
    estimator: Annotated[str, "The estimator whose likelihood is annealed."] = "vimco",
    updates: Annotated[int, "Updates until the likelihood has its full power."] = 50_000,
    start: Annotated[float, "Its power at first."] = 0.001,
) -> Annealed:
    """Another estimator, with a likelihood whose power rises to 1."""
    return Annealed(ESTIMATORS[estimator].build(key, mean), updates, start)
