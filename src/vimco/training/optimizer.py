"""Adam with a learning rate that may change, with clipping, and with decay of weights."""

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

STAGES = 8


@functools.lru_cache  # the same object for the same settings, so that functions compiled with it are reused
def adam_with_schedule(
    learning_rate: float,
    schedule: Literal["constant", "cosine", "stages"],
    horizon: int,
    warmup_updates: int,
    clip: float | None,
    epsilon: float,
    weight_decay: float,
) -> optax.GradientTransformation:
    """Return Adam with this learning rate, scheduled over `horizon` updates.

    With `weight_decay` d and the rate r of an update, matrices w also move by −r d w (Loshchilov & Hutter, 2019).
    Vectors do not: most are biases, and the means of units must not be drawn towards 1/2. `clip` bounds the norm of the
    gradient of the model, and by itself that of the estimator's own networks.
    """
    rate: float | optax.Schedule = learning_rate
    if schedule == "cosine":
        rate = optax.cosine_decay_schedule(learning_rate, max(1, horizon - warmup_updates))
    elif schedule == "stages":
        rate = stages(learning_rate, max(1, horizon - warmup_updates))
    elif warmup_updates:
        rate = optax.constant_schedule(learning_rate)
    if warmup_updates:
        warmup = optax.linear_schedule(0.0, learning_rate, warmup_updates)
        rate = optax.join_schedules([warmup, rate], [warmup_updates])
    adam = optax.adam(rate, eps=epsilon)
    if weight_decay:
        adam = optax.adamw(rate, eps=epsilon, weight_decay=weight_decay, mask=_matrices)
    return adam if clip is None else optax.chain(_clipped_by_part(clip), adam)


def _clipped_by_part(limit: float) -> optax.GradientTransformation:
    """Return the clipping of a pair of gradients, of the model and of the estimator, each by its own norm.

    The squared error of a baseline has a gradient many times that of the model: a common norm would let it set the
    model's step.
    """
    clip = optax.clip_by_global_norm(limit)

    def update(gradients: Any, state: Any, _parameters: Any = None) -> tuple[Any, Any]:
        return tuple(clip.update(part, state)[0] for part in gradients), state

    return optax.GradientTransformation(clip.init, update)


def _matrices(parameters: Any) -> Any:
    """Return which parameters are matrices."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, parameters)


def stages(learning_rate: float, horizon: int) -> optax.Schedule:
    """Return the schedule of Burda et al. (2015): eight stages, each three times as long as the one before.

    Stage i = 0, ..., 7 has the rate r · 10^(−i/7). Over 3280 passes these are 1, 3, 9, ..., 2187 of them.
    """
    ends = [round(horizon * (3**i - 1) / (3**STAGES - 1)) for i in range(1, STAGES)]
    rates = learning_rate * 10.0 ** (-np.arange(STAGES) / (STAGES - 1))
    return lambda number: jnp.asarray(rates)[jnp.searchsorted(jnp.asarray(ends), number, side="right")]
