"""Gradient statistics over draws against the exact moments by enumeration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import Toy, copies, sbn_toy
from jax.flatten_util import ravel_pytree

from vimco import RWS, VIMCO, Batch, ImportanceSamples, Naive, UsageError, gradient_statistics
from vimco.parameters import partition

N = 4000


def flat(tree) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


class Opaque:
    """A model that is no tree: its parameters cannot be told from other attributes."""

    def importance_samples(self, key, batch, num_samples):
        h = jax.random.normal(key, (num_samples, len(batch.observation)))
        return ImportanceSamples(h, h)


def test_a_model_without_parameters_is_refused():
    """Its signal-to-noise ratio would be 0, as if there were no signal."""
    with pytest.raises(UsageError, match=r"Opaque has no parameters .* a tree of arrays"):
        gradient_statistics(Opaque(), VIMCO(), jax.random.key(0), Batch(jnp.zeros((3, 2))), 2)


def in_float32(toy: Toy):
    """Return the toy's model and its example as a batch of one, as users run them."""
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, (toy.model, toy.example)
    )


@pytest.mark.parametrize(("estimator", "kind"), [(VIMCO(), "generative"), (Naive(), "structured-prior")])
def test_moments_are_the_exact_ones(estimator, kind):
    """Entry by entry within five standard errors: σ/√N for means, √((μ₄ − σ⁴)/N) for variances, all by enumeration."""
    toy, K = sbn_toy(kind), 2
    with jax.enable_x64(True):
        gradients, probability = toy.gradients(estimator, K), toy.probabilities(K)
    mean = probability @ gradients
    variance, fourth = (probability @ (gradients - mean) ** power for power in (2, 4))
    model, batch = in_float32(toy)
    statistics = gradient_statistics(model, estimator, jax.random.key(0), batch, K, num_draws=N)
    assert np.all(np.abs(flat(statistics.mean) - mean) <= 5 * np.sqrt(variance / N) + 1e-5)
    assert np.all(np.abs(flat(statistics.variance) - variance) <= 5 * np.sqrt((fourth - variance**2) / N) + 1e-4)
    assert float(statistics.total_variance) == pytest.approx(variance.sum(), rel=0.15)
    exact_ratio = np.linalg.norm(mean) / np.sqrt(variance.sum())
    assert float(statistics.total_signal_to_noise) == pytest.approx(exact_ratio, rel=0.1)

    effective = 1 / np.sum(np.square(np.exp(log_weights := toy.samples(K).log_weights) / np.exp(log_weights).sum(0)), 0)
    deviation = np.sqrt(probability @ (effective - probability @ effective) ** 2)
    assert abs(float(statistics.effective_sample_size) - probability @ effective) <= 5 * deviation / np.sqrt(N)
    assert float(statistics.bound) == pytest.approx(toy.expected_bound(K), abs=0.1)


def test_examples_are_averaged():
    """Four independent copies of an example: the same mean, a quarter of the variance."""
    model, example = in_float32(sbn_toy("generative"))
    one, four = (
        gradient_statistics(model, VIMCO(), jax.random.key(1), copies(example, B), 2, num_draws=2000) for B in (1, 4)
    )
    assert float(four.total_variance) == pytest.approx(float(one.total_variance) / 4, rel=0.1)
    assert np.linalg.norm(flat(four.mean) - flat(one.mean)) < 5 * np.sqrt(float(one.total_variance) / 2000)


def test_definitions():
    """Two passes over the same draws, one by one, give the same numbers."""
    model, batch = in_float32(sbn_toy("generative"))
    key, number = jax.random.key(2), 60
    statistics = gradient_statistics(model, VIMCO(), key, batch, 2, num_draws=number)
    parameters, rest = partition(model)

    @jax.jit
    def gradient(key):
        key_of_latents, _ = jax.random.split(key)

        def surrogate(parameters):
            samples = eqx.combine(parameters, rest).importance_samples(key_of_latents, batch, 2)
            return jnp.mean(VIMCO()(samples).surrogate)

        return ravel_pytree(jax.grad(surrogate)(parameters))[0]

    gradients = np.stack([gradient(jax.random.fold_in(key, n)) for n in range(number)]).astype(np.float64)
    mean, variance = gradients.mean(axis=0), gradients.var(axis=0, ddof=1)
    np.testing.assert_allclose(flat(statistics.mean), mean, atol=1e-5)
    np.testing.assert_allclose(flat(statistics.variance), variance, rtol=1e-4, atol=1e-6)
    ratio = np.abs(mean) / np.sqrt(variance)
    np.testing.assert_allclose(flat(statistics.signal_to_noise), ratio, rtol=1e-3, atol=1e-4)
    total = np.linalg.norm(mean) / np.sqrt(variance.sum())
    assert float(statistics.total_signal_to_noise) == pytest.approx(total, rel=1e-4)

    of_proposal = statistics.of(lambda model: model.proposal)
    of_model = statistics.of(lambda model: (model.prior, model.likelihood))
    assert float(of_proposal.total_variance + of_model.total_variance) == pytest.approx(variance.sum(), rel=1e-4)
    assert float(of_proposal.total_variance) > 0
    assert jax.tree.structure(statistics.mean) == jax.tree.structure(parameters)


def test_dreams_where_the_estimator_needs_them():
    model, example = in_float32(sbn_toy("generative"))
    estimator = RWS(wake=False, sleep=True)
    statistics = gradient_statistics(model, estimator, jax.random.key(0), example, 1, num_draws=50)
    assert float(statistics.of(lambda model: model.proposal).total_variance) > 0


class Coin(eqx.Module):
    """A user's model: one fair latent that the observation does not depend on. Its gradient has no noise."""

    logit: jax.Array

    def importance_samples(self, key, batch, num_samples):
        shape = (num_samples, batch.observation.shape[0])
        h = jax.random.bernoulli(key, 0.5, shape).astype(jnp.float32)
        likelihood = jnp.sum(jax.nn.log_sigmoid(self.logit) * batch.observation, axis=-1)
        return ImportanceSamples(likelihood + jnp.log(0.5) + 0 * h, jnp.log(0.5) + 0 * h)


def test_any_model_will_do():
    _, example = in_float32(sbn_toy("generative"))
    statistics = gradient_statistics(Coin(jnp.array(0.0)), VIMCO(), jax.random.key(0), example, 2, num_draws=5)
    assert float(statistics.mean.logit) == pytest.approx(1.0)  # two pixels on, each with 1 − σ(0)
    assert float(statistics.variance.logit) == 0
    assert float(statistics.effective_sample_size) == 2
    assert np.isposinf(float(statistics.total_signal_to_noise))


def test_a_gradient_that_is_no_number_has_no_signal_to_noise_ratio():
    _, example = in_float32(sbn_toy("generative"))
    statistics = gradient_statistics(Coin(jnp.array(jnp.nan)), VIMCO(), jax.random.key(0), example, 2, num_draws=5)
    assert np.isnan(float(statistics.total_signal_to_noise))
    assert np.isnan(float(statistics.signal_to_noise.logit))


def test_memory_does_not_grow_with_draws():
    """No value of the whole computation has an axis of draws."""
    model, example = in_float32(sbn_toy("generative"))
    number = 1009

    def shapes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (variable.aval.shape for variable in equation.outvars)
            for parameter in equation.params.values():
                inner = getattr(parameter, "jaxpr", parameter)
                if hasattr(inner, "eqns"):
                    yield from shapes(inner)

    parameters, rest = partition(model)
    jaxpr = jax.make_jaxpr(
        lambda p, key: gradient_statistics(eqx.combine(p, rest), VIMCO(), key, example, 2, num_draws=number).mean
    )(parameters, jax.random.key(0))
    found = list(shapes(jaxpr.jaxpr))
    assert len(found) > 50
    assert not any(number in shape for shape in found)


def test_one_draw_has_no_variance():
    model, example = in_float32(sbn_toy("generative"))
    with pytest.raises(UsageError, match="at least two draws; got num_draws = 1"):
        gradient_statistics(model, VIMCO(), jax.random.key(0), example, 2, num_draws=1)
