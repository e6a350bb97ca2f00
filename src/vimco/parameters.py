"""Which arrays of a model or an estimator an optimizer may move."""

from typing import TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

T = TypeVar("T")


class Buffer(eqx.Module):
    """A node whose arrays are state, not parameters: centring means, running moments.

    Its arrays take no part in the optimizer, the gradient norm or the averaging of parameters.
    """


class Centre(Buffer):
    """A layer that subtracts the training mean from its input (supplement B)."""

    mean: Float[Array, "D"]

    def __call__(self, data: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Return x − x̄."""
        return data - self.mean


def partition(tree: T) -> tuple[T, T]:
    """Split a tree into its parameters and the rest; `equinox.combine` is the inverse."""
    # A buffer counts as one leaf, which is no array.
    is_parameter = jax.tree.map(eqx.is_inexact_array, tree, is_leaf=lambda node: isinstance(node, Buffer))
    return eqx.partition(tree, is_parameter)
