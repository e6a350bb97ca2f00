"""A layer of Bernoulli units: its logits, its samples, its log-probability."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vimco.models.randomness import sample_bits


class BernoulliLayer(eqx.Module):
    """Binary units whose logits are Σ_i parent_i W_i + b. A parent of width zero leaves the bias: a learned prior.

    A parent may lack the sample axis: what depends on the data alone is computed once per example, not once per
    sample, and so is its weights' gradient.
    """

    weights: tuple[Float[Array, "_ n"], ...]
    bias: Float[Array, "n"]

    def __init__(self, key: PRNGKeyArray, parent_sizes: tuple[int, ...], size: int, dtype: jnp.dtype | None = None):
        """Weights uniform in ±√(6 / (all inputs + outputs)) (Glorot & Bengio, 2010), biases zero."""
        limit = (6.0 / (sum(parent_sizes) + size)) ** 0.5
        keys = jax.random.split(key, len(parent_sizes))
        self.weights = tuple(
            jax.random.uniform(k, (n, size), dtype, minval=-limit, maxval=limit)
            for k, n in zip(keys, parent_sizes, strict=True)
        )
        self.bias = jnp.zeros(size, dtype)

    def __call__(self, *parents: Float[Array, "... _"]) -> Float[Array, "... n"]:
        """The logits given the parents."""
        logits = _affine(parents[0], self.weights[0], self.bias)
        for parent, weight in zip(parents[1:], self.weights[1:], strict=True):
            logits = logits + parent @ weight
        return logits


def _affine(parent: Float[Array, "*B m"], weight: Float[Array, "m n"], bias: Float[Array, "n"]) -> Float[Array, "*B n"]:
    """parent @ weight + bias, as a product of two matrices whatever the leading axes.

    XLA then needs no transpose for the weight's gradient. The barrier, which acts on the gradient too, holds the
    reshape in place: without it XLA computes the residual of `log_bernoulli` twice, once in each shape.
    """
    *leading, m = parent.shape
    rows = parent.reshape(math.prod(leading), m)
    return jax.lax.optimization_barrier(rows @ weight + bias).reshape(*leading, bias.shape[0])


def sample_bernoulli(
    key: PRNGKeyArray, numbers: Int[Array, "K"], logits: Float[Array, "*#K B n"]
) -> Float[Array, "K B n"]:
    """Draws h^k ~ Bernoulli(σ(logits)) for the sample numbers k. Sample k depends on the key and on k alone.

    So K samples may be drawn in slices without a change in any of them. Probabilities are right to 2⁻²⁴, and a value
    less likely than that is never drawn: drawn too often, it would bring a weight that is far too large.
    """
    bits = sample_bits(key, numbers, logits.shape[-2:])
    # The middle of one of 2²³ intervals, exact in float32, never 0 or 1. By way of int32, for which processors have an
    # instruction.
    uniform = ((bits >> jnp.uint32(9)).astype(jnp.int32).astype(logits.dtype) + 0.5) * 2.0**-23
    sample = (uniform < jax.nn.sigmoid(logits)).astype(logits.dtype)
    # √0 = 0 and √1 = 1. XLA counts a root as expensive, so it stores the sample once; a mere conversion it would
    # repeat, cipher and all, inside each operation that reads the sample (and it drops barriers before it fuses).
    return stop_gradient(jnp.sqrt(sample))


@jax.custom_vjp
def log_bernoulli(value: Float[Array, "*#B n"], logits: Float[Array, "*#B n"]) -> Float[Array, "*B"]:
    """log Π_i Bernoulli(v_i; σ(a_i)) = Σ_i v_i a_i − log(1 + exp a_i), over the last axis.

    `value` is data or a sample: it gets no gradient. That of the logits is v − σ(a).
    """
    terms = value * logits - jnp.maximum(logits, 0) - jnp.log(1 + jnp.exp(-jnp.abs(logits)))
    # Summed by a product with ones: XLA then writes the terms in one vectorised pass. log(1 + e) is off by at most an
    # ulp of 1, below the rounding of the sum, so log1p would be wasted.
    return terms @ jnp.ones(terms.shape[-1], terms.dtype)


def _log_bernoulli_forward(value: Array, logits: Array) -> tuple[Array, tuple[Array, Array]]:
    return log_bernoulli(value, logits), (value, logits)


def _log_bernoulli_backward(saved: tuple[Array, Array], cotangent: Array) -> tuple[None, Array]:
    value, logits = saved
    residual = cotangent[..., None] * (value - jax.nn.sigmoid(logits))
    # Logits that several samples share get the sum over them: the transpose of broadcasting.
    _, transposed = jax.vjp(lambda a: jnp.broadcast_to(a, residual.shape), logits)
    return None, transposed(residual)[0]


log_bernoulli.defvjp(_log_bernoulli_forward, _log_bernoulli_backward)
