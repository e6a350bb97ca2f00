"""The noise of an estimator on a model: moments of its gradient over repeated draws."""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from vimco.errors import UsageError
from vimco.estimators import Estimator
from vimco.parameters import partition
from vimco.samples import Batch, Keys, Model, samples_for


class GradientStatistics(eqx.Module):
    """Moments of g = ∇ 1/B Σ_b surrogate_b, the gradient that an update follows, over independent sets of samples.

    The trees are shaped like the model, with None where nothing is trained.
    """

    mean: PyTree  # the average of g over the draws
    variance: PyTree  # of one g, entry by entry: Σ_n (g_n − mean)² / (num_draws − 1)
    effective_sample_size: Float[Array, ""]  # average over draws and examples
    bound: Float[Array, ""]  # average of L̂ over draws and examples

    @property
    @eqx.filter_jit
    def signal_to_noise(self) -> PyTree:
        """|mean| / √variance, entry by entry; 0 where the mean is 0.

        An entry whose true mean is zero still has about 1 / √num_draws: ignore values of that size.
        """
        return jax.tree.map(lambda m, v: _ratio(jnp.abs(m), jnp.sqrt(v)), self.mean, self.variance)

    @property
    @eqx.filter_jit
    def total_variance(self) -> Float[Array, ""]:
        """The sum of all entries' variances: E‖g − E g‖²."""
        return _sum_of_entries(self.variance)

    @property
    @eqx.filter_jit
    def total_signal_to_noise(self) -> Float[Array, ""]:
        """‖mean‖ / √total_variance, one number for all parameters."""
        squared_norm = _sum_of_entries(jax.tree.map(jnp.square, self.mean))
        return _ratio(jnp.sqrt(squared_norm), jnp.sqrt(self.total_variance))

    def of(self, part: Callable[[Any], PyTree]) -> "GradientStatistics":
        """Return the statistics of a part of the model: `statistics.of(lambda model: model.proposal)`."""
        return dataclasses.replace(self, mean=part(self.mean), variance=part(self.variance))


def gradient_statistics(
    model: Model, estimator: Estimator, key: PRNGKeyArray, batch: Batch, num_samples: int, num_draws: int = 100
) -> GradientStatistics:
    """Return the gradient's mean, variance and signal-to-noise ratio over `num_draws` sets of K samples of one batch.

    The model is any pytree with `importance_samples`, and with the methods that the estimator needs besides. The
    estimator does not change: its running moments stay, and the gradient of its own parameters is not counted. Memory
    does not grow with `num_draws`.
    """
    if num_draws < 2:
        raise UsageError(f"A variance needs at least two draws; got num_draws = {num_draws}.")
    if not jax.tree.leaves(partition(model)[0]):
        raise UsageError(
            f"{type(model).__name__} has no parameters whose gradient could be measured: a model is a tree of arrays, "
            "such as an Equinox module."
        )
    return _statistics(model, estimator, key, batch, operator.index(num_samples), jnp.asarray(num_draws))


@eqx.filter_jit  # the number of draws is an argument, so another number needs no new compilation
def _statistics(
    model: Model, estimator: Estimator, key: PRNGKeyArray, batch: Batch, num_samples: int, num_draws: Int[Array, ""]
) -> GradientStatistics:
    parameters, rest = partition(model)

    def surrogate(parameters: PyTree, key: PRNGKeyArray) -> tuple[Float[Array, ""], tuple[Array, Array]]:
        model = eqx.combine(parameters, rest)
        keys = Keys(*jax.random.split(key, 3))
        estimate = estimator(samples_for(model, estimator.needs, keys, batch, num_samples), batch)
        return jnp.mean(estimate.surrogate), (jnp.mean(estimate.effective_sample_size), jnp.mean(estimate.bound))

    gradient_and_others = jax.grad(surrogate, has_aux=True)

    def with_one_more(number: Int[Array, ""], sums: PyTree) -> PyTree:
        """Return running averages, and sums of squared deviations, without cancellation (Welford, 1962)."""
        before, squares = sums
        drawn = gradient_and_others(parameters, jax.random.fold_in(key, number))
        share = 1 / (number + 1)
        after = jax.tree.map(lambda mean, x: mean + (share * (x - mean)).astype(mean.dtype), before, drawn)
        products = jax.tree.map(lambda s, g, b, a: s + (g - b) * (g - a), squares, drawn[0], before[0], after[0])
        return after, products

    shapes = jax.eval_shape(gradient_and_others, parameters, key)
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    (mean, others), squares = jax.lax.fori_loop(0, num_draws, with_one_more, (zeros, zeros[0]))
    variance = jax.tree.map(lambda total: (total / (num_draws - 1)).astype(total.dtype), squares)
    return GradientStatistics(mean, variance, *others)


def _ratio(signal: Float[Array, "..."], noise: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.where(signal == 0, 0.0, signal / jnp.where(signal == 0, 1.0, noise))


def _sum_of_entries(tree: PyTree) -> Float[Array, ""]:
    return jax.tree.reduce(lambda total, leaf: total + jnp.sum(leaf), tree, jnp.zeros(()))
