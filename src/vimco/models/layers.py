"""A layer of Bernoulli units: its logits, and how gradients come back to it."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


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
