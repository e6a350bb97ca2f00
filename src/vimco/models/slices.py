"""Computing many samples in slices, so that memory does not grow with K."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

T = TypeVar("T")


def in_slices(function: Callable[[Int[Array, "k"]], T], num_samples: int, slice_size: int | None) -> T:
    """Return `function(arange(num_samples))`, computed in slices of the sample numbers, axis 0 of its results.

    The backward pass recomputes each slice, so only one slice's intermediate values are in memory.
    """
    numbers = jnp.arange(num_samples)
    if slice_size is None or slice_size >= num_samples:
        return function(numbers)
    whole = num_samples // slice_size * slice_size
    sliced = jax.lax.map(jax.checkpoint(function), numbers[:whole].reshape(-1, slice_size))
    parts = [jax.tree.map(lambda a: a.reshape(whole, *a.shape[2:]), sliced)]
    if whole < num_samples:
        parts.append(jax.checkpoint(function)(numbers[whole:]))
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *parts)
