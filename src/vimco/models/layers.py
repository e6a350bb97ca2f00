"""A layer of Bernoulli units: its logits, its samples, its log-probability."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PRNGKeyArray


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
        logits = self.bias
        for parent, weight in zip(parents, self.weights, strict=True):
            logits = logits + parent @ weight
        return logits


def sample_bernoulli(
    key: PRNGKeyArray, numbers: Int[Array, "K"], logits: Float[Array, "*#K B n"]
) -> Float[Array, "K B n"]:
    """Draws h^k ~ Bernoulli(σ(logits)) for the sample numbers k. Sample k depends on the key and on k alone.

    So K samples may be drawn in slices without a change in any of them.
    """
    keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)
    uniform = jax.vmap(lambda k: jax.random.uniform(k, logits.shape[-2:], logits.dtype))(keys)
    return stop_gradient((uniform < jax.nn.sigmoid(logits)).astype(logits.dtype))


def log_bernoulli(value: Float[Array, "*#B n"], logits: Float[Array, "*#B n"]) -> Float[Array, "*B"]:
    """log Π_i Bernoulli(v_i; σ(a_i)) = Σ_i v_i a_i − log(1 + exp a_i), over the last axis."""
    return jnp.sum(value * logits - jax.nn.softplus(logits), axis=-1)
