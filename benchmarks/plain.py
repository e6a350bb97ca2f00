"""A straightforward version of the same update in JAX, and single kernels beside the plain code that they replace."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.nn import logsumexp, sigmoid

from benchmarks.subjects import examples
from vimco.models.kernels.bernoulli import log_bernoulli, plain_log_bernoulli, sample_bernoulli
from vimco.training.compilation import compiler_options


def plain_updates(K: int, batch: int, width: int, repeats: int) -> Callable[[], None]:
    """Return a call that does `repeats` updates of the generative model by VIMCO: library samplers, softplus, Optax."""
    data = examples("generative").observation
    sizes = [784, width, width, width]
    up = list(itertools.pairwise(sizes))
    down = [(n, m) for m, n in reversed(up)]
    parameters = {
        "up": [_layer(*size) for size in up],
        "down": [_layer(*size) for size in down],
        "prior": jnp.zeros(width),
    }
    optimizer = optax.adam(1e-3)

    def objective(parameters: Any, key: jax.Array, x: jax.Array) -> jax.Array:
        latents, log_q = [x - 0.13], jnp.zeros(())
        for number, (weight, bias) in enumerate(parameters["up"]):
            logits = latents[-1] @ weight + bias
            shape = (K, len(x), len(bias))
            h = jax.random.bernoulli(jax.random.fold_in(key, number), sigmoid(logits), shape).astype(jnp.float32)
            log_q = log_q + plain_log_bernoulli(h, logits)
            latents.append(h)
        log_p = plain_log_bernoulli(latents[-1], parameters["prior"])
        targets = [*latents[-2:0:-1], x]
        for (weight, bias), parent, target in zip(parameters["down"], latents[:0:-1], targets, strict=True):
            log_p = log_p + plain_log_bernoulli(target, parent @ weight + bias)
        log_f = log_p - log_q
        left_out = (jnp.sum(log_f, 0) - log_f) / (K - 1)
        swapped = jnp.where(jnp.eye(K, dtype=bool)[:, :, None], left_out[None], log_f[None])
        signal = logsumexp(log_f, 0) - logsumexp(swapped, 1)
        return -jnp.mean(jnp.sum(jax.lax.stop_gradient(signal) * log_q, 0) + logsumexp(log_f, 0))

    def update(state: tuple, key: jax.Array) -> tuple:
        parameters, optimizer_state = state
        rows = jax.random.randint(jax.random.fold_in(key, 99), (batch,), 0, len(data))
        gradient = jax.grad(objective)(parameters, key, data[rows].astype(jnp.float32))
        steps, optimizer_state = optimizer.update(gradient, optimizer_state)
        return (optax.apply_updates(parameters, steps), optimizer_state), None

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state: tuple, key: jax.Array) -> tuple:
        return jax.lax.scan(update, state, jax.random.split(key, repeats))[0]

    state = [(parameters, optimizer.init(parameters))]

    def call() -> None:
        state[0] = jax.block_until_ready(run(state[0], jax.random.key(0)))

    return call


def steps(K: int, batch: int, repeats: int) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
    """Return for each kernel a call of its plain form and one of its own, each with `repeats` repeats.

    Each result is an input of the next repeat, so that XLA computes all of them.
    """
    rng = np.random.default_rng(0)
    hidden = jnp.asarray(rng.normal(0, 2, (K, batch, 200)), jnp.float32)
    pixels = jnp.asarray(rng.normal(0, 2, (K, batch, 784)), jnp.float32)
    x = jnp.asarray(rng.random((batch, 784)) < 0.13, jnp.float32)

    def plain_sample(key: jax.Array, logits: jax.Array) -> jax.Array:
        return jax.random.bernoulli(key, sigmoid(logits)).astype(jnp.float32)

    def own_sample(key: jax.Array, logits: jax.Array) -> jax.Array:
        return sample_bernoulli(key, jnp.arange(K), logits)

    def plain_log_prob(logits: jax.Array) -> jax.Array:
        return plain_log_bernoulli(x, logits)

    def own_log_prob(logits: jax.Array) -> jax.Array:
        return log_bernoulli(x, logits)

    def sampled(sample: Callable) -> Callable[[], None]:
        def once(number: jax.Array, logits: jax.Array) -> jax.Array:
            return logits + 1e-3 * sample(jax.random.fold_in(jax.random.key(0), number), logits)

        return _looped(once, hidden, repeats)

    def valued(log_prob: Callable) -> Callable[[], None]:
        return _looped(lambda _, logits: logits.at[:, :, 0].add(1e-9 * log_prob(logits)), pixels, repeats)

    def differentiated(log_prob: Callable) -> Callable[[], None]:
        def once(_: jax.Array, logits: jax.Array) -> jax.Array:
            return logits + 1e-3 * jax.grad(lambda a: jnp.sum(log_prob(a)))(logits)

        return _looped(once, pixels, repeats)

    return {
        "samples of a hidden layer": (sampled(plain_sample), sampled(own_sample)),
        "log-probability of the pixels": (valued(plain_log_prob), valued(own_log_prob)),
        "gradient of that": (differentiated(plain_log_prob), differentiated(own_log_prob)),
    }


def _layer(inputs: int, outputs: int) -> tuple[jax.Array, jax.Array]:
    weight = np.random.default_rng(inputs + outputs).normal(0, 0.1, (inputs, outputs))
    return jnp.asarray(weight, jnp.float32), jnp.zeros(outputs)


def _looped(once: Callable, start: Any, repeats: int) -> Callable[[], None]:
    run = jax.jit(lambda start: jax.lax.fori_loop(0, repeats, once, start), compiler_options=compiler_options())
    return lambda: jax.block_until_ready(run(start))
