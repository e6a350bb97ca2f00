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


def _is_buffer(node: object) -> bool:
    return isinstance(node, Buffer)


def partition(tree: T) -> tuple[T, T]:
    """Split a tree into its parameters and the rest; `equinox.combine` is the inverse."""
    spec = jax.tree.map(
        lambda node: False if _is_buffer(node) else eqx.is_inexact_array(node), tree, is_leaf=_is_buffer
    )
    return eqx.partition(tree, spec)
