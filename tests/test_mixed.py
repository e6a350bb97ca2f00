"""Mixed latents, exactly: one Bernoulli and one Gaussian, whose proposal depends on the Bernoulli.

Q(b) = Bernoulli(σ(a)), Q(z | b) = N(m_b, s_b²) with z = m_b + s_b ε; P(b, z, x) as in `log_joint`. The reference never
reparameterises: it sums over b and integrates over z on a fixed grid, with the density Q(z | b) in the integrand, and
differentiates that. The estimator's expectation is taken over b by enumeration and over ε on a grid of its own. The
trapezoidal rule is spectrally accurate for smooth integrands that have died out at both ends.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from vimco import NVIL, RWS, VIMCO, ImportanceSamples, LearnedVIMCO, Naive, UsageError, left_out
from vimco.estimators import RunningMoments

pytestmark = pytest.mark.usefixtures("float64")

X = 0.8


def parameters():
    proposal = {"logit": jnp.array(0.4), "mean": jnp.array([-0.5, 0.9]), "log_scale": jnp.array([-0.3, -0.6])}
    model = {"logit": jnp.array(-0.2), "shift": jnp.array([-1.0, 1.2]), "slope": jnp.array(0.7)}
    return {"proposal": proposal, "model": model}


def log_bernoulli(b, logit):
    return jax.nn.log_sigmoid(jnp.where(b == 1, logit, -logit))


def log_joint(p, b, z):
    return log_bernoulli(b, p["logit"]) + norm.logpdf(z) + norm.logpdf(X, p["shift"][b] + p["slope"] * z, 0.8)


def log_proposal_of_z(p, b, z):
    return norm.logpdf(z, p["mean"][b], jnp.exp(p["log_scale"][b]))


def sets_of(b_values, z_values, K):
    """Return all sets of K pairs (b, z): indices into two lists, each (K, number of sets)."""
    pairs = np.array(list(itertools.product(range(len(b_values)), range(len(z_values)))))
    sets = np.indices((len(pairs),) * K).reshape(K, -1)
    return pairs[sets, 0], pairs[sets, 1]


def exact_bound(p, K):
    """Return L^K, over b and z."""
    grid = np.linspace(-7.0, 7.0, 71)
    b, number = sets_of((0, 1), grid, K)
    z = grid[number]
    log_q = log_bernoulli(b, p["proposal"]["logit"]) + log_proposal_of_z(p["proposal"], b, z)
    bound = jax.nn.logsumexp(log_joint(p["model"], b, z) - log_q, axis=0) - jnp.log(K)
    return jnp.sum(jnp.exp(jnp.sum(log_q, axis=0)) * (grid[1] - grid[0]) ** K * bound)


def expected_surrogate(p, estimator, K):
    """Return E[surrogate] over b and ε, with probabilities held constant: its gradient is the expected estimate."""
    noise = np.linspace(-8.0, 8.0, 61)
    weights = np.exp(-(noise**2) / 2) / np.sum(np.exp(-(noise**2) / 2))
    b, number = sets_of((0, 1), noise, K)
    scale = jnp.exp(p["proposal"]["log_scale"][b])
    z = p["proposal"]["mean"][b] + scale * noise[number]
    log_score = log_bernoulli(b, p["proposal"]["logit"])
    samples = ImportanceSamples(
        log_joint(p["model"], b, z), log_score + log_proposal_of_z(p["proposal"], b, z), log_score
    )
    probability = jnp.prod(jnp.exp(log_score) * weights[number], axis=0)
    return jax.lax.stop_gradient(probability) @ estimator(samples).surrogate


ESTIMATORS = {
    "naive": Naive(),
    "vimco": VIMCO(),
    "leave-one-out": VIMCO(left_out),
    "nvil": NVIL(scale_sees_batch=False),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_one_surrogate_gives_both_gradients(name):
    """Score function for b, reparameterisation for z, at K = 2."""
    exact = jax.jit(jax.grad(exact_bound), static_argnums=1)(parameters(), 2)
    expected = jax.jit(jax.grad(lambda p: expected_surrogate(p, ESTIMATORS[name], 2)))(parameters())
    for a, e in zip(jax.tree.leaves(expected), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-11)
        assert np.all(np.abs(e) > 1e-4)


def test_normaliser_of_nvil_scales_the_whole_gradient():
    """Reparameterised latents share parameters with P: only the whole surrogate may be divided by s = 9."""
    moments = eqx.tree_at(lambda m: (m.mean, m.variance), RunningMoments(), (jnp.array(-1.2), jnp.array(81.0)))
    exact = jax.jit(jax.grad(exact_bound), static_argnums=1)(parameters(), 2)
    nvil = NVIL(None, moments, scale_sees_batch=False)
    expected = jax.jit(jax.grad(lambda p: expected_surrogate(p, nvil, 2)))(parameters())
    for a, e in zip(jax.tree.leaves(expected), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(9 * a, e, rtol=0, atol=1e-10)


def test_learned_baseline_at_one_sample():
    exact = jax.jit(jax.grad(exact_bound), static_argnums=1)(parameters(), 1)
    expected = jax.jit(jax.grad(lambda p: expected_surrogate(p, LearnedVIMCO(), 1)))(parameters())
    for a, e in zip(jax.tree.leaves(expected), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-11)


def test_without_log_score_the_gaussian_would_be_counted_twice():
    """The reason for the field: with log Q of all latents as the score, the gradient of the scale is wrong."""

    def all_latents_as_score(samples):
        return VIMCO()(ImportanceSamples(samples.log_joint, samples.log_proposal))

    exact = jax.jit(jax.grad(exact_bound), static_argnums=1)(parameters(), 2)["proposal"]["log_scale"]
    wrong = jax.jit(jax.grad(lambda p: expected_surrogate(p, all_latents_as_score, 2)))(parameters())
    assert np.all(np.abs(wrong["proposal"]["log_scale"] - exact) > 1e-2)


def test_rws_refuses():
    with pytest.raises(UsageError, match="use VIMCO for mixed latents"):
        expected_surrogate(parameters(), RWS(), 2)
