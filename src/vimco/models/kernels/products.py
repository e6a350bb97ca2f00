"""The products of a layer, written so that XLA computes no gradient twice."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def plain_affine(
    parent: Float[Array, "*B m"], weight: Float[Array, "m n"], bias: Float[Array, "n"]
) -> Float[Array, "*B n"]:
    """Return parent @ weight + bias."""
    return parent @ weight + bias


def plain_with_stored_gradient(log_prob: Float[Array, "K B"]) -> Float[Array, "K B"]:
    """Return the same values."""
    return log_prob


# Why other versions: values and gradients are the plain ones, but XLA repeats what it takes for cheap in every
# operation that reads it. It would compute the residual of `log_bernoulli` once for the gradient of the weights and
# again for that of the bias, and the coefficient of a sample once for every unit of every layer.


def affine(parent: Float[Array, "*B m"], weight: Float[Array, "m n"], bias: Float[Array, "n"]) -> Float[Array, "*B n"]:
    """Return `plain_affine`, computed as a product of two matrices for any leading axes.

    XLA then needs no transpose for the weight's gradient. The barrier, which also acts on the gradient, keeps the
    reshape in place: without it XLA computes the residual of `log_bernoulli` twice, once in each shape.
    """
    *leading, m = parent.shape
    rows = parent.reshape(math.prod(leading), m)
    return jax.lax.optimization_barrier(_plus_bias(rows @ weight, bias)).reshape(*leading, bias.shape[0])


@jax.custom_vjp
def _plus_bias(rows: Float[Array, "N n"], bias: Float[Array, "n"]) -> Float[Array, "N n"]:
    """Return rows + bias. The gradient of the bias, a sum over rows, is computed as a product with ones.

    XLA uses the stored residual of the weights' gradient for a product; for a sum it would compute it again.
    """
    return rows + bias


def _plus_bias_backward(_: None, cotangent: Array) -> tuple[Array, Array]:
    return cotangent, jnp.matmul(jnp.ones(len(cotangent), cotangent.dtype), cotangent, precision="highest")


_plus_bias.defvjp(lambda rows, bias: (rows + bias, None), _plus_bias_backward)


@jax.custom_vjp
def with_stored_gradient(log_prob: Float[Array, "K B"]) -> Float[Array, "K B"]:
    """Return the same values, and make XLA store their gradient, the coefficient of each sample.

    Multiplying by the identity makes XLA store the cotangent; otherwise it is recomputed for every unit of every layer.
    A coefficient that is not finite spoils its neighbours, but then the update is lost anyway.
    """
    return log_prob


def _stored_backward(_: None, cotangent: Array) -> tuple[Array]:
    K, B = cotangent.shape
    identity = jnp.eye(min(K, B), dtype=cotangent.dtype)
    factors = (identity, cotangent) if K < B else (cotangent, identity)
    return (jnp.matmul(*factors, precision="highest"),)  # a copy, also where products have fewer bits


with_stored_gradient.defvjp(lambda log_prob: (log_prob, None), _stored_backward)
