"""Random bits for many samples: the cipher of `jax.random`, written so that XLA fuses it with the use of the bits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


@jax.jit
def threefry_2x32(
    key: UInt32[Array, "2"], high: UInt32[Array, "..."], low: UInt32[Array, "..."]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Return the Threefry-2x32 block cipher with 20 rounds (Salmon et al., 2011) of the counter (high, low).

    JAX lowers the same cipher to a loop of whole-array passes on a CPU; written out, it is one fused pass. Its hundred
    operations are traced once for each shape: a trace that uses them holds a single call, which XLA expands.
    """
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY))
    high, low = high + keys[0], low + keys[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            high = high + low
            low = high ^ ((low << jnp.uint32(rotation)) | (low >> jnp.uint32(32 - rotation)))
        high = high + keys[(group + 1) % 3]
        low = low + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return high, low


def fold_in(key: PRNGKeyArray, number: Int[Array, ""] | int) -> PRNGKeyArray:
    """Return the same bits as `jax.random.fold_in`, without its loop."""
    words = threefry_2x32(jax.random.key_data(key), jnp.zeros((), jnp.uint32), jnp.asarray(number).astype(jnp.uint32))
    return jax.random.wrap_key_data(jnp.stack(words))


def sample_words(
    key: PRNGKeyArray, numbers: Int[Array, "K"], shape: tuple[int, ...], first: Int[Array, ""] | None = None
) -> tuple[UInt32[Array, "K ..."], UInt32[Array, "K ..."]]:
    """Return two random words of the given shape for each sample number k. They depend on key, shape and k alone.

    The number of a sample is the high word of its counters, the position within the shape the low one. Positions count
    from `first` where the shape is a part of a larger one.
    """
    block = (numbers.shape[0], *shape)
    high = jax.lax.broadcast_in_dim(numbers.astype(jnp.uint32), block, (0,))
    low = jnp.zeros(block, jnp.uint32) if first is None else jnp.full(block, first.astype(jnp.uint32))
    stride = 1
    for axis in range(len(block) - 1, 0, -1):
        low = low + jax.lax.broadcasted_iota(jnp.uint32, block, axis) * jnp.uint32(stride)
        stride *= block[axis]
    return threefry_2x32(jax.random.key_data(key), high, low)
