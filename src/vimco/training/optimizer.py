"""Adam as an Optax transformation that costs one pass over the parameters."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

DECAY_1, DECAY_2, EPSILON = 0.9, 0.999, 1e-8  # Kingma & Ba, 2015


class AdamState(NamedTuple):
    """Updates so far, and the running moments of the gradient."""

    number: Int[Array, ""]
    first: PyTree[Float[Array, "..."]]
    second: PyTree[Float[Array, "..."]]


def adam(learning_rate: float | Callable[[Int[Array, ""]], Float[Array, ""]]) -> optax.GradientTransformation:
    """`optax.adam(learning_rate)` with the two bias corrections folded into two scalars.

    The steps differ from Optax's by rounding only. Small models spend a good part of an update here: one division and
    one root an element are left.
    """

    def init(parameters: PyTree) -> AdamState:
        def zeros() -> PyTree:
            return jax.tree.map(jnp.zeros_like, parameters)

        return AdamState(jnp.zeros((), jnp.int32), zeros(), zeros())

    def update(gradient: PyTree, state: AdamState, _: PyTree = None) -> tuple[PyTree, AdamState]:
        rate = learning_rate(state.number) if callable(learning_rate) else learning_rate
        number = state.number + 1
        dtype = jnp.result_type(float)
        rate_1 = -rate / (1 - jnp.asarray(DECAY_1, dtype) ** number)
        scale_2 = 1 / (1 - jnp.asarray(DECAY_2, dtype) ** number)
        first = jax.tree.map(lambda m, g: DECAY_1 * m + (1 - DECAY_1) * g, state.first, gradient)
        second = jax.tree.map(lambda v, g: DECAY_2 * v + (1 - DECAY_2) * g * g, state.second, gradient)
        steps = jax.tree.map(lambda m, v: rate_1 * m / (jnp.sqrt(v * scale_2) + EPSILON), first, second)
        return steps, AdamState(number, first, second)

    return optax.GradientTransformation(init, update)


@functools.lru_cache  # the same object for the same settings, so that what was compiled with it serves again
def adam_with_schedule(
    learning_rate: float, horizon: int | None, warmup_updates: int, clip: float | None
) -> optax.GradientTransformation:
    """Return Adam with this learning rate; `horizon` is that of the cosine schedule, None for a constant rate."""
    rate: float | optax.Schedule = learning_rate
    if horizon is not None:
        rate = optax.cosine_decay_schedule(learning_rate, max(1, horizon - warmup_updates))
    elif warmup_updates:
        rate = optax.constant_schedule(learning_rate)
    if warmup_updates:
        warmup = optax.linear_schedule(0.0, learning_rate, warmup_updates)
        rate = optax.join_schedules([warmup, rate], [warmup_updates])
    return adam(rate) if clip is None else optax.chain(optax.clip_by_global_norm(clip), adam(rate))
