"""Layers: x W + b, and the logits of Bernoulli units."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from vimco.models.kernels.products import affine


class Dense(eqx.Module):
    """x W + b."""

    weight: Float[Array, "m n"]
    bias: Float[Array, "n"]

    def __init__(self, key: PRNGKeyArray, size: int, width: int, dtype: jnp.dtype | None = None):
        """Weights uniform in ±√(6 / (inputs + outputs)) (Glorot & Bengio, 2010), biases zero."""
        limit = (6.0 / (size + width)) ** 0.5
        self.weight = jax.random.uniform(key, (size, width), dtype, minval=-limit, maxval=limit)
        self.bias = jnp.zeros(width, dtype)

    def __call__(self, x: Float[Array, "*B m"]) -> Float[Array, "*B n"]:
        """Return x W + b."""
        return affine(x, self.weight, self.bias)


class BernoulliLayer(eqx.Module):
    """Binary units whose logits are Σ_i parent_i W_i + b. A parent of width zero leaves the bias: a learned prior.

    A parent may lack the sample axis: products that depend on the data alone, and the gradient of their weights, are
    computed once per example instead of once per sample.
    """

    weights: tuple[Float[Array, "_ n"], ...]
    bias: Float[Array, "n"]

    def __init__(self, key: PRNGKeyArray, parent_sizes: tuple[int, ...], size: int, dtype: jnp.dtype | None = None):
        """Draw weights uniform in ±√(6 / (all inputs + outputs)) (Glorot & Bengio, 2010); biases are zero."""
        limit = (6.0 / (sum(parent_sizes) + size)) ** 0.5
        keys = jax.random.split(key, len(parent_sizes))
        self.weights = tuple(
            jax.random.uniform(k, (n, size), dtype, minval=-limit, maxval=limit)
            for k, n in zip(keys, parent_sizes, strict=True)
        )
        self.bias = jnp.zeros(size, dtype)

    def __call__(self, *parents: Float[Array, "... _"]) -> Float[Array, "... n"]:
        """Return the logits given the parents."""
        logits = affine(parents[0], self.weights[0], self.bias)
        for parent, weight in zip(parents[1:], self.weights[1:], strict=True):
            logits = logits + parent @ weight
        return logits


L = TypeVar("L", Dense, BernoulliLayer)


def with_data_bias(layer: L, mean: Float[Array, "n"]) -> L:
    """Return the layer with a bias that gives its units the data's means; a pixel that is never on gets 1/1000."""
    mean = jnp.clip(mean, 1e-3, 1 - 1e-3)
    return eqx.tree_at(lambda layer: layer.bias, layer, jnp.log(mean) - jnp.log1p(-mean))
