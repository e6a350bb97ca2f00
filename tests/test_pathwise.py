"""Reparameterised latents by quadrature: the pathwise bound, STL, DReG and RWS-DReG, with one and two layers.

Q(z₁) = N(m₁, s₁²), Q(z₂ | z₁) = N(m₂ + w z₁, s₂²), z = mean + scale · ε. P(z₂) = N(0, 1), P(z₁ | z₂) = N(c z₂, 0.9²),
P(x | z₁) = N(a z₁, 0.8²); with one layer P(z₁) = N(c, 0.9²). Expectations over ε are Gauss–Hermite sums. The reference
is the derivative of the expected bound itself.
"""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import gradient_of_surrogates
from jax.flatten_util import ravel_pytree
from jax.lax import stop_gradient
from jax.scipy.stats import norm

from vimco import ImportanceSamples, UsageError, multi_sample_bound, normalized_weights
from vimco.estimators import STL, DReG, Pathwise, RWSDReG
from vimco.samples import FROZEN_LOG_WEIGHTS
from vimco.signals import renyi_bound

X = 0.8
NODES = {(1, 1): 40, (1, 2): 30, (2, 1): 30, (2, 2): 16}


def parameters():
    q = {"m1": 0.3, "log_s1": -0.5, "w": 0.4, "m2": 0.1, "log_s2": -0.2}
    return {"q": jax.tree.map(jnp.asarray, q), "p": {"a": jnp.asarray(1.1), "c": jnp.asarray(0.6)}}


@functools.cache
def quadrature(layers, K):
    """Return noise (layers, K, N) and probabilities (N,)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES[layers, K])
    numbers = np.indices((len(nodes),) * (layers * K)).reshape(layers, K, -1)
    return nodes[numbers], np.prod((weights / weights.sum())[numbers], axis=(0, 1))


def latents(q, noise):
    z1 = q["m1"] + jnp.exp(q["log_s1"]) * noise[0]
    if len(noise) == 1:
        return (z1,)
    return z1, q["m2"] + q["w"] * z1 + jnp.exp(q["log_s2"]) * noise[1]


def log_joint(p, z):
    below = norm.logpdf(X, p["a"] * z[0], 0.8)
    if len(z) == 1:
        return below + norm.logpdf(z[0], p["c"], 0.9)
    return below + norm.logpdf(z[0], p["c"] * z[1], 0.9) + norm.logpdf(z[1])


def log_proposal(q, z, hold=lambda values: values):
    """Return log Q; `hold` is applied to the mean and the scale of every layer."""
    value = norm.logpdf(z[0], hold(q["m1"]), hold(jnp.exp(q["log_s1"])))
    if len(z) == 2:
        value = value + norm.logpdf(z[1], hold(q["m2"] + q["w"] * z[0]), hold(jnp.exp(q["log_s2"])))
    return value


def attached(tree, noise):
    z = latents(tree["q"], noise)
    return ImportanceSamples(log_joint(tree["p"], z), log_proposal(tree["q"], z), latents_attached=True)


def frozen(tree, noise, hold_parameters=True):
    """Return log f with parameters held constant, or (the mistake) the mean and scale of every layer."""
    z = latents(tree["q"], noise)
    held = stop_gradient(tree)
    frozen_proposal = log_proposal(held["q"], z) if hold_parameters else log_proposal(tree["q"], z, stop_gradient)
    return ImportanceSamples(
        log_joint(tree["p"], stop_gradient(z)),
        log_proposal(held["q"], stop_gradient(z)),
        frozen_log_weights=log_joint(held["p"], z) - frozen_proposal,
    )


def gradient(function, layers, K):
    """Return ∇ of the expectation of `function(parameters, noise)`, with constant probabilities."""
    noise, probability = quadrature(layers, K)
    value = jax.jit(jax.grad(lambda tree: probability @ function(tree, noise)))(parameters())
    return {part: np.asarray(ravel_pytree(value[part])[0]) for part in ("p", "q")}


@functools.cache
def exact(layers, K, order=0.0):
    def bound(tree, noise):
        powers = (1 - order) * attached(tree, noise).log_weights
        return (jax.nn.logsumexp(powers, axis=0) - jnp.log(K)) / (1 - order)

    return gradient(bound, layers, K)


CASES = [(1, 1), (1, 2), (2, 1), (2, 2)]
pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize(("layers", "K"), CASES)
def test_pathwise_is_the_gradient_of_the_bound(layers, K):
    actual = gradient(lambda *a: Pathwise()(attached(*a)).surrogate, layers, K)
    for part, value in exact(layers, K).items():
        np.testing.assert_allclose(actual[part], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("layers", "K"), CASES)
def test_dreg_is_unbiased_with_any_number_of_layers(layers, K):
    """The sums are exact but for the quadrature, whose error is below 1e-6 here."""
    actual = gradient(lambda *a: DReG()(frozen(*a)).surrogate, layers, K)
    for part, value in exact(layers, K).items():
        np.testing.assert_allclose(actual[part], value, rtol=0, atol=1e-6)
        assert np.linalg.norm(value) > 0.05


def test_dreg_with_mean_and_scale_held_is_biased():
    """As in public code, which is right for one layer only: the path from z₁ through the mean of z₂ is cut."""
    actual = gradient(lambda *a: DReG()(frozen(*a, hold_parameters=False)).surrogate, 2, 2)
    assert np.linalg.norm(actual["q"] - exact(2, 2)["q"]) > 1e-2
    one_layer = gradient(lambda *a: DReG()(frozen(*a, hold_parameters=False)).surrogate, 1, 2)
    np.testing.assert_allclose(one_layer["q"], exact(1, 2)["q"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("order", [0.5, 0.9])
def test_orders(order):
    for estimator, record in ((Pathwise(order), attached), (DReG(order), frozen)):
        actual = gradient(lambda *a, e=estimator, r=record: e(r(*a)).surrogate, 1, 2)
        for part, value in exact(1, 2, order).items():
            np.testing.assert_allclose(actual[part], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("layers", "bias"), [(1, 0.76), (2, 0.91)])
def test_stl_is_unbiased_at_one_sample_alone(layers, bias):
    at_one = gradient(lambda *a: STL()(frozen(*a)).surrogate, layers, 1)
    for part, value in exact(layers, 1).items():
        np.testing.assert_allclose(at_one[part], value, rtol=0, atol=1e-6)
    at_two = gradient(lambda *a: STL(biased=True)(frozen(*a)).surrogate, layers, 2)
    np.testing.assert_allclose(at_two["p"], exact(layers, 2)["p"], rtol=0, atol=1e-6)
    error = np.linalg.norm(at_two["q"] - exact(layers, 2)["q"])
    assert error / np.linalg.norm(exact(layers, 2)["q"]) == pytest.approx(bias, abs=0.005)


@pytest.mark.parametrize("layers", [1, 2])
def test_rws_dreg_has_the_mean_of_the_wake_update(layers):
    def wake(tree, noise):
        z = stop_gradient(latents(tree["q"], noise))
        log_p, log_q = log_joint(tree["p"], z), log_proposal(tree["q"], z)
        return jnp.sum(stop_gradient(normalized_weights(log_p - log_q)) * (log_p + log_q), axis=0)

    expected = gradient(wake, layers, 2)
    actual = gradient(lambda *a: RWSDReG()(frozen(*a)).surrogate, layers, 2)
    for part in ("p", "q"):
        np.testing.assert_allclose(actual[part], expected[part], rtol=0, atol=1e-6)
    assert np.linalg.norm(actual["q"] - exact(layers, 2)["q"]) > 1e-2


def test_dreg_has_the_least_variance():
    """Exact sums of squares over the noise, for the proposal: the score that is left out is pure noise."""
    noise, probability = quadrature(1, 2)
    keep = np.argsort(probability)[-200:]  # nearly all of the mass, and a small test
    noise, probability = noise[:, :, keep], probability[keep] / probability[keep].sum()

    def variance(estimator, record):
        rows = jax.jit(jax.jacrev(lambda tree: estimator(record(tree, noise)).surrogate))(parameters())
        matrix = np.stack([rows["q"][name] for name in ("m1", "log_s1")], axis=1)
        return probability @ np.sum((matrix - probability @ matrix) ** 2, axis=1)

    assert variance(DReG(), frozen) < 0.5 * variance(Pathwise(), attached)


def test_estimates_report_the_bound_and_the_objective():
    tree = parameters()
    estimate = jax.jit(lambda t: DReG(0.5)(frozen(t, quadrature(1, 2)[0])))(tree)
    log_weights = np.asarray(jax.jit(lambda t: attached(t, quadrature(1, 2)[0]).log_weights)(tree))
    np.testing.assert_allclose(estimate.bound, multi_sample_bound(log_weights), atol=1e-12)
    np.testing.assert_allclose(estimate.objective, renyi_bound(log_weights, 0.5), atol=1e-12)


def test_refusals():
    values = jnp.zeros((2, 3))
    plain = ImportanceSamples(values, values)
    with pytest.raises(UsageError, match="needs latents through which gradients flow"):
        eqx.filter_eval_shape(Pathwise(), plain)
    for estimator in (DReG(), STL(biased=True), RWSDReG()):
        with pytest.raises(UsageError, match="frozen_log_weights"):
            eqx.filter_eval_shape(estimator, plain)
        assert estimator.needs == (FROZEN_LOG_WEIGHTS,)
    with pytest.raises(UsageError, match=r"unbiased at K = 1 alone, and K is 2: use DReG, or say biased=True"):
        eqx.filter_eval_shape(STL(), plain)
    with pytest.raises(UsageError, match="K >= 2"):
        eqx.filter_eval_shape(RWSDReG(), ImportanceSamples(values[:1], values[:1]))
    for shared in ({"proposal_is_prior": True}, {"shared_parameters": True}):
        with pytest.raises(UsageError, match="they may not share parameters, as with the prior as proposal: use DReG"):
            eqx.filter_eval_shape(RWSDReG(), ImportanceSamples(values, values, **shared))
    for estimator in (DReG, Pathwise):
        with pytest.raises(UsageError, match="below 1; got 1"):
            estimator(order=1.0)


def test_weights_of_zero():
    """Nothing is learned from sets of zeros; some zeros do not change the others; no NaN in values or gradients."""
    log_weights = jnp.array([[-jnp.inf, -1.0], [-jnp.inf, -jnp.inf]])
    zeros = jnp.zeros((2, 2))
    samples = ImportanceSamples(log_weights, zeros, frozen_log_weights=log_weights)
    for estimator in (DReG(), DReG(0.5), STL(biased=True), RWSDReG()):
        slopes = gradient_of_surrogates(samples, estimator, None)
        assert np.all(np.isfinite(slopes.log_joint))
        assert np.all(np.isfinite(slopes.frozen_log_weights))
        np.testing.assert_array_equal(slopes.log_joint, [[0, 1], [0, 0]])
    slopes = gradient_of_surrogates(dataclasses.replace(samples, latents_attached=True), Pathwise(), None)
    np.testing.assert_array_equal(slopes.log_joint, [[0, 1], [0, 0]])
