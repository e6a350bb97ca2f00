"""Bounds and negative log-likelihoods of any model that makes importance samples.

The *bound* of a program is the average of L̂ over examples with the K it trains with. The *negative log-likelihood* is
minus the same average with many samples (1000 in the paper): E[L̂] rises to log P(x) as K grows, so with many samples
minus the bound is a slightly too large, never too small, estimate of −log P(x). Nothing else sets the two apart.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vimco.samples import Batch, Examples, ImportanceSamples
from vimco.training import Model

BLOCK = 50  # samples that are drawn from one key; more come block by block, so memory does not grow with K
ROWS = 10_000  # samples times examples worked on at a time


class Evaluation(NamedTuple):
    """The bound of every example, how sure it is, and how many samples counted."""

    num_samples: int
    bound: np.ndarray  # (N,), L̂ with K = num_samples
    variance: np.ndarray  # (N,), of L̂ over draws of the samples: 1 / ESS − 1 / K (delta method)
    effective_sample_size: np.ndarray  # (N,)

    @property
    def mean_bound(self) -> float:
        """The bound, averaged over the examples, in nats."""
        return float(np.mean(self.bound))

    @property
    def negative_log_likelihood(self) -> float:
        """Minus the mean bound, in nats."""
        return -self.mean_bound

    @property
    def standard_error(self) -> float:
        """Of the mean, over the choice of examples."""
        return float(np.std(self.bound, ddof=1) / len(self.bound) ** 0.5) if len(self.bound) > 1 else float("nan")

    @property
    def monte_carlo_error(self) -> float:
        """Of the mean, over the draw of the samples, for these examples."""
        return float(np.sum(self.variance) ** 0.5 / len(self.variance))

    @property
    def mean_effective_sample_size(self) -> float:
        """Averaged over the examples, from 1 to K."""
        return float(np.mean(self.effective_sample_size))

    def to_json(self) -> dict[str, float | int]:
        """The summary as JSON holds it."""
        return {
            "num_samples": self.num_samples,
            "num_examples": len(self.bound),
            "negative_log_likelihood": self.negative_log_likelihood,
            "standard_error": self.standard_error,
            "monte_carlo_error": self.monte_carlo_error,
            "effective_sample_size": self.mean_effective_sample_size,
        }


def evaluate(
    model: Model,
    examples: Examples,
    key: PRNGKeyArray,
    num_samples: int,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """L̂ with K = `num_samples` for every example, in slices of examples and of K: memory stays flat for any K.

    `progress` is told how many examples are done, of how many.
    """
    size = min(len(examples), max(1, ROWS // min(num_samples, BLOCK)))
    parts = []
    for number, start in enumerate(range(0, len(examples), size)):
        rows = jnp.arange(start, start + size) % len(examples)  # the last slice is filled up from the first examples
        parts.append(_statistics(model, examples, rows, jax.random.fold_in(key, number), num_samples))
        if progress is not None:
            jax.block_until_ready(parts[-1])
            progress(min(start + size, len(examples)), len(examples))
    bound, variance, effective = (
        np.concatenate([np.asarray(part) for part in column])[: len(examples)] for column in zip(*parts, strict=True)
    )
    return Evaluation(num_samples, bound, variance, effective)


class RunningSums(eqx.Module):
    """Σ f and Σ f² over the samples so far, on the scale of the largest f: the weights may come in any slices."""

    log_scale: Float[Array, "B"]
    weights: Float[Array, "B"]
    squares: Float[Array, "B"]

    @classmethod
    def zero(cls, size: int) -> "RunningSums":
        """No samples yet."""
        return cls(jnp.full(size, -jnp.inf), jnp.zeros(size), jnp.zeros(size))

    def plus(self, samples: ImportanceSamples) -> "RunningSums":
        """The sums with these samples."""
        log_weights = samples.log_weights
        largest = jnp.maximum(self.log_scale, jnp.max(log_weights, axis=0))
        scale = jnp.where(jnp.isneginf(largest), 0.0, largest)
        before, now = jnp.exp(self.log_scale - scale), jnp.exp(log_weights - scale)
        return RunningSums(
            largest,
            self.weights * before + jnp.sum(now, axis=0),
            self.squares * before**2 + jnp.sum(now**2, axis=0),
        )


@eqx.filter_jit
def _statistics(
    model: Model, examples: Examples, rows: Int[Array, "B"], key: PRNGKeyArray, num_samples: int
) -> tuple[Float[Array, "B"], Float[Array, "B"], Float[Array, "B"]]:
    batch: Batch = examples.batch(rows, jnp.result_type(float))

    def add_block(number: Int[Array, ""], sums: RunningSums, size: int = BLOCK) -> RunningSums:
        return sums.plus(model.importance_samples(jax.random.fold_in(key, number), batch, size))

    whole, rest = divmod(num_samples, BLOCK)
    sums = RunningSums.zero(rows.shape[0])
    if whole:
        sums = jax.lax.fori_loop(0, whole, add_block, sums)
    if rest:
        sums = add_block(jnp.asarray(whole), sums, rest)
    bound = sums.log_scale + jnp.log(sums.weights) - jnp.log(num_samples)
    effective = jnp.where(sums.squares > 0, sums.weights**2 / sums.squares, 0.0)
    variance = jnp.where(effective > 0, 1.0 / effective - 1.0 / num_samples, jnp.inf)
    return jnp.where(sums.weights > 0, bound, -jnp.inf), jnp.maximum(variance, 0.0), effective
