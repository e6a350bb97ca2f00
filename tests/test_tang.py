"""Importance-sampled EM from the prior (Tang & Salakhutdinov, 2013), by enumeration."""

import numpy as np
import pytest
from enumeration import cosine, sbn_toy

from vimco import UsageError
from vimco.estimators.tang import ImportanceSampledEM

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
    assert 0.3 < ratio < 0.9


def test_bias_for_the_likelihood_falls_as_samples():
    """∇ log P(x | c) = Σ_h P(h | x, c) ∇ log P(h | c) for the prior's parameters."""
    toy = sbn_toy("structured-prior")
    exact = toy.of_prior(np.exp(toy.log_joint - toy.log_likelihood) @ toy.gradient_of_log_proposal)
    means = [toy.of_prior(toy.expected_gradient(ImportanceSampledEM(), K)) for K in (2, 3, 4)]
    biases = [np.linalg.norm(mean - exact) for mean in means]
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
