"""Importance-sampled EM from the prior (Tang & Salakhutdinov, 2013), by enumeration."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import Toy, all_configurations, binary_configurations, copies, cosine, example_of, sbn_toy
from jax.flatten_util import ravel_pytree

from vimco import NVIL, VIMCO, ImportanceSampledEM, UsageError, structured_sbn
from vimco.estimators import RunningMoments
from vimco.parameters import partition

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("K", [2, 3])
def test_likelihood_is_exact_and_the_prior_follows_its_weighted_scores(K, centred):
    """E Σ_k w̃_k ∇ log P(h^k | c), summed by hand: of the direction of ∇L^K, and shorter."""
    toy = sbn_toy("structured-prior")
    expected, exact = toy.expected_gradient(ImportanceSampledEM(centred), K), toy.exact_gradient(K)
    np.testing.assert_allclose(toy.of_likelihood(expected), toy.of_likelihood(exact), rtol=0, atol=1e-12)
    weights = np.exp((toy.log_joint - toy.log_proposal)[toy.sets(K)])
    weights /= weights.sum(axis=0)
    mean = np.einsum("s,ks,ksp->p", toy.probabilities(K), weights, toy.gradient_of_log_proposal[toy.sets(K)])
    np.testing.assert_allclose(toy.of_prior(expected), toy.of_prior(mean), rtol=0, atol=1e-12)
    assert cosine(toy.of_prior(expected), toy.of_prior(exact)) > 0.999
    ratio = np.linalg.norm(toy.of_prior(expected)) / np.linalg.norm(toy.of_prior(exact))
    assert ratio == pytest.approx({2: 0.4657, 3: 0.6367}[K], abs=5e-4)


def test_bias_for_the_likelihood_falls_as_samples():
    """∇ log P(x | c) = Σ_h P(h | x, c) ∇ log P(h | c) for the prior's parameters."""
    toy = sbn_toy("structured-prior")
    exact = toy.of_prior(np.exp(toy.log_joint - toy.log_likelihood) @ toy.gradient_of_log_proposal)
    means = [toy.of_prior(toy.expected_gradient(ImportanceSampledEM(), K)) for K in (2, 3, 4)]
    biases = [np.linalg.norm(mean - exact) / np.linalg.norm(exact) for mean in means]
    assert biases == pytest.approx([0.5546, 0.3810, 0.2897], abs=5e-4)
    assert biases[0] / biases[1] == pytest.approx(3 / 2, rel=0.1)
    assert biases[1] / biases[2] == pytest.approx(4 / 3, rel=0.1)


def test_centred_weights_lower_the_variance():
    toy = sbn_toy("structured-prior")
    for K in (2, 3):
        assert toy.variance(ImportanceSampledEM(centred=True), K) < 0.7 * toy.variance(ImportanceSampledEM(), K)


def test_what_it_refuses():
    with pytest.raises(UsageError, match="or RWS"):
        ImportanceSampledEM()(sbn_toy("structured-learned").samples(2))
    with pytest.raises(UsageError, match="mean zero: use K >= 2"):
        ImportanceSampledEM()(sbn_toy("structured-prior").samples(1))
    mixed = dataclasses.replace(sbn_toy("structured-prior").samples(2), log_score=jnp.zeros((2, 64)))
    with pytest.raises(UsageError, match="use VIMCO for mixed latents"):
        ImportanceSampledEM()(mixed)


@functools.cache
def mixed_toy(proposal: str) -> Toy:
    """Return a toy with layers of two and one binary units, each with two deterministic ones in the prior."""
    with jax.enable_x64(True):
        example = example_of("structured")
        means = jnp.array([0.3, 0.6, 0.5]), jnp.array([0.4, 0.7])
        model = structured_sbn(jax.random.key(0), (2, 1), *means, proposal=proposal, deterministic=2)
        parameters, rest = partition(model)
        flat, unravel = ravel_pytree(parameters)
        model = eqx.combine(unravel(flat + jax.random.normal(jax.random.key(1), flat.shape)), rest)
        return Toy.of(model, example, lambda m: all_configurations(m, (2, 1), example))


def test_mixed_layers_are_the_definition():
    """log P(x, h | c) by hand: children see the binary units and σ of the others, which have no log-probability."""
    toy = mixed_toy("prior")
    model, x = toy.model, np.asarray(toy.example.observation[0])

    def log_bernoulli(v, a):
        return np.sum(v * a - np.logaddexp(0, a), axis=-1)

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    expected = []
    for first, second in zip(*(h[0] for h in binary_configurations((2, 1))), strict=True):
        a = np.asarray(model.centre_context(toy.example.context))[0] @ model.prior.layers[0].weights[0]
        a = a + model.prior.layers[0].bias
        b = np.concatenate([first, sigmoid(a[2:])]) @ model.prior.layers[1].weights[0] + model.prior.layers[1].bias
        c = np.concatenate([second, sigmoid(b[1:])]) @ model.likelihood.weights[0] + model.likelihood.bias
        expected.append(log_bernoulli(first, a[:2]) + log_bernoulli(second, b[:1]) + log_bernoulli(x, c))
    np.testing.assert_allclose(toy.log_joint, expected, rtol=1e-12)


@pytest.mark.parametrize("proposal", ["prior", "learned"])
def test_mixed_layers_have_exact_gradients(proposal):
    """VIMCO is unbiased for every parameter; importance-sampled EM for those of the likelihood."""
    toy = mixed_toy(proposal)
    assert np.sum(np.exp(toy.log_proposal)) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(toy.expected_gradient(VIMCO(), 2), toy.exact_gradient(2), rtol=0, atol=1e-12)
    if proposal == "prior":
        error = toy.expected_gradient(ImportanceSampledEM(), 2) - toy.exact_gradient(2)
        np.testing.assert_allclose(toy.of_likelihood(error), 0, atol=1e-12)
        assert np.linalg.norm(toy.of_prior(error)) > 1e-2


def test_normaliser_of_nvil_scales_mixed_layers_as_one():
    """The likelihood's gradient flows into the prior's deterministic units: it cannot be scaled by itself."""
    toy = mixed_toy("prior")
    record = toy.model.weighted(tuple(map(jnp.asarray, binary_configurations((2, 1)))), copies(toy.example, 8))
    assert record.shared_parameters
    moments = eqx.tree_at(lambda m: (m.mean, m.variance), RunningMoments(), (jnp.array(-1.0), jnp.array(81.0)))
    toy = dataclasses.replace(toy, shared_parameters=record.shared_parameters)
    expected = toy.expected_gradient(NVIL(moments=moments, scale_sees_batch=False), 2)
    np.testing.assert_allclose(9 * expected, toy.exact_gradient(2), rtol=0, atol=1e-12)


def test_samples_of_mixed_layers_carry_their_deterministic_units():
    model, batch = mixed_toy("learned").model, copies(example_of("structured"), 3)
    latents, _ = model.proposal_sample(jax.random.key(0), jnp.arange(4), batch)
    assert [h.shape for h in latents] == [(4, 3, 4), (4, 3, 3)]
    assert model.observation_probabilities(latents).shape == (4, 3, 3)
    assert model.log_proposal_of_dreams(jax.random.key(0), batch).shape == (3,)
    binary = tuple(h[..., :n] for h, n in zip(latents, (2, 1), strict=True))
    assert jnp.array_equal(model.weighted(latents, batch).log_joint, model.weighted(binary, batch).log_joint)
    for others in (latents[:1], latents[::-1], (latents[0][..., :3], latents[1])):
        with pytest.raises(
            UsageError, match=r"The layers have \[2, 1\] binary units, the deepest first; got latents of"
        ):
            model.weighted(others, batch)
    with pytest.raises(UsageError, match="has deterministic ones"):
        model.layered_samples(jax.random.key(0), batch, 2)
