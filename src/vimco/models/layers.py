"""A layer of Bernoulli units: its logits, its samples, its log-probability."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32
from numpy.polynomial import Chebyshev, Polynomial

from vimco.models.randomness import sample_words

# log(1 + e) / e for 0 ≤ e ≤ 1, to 2⁻²⁴ of its value before rounding: the polynomial through nine Chebyshev points.
LOG1P_COEFFICIENTS = Chebyshev.interpolate(lambda e: np.log1p(e) / e, 8, domain=[0, 1]).convert(kind=Polynomial).coef


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
    reshape in place: without it XLA computes the residual of `bernoulli_terms` twice, once in each shape.
    """
    *leading, m = parent.shape
    rows = parent.reshape(math.prod(leading), m)
    return jax.lax.optimization_barrier(_plus_bias(rows @ weight, bias)).reshape(*leading, bias.shape[0])


@jax.custom_vjp
def _plus_bias(rows: Float[Array, "N n"], bias: Float[Array, "n"]) -> Float[Array, "N n"]:
    """rows + bias. The bias gets its gradient, the sum over rows, by a product with ones.

    Into a product goes the residual that XLA has stored for the weights' gradient; for a sum it would compute it anew.
    """
    return rows + bias


def _plus_bias_forward(rows: Array, bias: Array) -> tuple[Array, None]:
    return rows + bias, None


def _plus_bias_backward(_: None, cotangent: Array) -> tuple[Array, Array]:
    return cotangent, jnp.ones(len(cotangent), cotangent.dtype) @ cotangent


_plus_bias.defvjp(_plus_bias_forward, _plus_bias_backward)


def sample_bernoulli(
    key: PRNGKeyArray, numbers: Int[Array, "K"], logits: Float[Array, "*#K B n"]
) -> Float[Array, "K B n"]:
    """Draws h^k ~ Bernoulli(σ(logits)) for the sample numbers k. Sample k depends on the key, (B, n) and k alone.

    So K samples may be drawn in slices without a change in any of them. Probabilities are right to 2⁻²⁴, and a value
    less likely than that is never drawn: drawn too often, it would bring a weight that is far too large.
    """
    *leading, B, n = logits.shape
    half = (B + 1) // 2
    if B % 2:
        logits = jnp.concatenate([logits, logits[..., -1:, :]], axis=-2)
    # Both words of the cipher count: one for the examples of the first half, one for those of the second.
    words = sample_words(key, numbers, (half, n))
    probabilities = jax.nn.sigmoid(logits).reshape(*leading, 2, half, n)
    first, second = (_uniform(word, logits.dtype) < probabilities[..., i, :, :] for i, word in enumerate(words))
    # The number 2·second + first as the root of its square. XLA counts a root as expensive, so it stores the pair once;
    # a mere sum it would repeat, cipher and all, inside each operation that reads a sample. A barrier would not help:
    # it is gone before XLA fuses.
    pair = jnp.sqrt(jnp.where(second, jnp.where(first, 9, 4), jnp.where(first, 1, 0)).astype(logits.dtype))[:, None]
    second = pair > 1.5
    first = pair - 2 * second > 0.5
    is_second = jnp.arange(2)[:, None, None] == 1
    sample = jnp.where(is_second, second, first).astype(logits.dtype).reshape(len(numbers), 2 * half, n)
    return stop_gradient(sample[:, :B])


def _uniform(bits: UInt32[Array, "..."], dtype: jnp.dtype) -> Float[Array, "..."]:
    """The middle of one of 2²³ intervals: exact in float32, never 0 or 1.

    By way of int32, for which processors have an instruction.
    """
    return ((bits >> jnp.uint32(9)).astype(jnp.int32).astype(dtype) + 0.5) * 2.0**-23


def log_bernoulli(value: Float[Array, "*#B n"], logits: Float[Array, "*#B n"]) -> Float[Array, "*B"]:
    """log Π_i Bernoulli(v_i; σ(a_i)), over the last axis."""
    return sum_over_units([bernoulli_terms(value, logits)])


def sum_over_units(terms: Sequence[Float[Array, "*B _"]]) -> Float[Array, "*B"]:
    """The sum of all terms over their last axes; terms of equal width are first added to each other.

    Summed by a product with ones: XLA then writes the terms in one vectorised pass.
    """
    of_width: dict[int, Array] = {}
    for array in terms:
        n = array.shape[-1]
        of_width[n] = of_width[n] + array if n in of_width else array
    sums = [array @ jnp.ones(n, array.dtype) for n, array in of_width.items()]
    return sum(sums[1:], start=sums[0])


@jax.custom_vjp
def bernoulli_terms(value: Float[Array, "*#B n"], logits: Float[Array, "*#B n"]) -> Float[Array, "*B n"]:
    """log Bernoulli(v; σ(a)) = v a − log(1 + exp a) of every unit.

    `value` is data or a sample: it gets no gradient. That of the logits is v − σ(a).
    """
    return value * logits - jnp.maximum(logits, 0) - _log1p(jnp.exp(-jnp.abs(logits)))


def _log1p(e: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(1 + e) for 0 ≤ e ≤ 1. In float32 a polynomial: XLA's logarithm takes as long as all the rest of a term."""
    if e.dtype != jnp.float32:
        return jnp.log1p(e)
    quotient = jnp.full_like(e, LOG1P_COEFFICIENTS[-1])
    for coefficient in LOG1P_COEFFICIENTS[-2::-1]:
        quotient = quotient * e + jnp.float32(coefficient)
    return quotient * e


def _terms_forward(value: Array, logits: Array) -> tuple[Array, tuple[Array, Array]]:
    return bernoulli_terms(value, logits), (value, logits)


def _terms_backward(saved: tuple[Array, Array], cotangent: Array) -> tuple[None, Array]:
    value, logits = saved
    residual = cotangent * (value - jax.nn.sigmoid(logits))
    # Logits that several samples share get the sum over them: the transpose of broadcasting.
    _, transposed = jax.vjp(lambda a: jnp.broadcast_to(a, residual.shape), logits)
    return None, transposed(residual)[0]


bernoulli_terms.defvjp(_terms_forward, _terms_backward)


@jax.custom_vjp
def with_stored_gradient(log_prob: Float[Array, "K B"]) -> Float[Array, "K B"]:
    """The same values; XLA stores their gradient, the coefficient of each sample, before it goes on to the layers.

    By a product with the identity: the last steps of a cheaper way XLA would take again for every unit of every layer.
    A coefficient that is not finite spoils those beside it; the update is lost anyway.
    """
    return log_prob


def _stored_forward(log_prob: Array) -> tuple[Array, None]:
    return log_prob, None


def _stored_backward(_: None, cotangent: Array) -> tuple[Array]:
    K, B = cotangent.shape
    identity = jnp.eye(min(K, B), dtype=cotangent.dtype)
    return (identity @ cotangent if K < B else cotangent @ identity,)


with_stored_gradient.defvjp(_stored_forward, _stored_backward)
