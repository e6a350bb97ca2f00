"""The example of phylogenetics: exact evidence, the gradient of the topologies, and the result of training."""

import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vimco

EXAMPLE = Path(__file__).parent.parent / "examples" / "phylogenetics.py"
# Golden values: two likelihood codes, 13 and 14 nodes for each branch, agreed to 1e-13.
LOG_EVIDENCE = [-101.89193876323588, -104.20490370935454, -103.79123380082913]
POSTERIOR = np.array([0.8008704, 0.0792601, 0.1198696])


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_exact_evidence(example):
    actual = example["exact_log_evidence"]()
    np.testing.assert_allclose(actual, LOG_EVIDENCE, rtol=0, atol=1e-10)
    total = np.logaddexp.reduce(actual) - np.log(3)
    assert total == pytest.approx(-102.76849490775054, abs=1e-10)
    np.testing.assert_allclose(np.exp(actual - total) / 3, POSTERIOR, atol=1e-7)


def test_likelihood_of_a_tree_by_summing_over_its_inner_nodes(example):
    """Every pair of states at the two inner nodes, and transition matrices of Jukes and Cantor."""
    lengths = np.array([0.1, 0.25, 0.05, 0.4, 0.15])
    matrices = [np.full((4, 4), (1 - x) / 4) + x * np.eye(4) for x in np.exp(-4 / 3 * lengths)]
    for topology, (a, b, c, d) in enumerate(example["TOPOLOGIES"]):
        tips = example["SITES"][[a, b, c, d], 7]
        expected = sum(
            0.25
            * matrices[0][i, tips[0]]
            * matrices[1][i, tips[1]]
            * matrices[4][i, j]
            * matrices[2][j, tips[2]]
            * matrices[3][j, tips[3]]
            for i in range(4)
            for j in range(4)
        )
        actual = example["likelihood_of_sites"](np.exp(-4 / 3 * lengths), example["IS_STATE"][topology])
        assert actual[7] == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["vimco", "annealed", "left-out"])
def test_gradient_of_the_topologies(example, name):
    """All 3³ sets of topologies with the noise of the branches fixed: Q's logits follow the exact gradient."""
    estimator = {
        "vimco": vimco.VIMCO(),
        "annealed": vimco.Annealed(vimco.VIMCO(), 10, start=0.3),
        "left-out": vimco.VIMCO(vimco.left_out),
    }[name]
    power = 0.3 if name == "annealed" else 1.0
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(3, 27, 5)))
    noise = jnp.broadcast_to(noise[:, :1], noise.shape)  # the same for every set
    sets = np.indices((3,) * 3).reshape(3, -1)
    p = {
        "logits": jnp.array([0.3, -0.4, 0.1]),
        **{k: v.astype(float) for k, v in example["untrained"]().items() if k != "logits"},
    }

    def exact(logits):
        samples = example["importance_samples"](p | {"logits": logits}, sets, noise)
        log_f = samples.log_weights - (1 - power) * samples.log_likelihood
        return jnp.exp(jnp.sum(samples.log_score, axis=0)) @ (jax.nn.logsumexp(log_f, axis=0) - jnp.log(3))

    def expected(logits):
        samples = example["importance_samples"](p | {"logits": logits}, sets, noise)
        probability = jax.lax.stop_gradient(jnp.exp(jnp.sum(samples.log_score, axis=0)))
        return probability @ estimator(samples).surrogate

    np.testing.assert_allclose(*(jax.jit(jax.grad(f))(p["logits"]) for f in (expected, exact)), rtol=0, atol=1e-10)


def test_training_finds_the_posterior(example):
    """Q(τ) within .03 of the posterior; the bound with K = 1000 within four standard errors below the evidence."""
    p, bound, objective = example["trained"](vimco.Annealed(vimco.VIMCO(), updates=1000))
    assert float(bound) == pytest.approx(float(objective), abs=1e-5)  # annealing is over
    np.testing.assert_allclose(jax.nn.softmax(p["logits"]), POSTERIOR, atol=0.03)
    bounds = np.asarray(
        jax.jit(jax.vmap(lambda key: vimco.multi_sample_bound(example["draw"](p, key, 1000).log_weights)))(
            jax.random.split(jax.random.key(1), 30)
        )
    )
    gap = -102.76849490775054 - bounds.mean()
    assert -4 * bounds.std() / 30**0.5 < gap < 0.1
    assert bounds.mean() > float(bound)


def test_signals_of_a_plain_vector():
    """Weights that come from elsewhere, a tree outside the support among them: one call."""
    log_weights = np.array([-103.1, -101.8, -np.inf, -104.0])
    signal = vimco.vimco_signal(log_weights)
    assert signal.shape == (4,)
    assert np.all(np.isfinite(signal))
