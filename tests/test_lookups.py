"""The prototype that looks up sums, against the package's model: the same draws, from sums in another order."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vimco
from benchmarks.lookups import is_here, looked_up
from vimco.parameters import partition
from vimco.samples import Batch


@pytest.mark.skipif(not is_here(), reason="the prototype needs g++ and 512-bit vectors")
@pytest.mark.parametrize(
    ("widths", "D", "K", "B"),
    [
        ((200, 200, 200), 784, 5, 24),
        ((70, 66), 50, 37, 24),  # several strips, the last of them not full
        ((7,), 10, 3, 4),  # fewer of everything than a vector holds
        ((33, 20), 50, 2, 8),
        ((5, 6, 7, 9), 13, 11, 64),
        ((16, 17), 784, 1, 20),
    ],
)
def test_log_probabilities_and_gradients_are_those_of_the_model(widths, D, K, B):
    rng = np.random.default_rng(0)
    mean = rng.uniform(0.01, 0.3, D).astype(np.float32)
    parameters, rest = partition(vimco.generative_sbn(jax.random.key(1), widths, mean))
    # larger weights and other biases than initial ones, so that units have all kinds of probabilities
    parameters = jax.tree.map(lambda a: 1.5 * a + jnp.asarray(rng.normal(0, 0.3, a.shape), a.dtype), parameters)
    batch = Batch(jnp.asarray(rng.random((B, D)) < mean, jnp.float32), jnp.zeros((B, 0)))
    coefficients = [jnp.asarray(rng.normal(size=(K, B)), jnp.float32) for _ in range(2)]

    @eqx.filter_jit
    def gradient(parameters, changed):
        def weighted(parameters):
            samples = changed(eqx.combine(parameters, rest)).importance_samples(jax.random.key(5), batch, K)
            logs = samples.log_joint, samples.log_proposal
            return sum(jnp.sum(c * log) for c, log in zip(coefficients, logs, strict=True)), logs

        return jax.grad(weighted, has_aux=True)(parameters)

    (expected, logs_expected), (found, logs) = (gradient(parameters, change) for change in (lambda m: m, looked_up))
    # A draw may differ where rounding decides it. With other compilers that may happen at one of these keys, too.
    for log, other in zip(logs, logs_expected, strict=True):
        np.testing.assert_allclose(log, other, rtol=1e-6, atol=1e-4)
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if leaf.size:
            assert np.linalg.norm(leaf - other) <= 1e-5 * np.linalg.norm(other)


MEAN = np.full(16, 0.2, np.float32)


@pytest.mark.parametrize("B", [0, 6, 68])
def test_a_batch_that_is_no_multiple_of_four_or_too_large_is_refused(B):
    model = looked_up(vimco.generative_sbn(jax.random.key(0), (8,), MEAN))
    with pytest.raises(ValueError, match="multiple of four"):
        model.importance_samples(jax.random.key(1), Batch(jnp.zeros((B, 16)), jnp.zeros((B, 0))), 2)


@pytest.mark.parametrize(
    "model",
    [
        vimco.generative_sbn(jax.random.key(0), (8, 8), MEAN, symmetric=True),
        vimco.generative_sbn(jax.random.key(0), (8, 8), MEAN, slice_size=2),
        vimco.structured_sbn(jax.random.key(0), (8, 8), MEAN, MEAN),
        vimco.structured_sbn(jax.random.key(0), (8, 8), MEAN, MEAN, proposal="prior"),
    ],
    ids=["symmetric", "slices", "structured", "prior"],
)
def test_models_that_the_kernel_does_not_know_are_refused(model):
    with pytest.raises(ValueError, match="for the generative model"):
        looked_up(model)
