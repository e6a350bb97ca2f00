"""Random bits for many samples: the cipher of `jax.random`, written so that XLA fuses it with the use of the bits."""

import math

import jax
import jax.extend.random
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def plain_sample_words(
    key: PRNGKeyArray, numbers: Int[Array, "K"], shape: tuple[int, ...]
) -> tuple[UInt32[Array, "K ..."], UInt32[Array, "K ..."]]:
    """Return the cipher of the counters (k, position). JAX takes all high words first, then all low ones."""
    block = (len(numbers), *shape)
    high = jnp.repeat(numbers.astype(jnp.uint32), math.prod(shape))
    low = jnp.tile(jnp.arange(math.prod(shape), dtype=jnp.uint32), len(numbers))
    first, second = jnp.split(
        jax.extend.random.threefry_2x32(jax.random.key_data(key), jnp.concatenate([high, low])), 2
    )
    return first.reshape(block), second.reshape(block)


def plain_fold_in(key: PRNGKeyArray, number: Int[Array, ""] | int) -> PRNGKeyArray:
    """Return the key of this number."""
    return jax.random.fold_in(key, number)


# Why other versions: JAX lowers the cipher to a loop of whole-array passes on a CPU, which XLA fuses with nothing.
# Written out, it is one pass, fused with the use of the bits.


@jax.jit
def threefry_2x32(
    key: UInt32[Array, "2"], high: UInt32[Array, "..."], low: UInt32[Array, "..."]
) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Return the Threefry-2x32 block cipher with 20 rounds (Salmon et al., 2011) of the counter (high, low).

    Its hundred operations are traced once for each shape: a trace that uses them holds a single call, which XLA
    expands.
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


def _words_of(key: PRNGKeyArray) -> UInt32[Array, "2"]:
    """Return the key of the cipher: all of a Threefry key, and half of the four words of JAX's other kinds."""
    return jax.random.key_data(key)[:2]


def fold_in(key: PRNGKeyArray, number: Int[Array, ""] | int) -> PRNGKeyArray:
    """Return `plain_fold_in`, without its loop."""
    words = threefry_2x32(_words_of(key), jnp.zeros((), jnp.uint32), jnp.asarray(number).astype(jnp.uint32))
    return jax.random.wrap_key_data(jnp.stack(words), impl="threefry2x32")


def sample_words(
    key: PRNGKeyArray, numbers: Int[Array, "K"], shape: tuple[int, ...], first: Int[Array, ""] | None = None
) -> tuple[UInt32[Array, "K ..."], UInt32[Array, "K ..."]]:
    """Return `plain_sample_words`: two words of this shape for each sample number k. Key, shape and k determine them.

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
    return threefry_2x32(_words_of(key), high, low)
