"""The change of a layer's log-probability for each flip of one of its binary parents, all parents at once."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vimco.models.kernels.bernoulli import plain_log_bernoulli

FACTORS = 4  # of which one logarithm is taken
LOGARITHMS = 5  # of one pass; XLA does not vectorise a shorter loop


def plain_change_of_children(
    values: Float[Array, "... B D"],
    logits: Float[Array, "... B D"],
    weight: Float[Array, "n D"],
    turns: Float[Array, "K B n"],
) -> Float[Array, "K B n"]:
    """Return the change of the children's log-probability where parent i alone adds t_i W_id to a_d, for every i.

    `turns` are t = ±1.
    """
    changed = logits[..., None, :] + turns[..., None] * weight
    return plain_log_bernoulli(values[..., None, :], changed) - plain_log_bernoulli(values, logits)[..., None]


# Why another version: the plain one stores a value for each pair of parent and child in each sample, takes an
# exponential and a logarithm for each of them, and subtracts large numbers to get small ones.


def change_of_children(
    values: Float[Array, "... B D"],
    logits: Float[Array, "... B D"],
    weight: Float[Array, "n D"],
    turns: Float[Array, "K B n"],
) -> Float[Array, "K B n"]:
    """Return `plain_change_of_children`. With p = σ(a) and q = σ(−a) the change is

        Σ_d t_i W_id (v_d − ½) − log(q_d exp(−t_i W_id / 2) + p_d exp(t_i W_id / 2)).

    The exponentials are those of the weights alone, once for all samples; nothing cancels, since all terms of a factor
    are positive; and a few factors share a logarithm. The children pass one after the other: no array holds a value for
    each pair of parent and child in each sample.

    A weight beyond ±43 (in float32; ±350 in float64) counts as that in the exponentials, so that products neither
    overflow nor vanish. Where there is such a weight, a second pass adds what is missing.
    """
    (K, B, n), D = turns.shape, weight.shape[1]
    size = FACTORS * LOGARITHMS
    pad = -D % size  # with weights of zero: q + p is one
    limit = float(-np.log(np.finfo(weight.dtype).tiny) / FACTORS) * 0.99
    half = jnp.clip(jnp.pad(weight.T, ((0, pad), (0, 0))) / 2, -limit, limit)
    rise, fall = (jnp.exp(sign * half).reshape(-1, size, n) for sign in (1, -1))
    a = jnp.pad(jnp.broadcast_to(logits, (K, B, D)), ((0, 0), (0, 0), (0, pad)))
    p, q = (jnp.moveaxis(jax.nn.sigmoid(sign * a), -1, 0).reshape(-1, size, K, B, 1) for sign in (1, -1))
    is_up = turns > 0

    def added(total: Float[Array, "K B n"], children: tuple[Array, ...]) -> tuple[Float[Array, "K B n"], None]:
        factors = [
            q * jnp.where(is_up, f, r) + p * jnp.where(is_up, r, f) for r, f, p, q in zip(*children, strict=True)
        ]
        for start in range(0, size, FACTORS):
            product = factors[start]
            for factor in factors[start + 1 : start + FACTORS]:
                product = product * factor
            total = total + jnp.log(product)
        return total, None

    def added_beyond(total: Float[Array, "K B n"], child: tuple[Array, Array]) -> tuple[Float[Array, "K B n"], None]:
        h, a = turns * child[0] / 2, child[1][..., None]

        def logarithm(h: Float[Array, "K B n"]) -> Float[Array, "K B n"]:
            return jnp.logaddexp(-jax.nn.softplus(a) - h, h - jax.nn.softplus(-a))

        return total + logarithm(h) - logarithm(jnp.clip(h, -limit, limit)), None

    zero = jnp.zeros_like(turns)
    beyond = jax.lax.cond(
        jnp.any(jnp.abs(weight) > 2 * limit),
        lambda: jax.lax.scan(added_beyond, zero, (weight.T, jnp.moveaxis(logits, -1, 0)))[0],
        lambda: zero,
    )
    normaliser, _ = jax.lax.scan(added, beyond, (rise, fall, p, q))
    return turns * ((values - 0.5) @ weight.T) - normaliser
