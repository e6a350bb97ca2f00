"""Adam with a learning rate that may change, and with clipping."""

import functools

import optax


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
    adam = optax.adam(rate)
    return adam if clip is None else optax.chain(optax.clip_by_global_norm(clip), adam)
