"""OVIS with auxiliary samples and OVIS~: means, variances, limits, bad input."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import PROPOSAL_OF_TABLE, SBN_KINDS, sbn_toy, table_toy
from hypothesis import given
from hypothesis import strategies as st
from test_signals import hostile, hostile_log_weights

from vimco import RWS, VIMCO, ImportanceSamples, UsageError, left_out
from vimco.estimators import OVIS, AsymptoticOVIS
from vimco.signals import asymptotic_ovis_signal, ovis_signal

LOG_JOINT = [-6.0, -5.2, -7.1, -4.0, -6.5, -5.0, -8.0, -4.6]
LOGITS = [-0.7, 0.1, -1.5, 1.2, -1.0, 0.4, -2.1, 0.9]


def direct_signal(log_weights: np.ndarray, auxiliary: np.ndarray, j: int, is_prior: bool) -> np.ndarray:
    """Return the signal by definition: each auxiliary sample in turn replaces sample j."""
    terms = []
    for replacement in auxiliary:
        swapped = log_weights.copy()
        swapped[j] = replacement
        total = np.logaddexp.reduce(swapped, axis=0)
        terms.append(total - np.log(len(swapped)) - (0 if is_prior else np.exp(replacement - total)))
    bound = np.logaddexp.reduce(log_weights, axis=0) - np.log(len(log_weights))
    return bound - np.mean(terms, axis=0)


@pytest.mark.parametrize("is_prior", [False, True])
@pytest.mark.parametrize(("K", "S"), [(2, 1), (3, 4)])
def test_signal_is_the_definition(K, S, is_prior):
    rng = np.random.default_rng(K)
    log_weights, auxiliary = rng.normal(-80, 4, size=(K, 2, 3)), rng.normal(-80, 4, size=(S, 2, 3))
    actual = ovis_signal(log_weights, auxiliary, proposal_is_prior=is_prior)
    expected = np.stack([direct_signal(log_weights, auxiliary, j, is_prior) for j in range(K)])
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


def test_largest_array_has_a_row_for_each_pair_of_samples():
    """K × S, never S × K × K."""
    shapes = jax.ShapeDtypeStruct((40, 2), jnp.float32), jax.ShapeDtypeStruct((30, 2), jnp.float32)
    equations = jax.make_jaxpr(ovis_signal)(*shapes).jaxpr.eqns
    assert max(v.aval.size for equation in equations for v in equation.outvars) == 40 * 30 * 2


@pytest.mark.usefixtures("float64")
class TestExact:
    @pytest.mark.parametrize("kind", SBN_KINDS)
    @pytest.mark.parametrize(("K", "S"), [(2, 1), (2, 2), (3, 1)])
    def test_unbiased_for_every_number_of_auxiliary_samples(self, kind, K, S):
        toy = sbn_toy(kind)
        np.testing.assert_allclose(toy.expected_gradient(OVIS(S), K), toy.exact_gradient(K), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("K", [2, 3])
    def test_impossible_samples_leave_it_unbiased(self, K):
        toy = table_toy([-1.2, -np.inf, -0.3, -np.inf, -2.0, -0.8, -np.inf, -3.1], LOGITS)
        np.testing.assert_allclose(toy.expected_gradient(OVIS(1), K), toy.exact_gradient(K), rtol=0, atol=1e-12)

    def test_variance_falls_with_auxiliary_samples(self):
        """K = 2, where VIMCO's own baselines are poor; exact, for the proposal."""
        toy = table_toy(LOG_JOINT, LOGITS)
        estimators = {"S=1": OVIS(1), "S=2": OVIS(2), "S=3": OVIS(3), "vimco": VIMCO(), "left-out": VIMCO(left_out)}
        variances = {name: toy.variance(e, 2, PROPOSAL_OF_TABLE) for name, e in estimators.items()}
        assert variances["S=3"] < variances["S=2"] < variances["S=1"]
        assert variances["S=1"] < variances["left-out"] < variances["vimco"]

    def test_prior_baseline_has_less_variance_with_the_prior(self):
        toy = sbn_toy("structured-prior")
        as_learned = OfLearnedProposal(OVIS(2))
        np.testing.assert_allclose(toy.expected_gradient(as_learned, 2), toy.exact_gradient(2), rtol=0, atol=1e-12)
        assert toy.variance(OVIS(2), 2) < 0.7 * toy.variance(as_learned, 2)

    def test_gamma_zero_is_leaving_out(self):
        toy = sbn_toy("generative")
        np.testing.assert_array_equal(toy.gradients(AsymptoticOVIS(0.0), 3), toy.gradients(VIMCO(left_out), 3))
        np.testing.assert_allclose(toy.expected_gradient(AsymptoticOVIS(), 3), toy.exact_gradient(3), atol=1e-12)

    def test_gamma_one_is_not_the_gradient_of_the_bound(self):
        """The model's part is exact; the proposal's is longer than ∇L^K, in the direction of the wake update."""
        toy = sbn_toy("generative")
        exact, mean, wake = (
            toy.exact_gradient(3),
            *(toy.expected_gradient(e, 3) for e in (AsymptoticOVIS(1.0), RWS())),
        )
        np.testing.assert_allclose(toy.of_model(mean), toy.of_model(exact), rtol=0, atol=1e-12)
        g, m, w = map(toy.of_proposal, (exact, mean, wake))
        assert np.linalg.norm(m - g) > 0.5 * np.linalg.norm(g)
        assert m @ w / np.linalg.norm(m) / np.linalg.norm(w) > 0.9


class OfLearnedProposal(eqx.Module):
    """An estimator that is not told that the prior is the proposal."""

    estimator: OVIS

    @property
    def needs(self):
        return self.estimator.needs

    def __call__(self, samples, batch=None):
        return self.estimator(dataclasses.replace(samples, proposal_is_prior=False))


def test_gamma_one_tends_to_the_centred_wake_update():
    """−log(1 − w̃) + log(1 − 1/K) → w̃ − 1/K: the difference falls as 1/K² while the update falls as 1/K."""
    errors = []
    for K in (10, 100, 1000):
        log_weights = np.random.default_rng(0).normal(size=(1000, 1))[:K]
        weights = np.exp(log_weights) / np.exp(log_weights).sum()
        coefficient = asymptotic_ovis_signal(log_weights, 1.0) - weights
        errors.append(np.linalg.norm(coefficient - (weights - 1 / K)) / np.linalg.norm(weights - 1 / K))
    assert errors[0] > 5 * errors[1] > 25 * errors[2]


def test_refusals():
    values = jnp.zeros((2, 3))
    samples = ImportanceSamples(values, values)
    with pytest.raises(UsageError, match=r"S = 0"):
        OVIS(0)
    with pytest.raises(UsageError, match="S >= 1"):
        ovis_signal(np.zeros((2, 3)), np.zeros((0, 3)))
    with pytest.raises(UsageError, match="K >= 2; got K = 1"):
        ovis_signal(np.zeros((1, 3)), np.zeros((2, 3)))
    with pytest.raises(UsageError, match="auxiliary_log_weights"):
        eqx.filter_eval_shape(OVIS(), samples)
    for gamma in (-0.1, 1.5, float("nan")):
        with pytest.raises(UsageError, match=r"between 0 .* and 1 .*; got"):
            AsymptoticOVIS(gamma)
    with pytest.raises(UsageError, match="K >= 2; got K = 1"):
        asymptotic_ovis_signal(np.zeros((1, 3)), 0.5)
    prior = ImportanceSamples(values, values, proposal_is_prior=True)
    with pytest.raises(UsageError, match="arithmetic mean"):
        eqx.filter_eval_shape(AsymptoticOVIS(0.5), prior)
    with pytest.warns(UserWarning, match="arithmetic mean"):
        eqx.filter_eval_shape(AsymptoticOVIS(), prior)


@jax.jit
def signals_of(log_weights, auxiliary):
    return {
        "ovis": ovis_signal(log_weights, auxiliary),
        "prior": ovis_signal(log_weights, auxiliary, proposal_is_prior=True),
        "asymptotic": asymptotic_ovis_signal(log_weights, 0.7),
        "one": asymptotic_ovis_signal(log_weights, 1.0),
    }


@given(hostile_log_weights, st.lists(hostile, min_size=6, max_size=6).map(lambda v: np.array(v).reshape(3, 2)))
def test_hostile_weights_make_no_nan(log_weights, auxiliary):
    """Values from −inf through ±1e30, in samples and auxiliary samples; nothing is learned from sets of zeros."""
    if len(log_weights) < 2:
        return
    compiled = signals_of(jnp.asarray(log_weights, jnp.float32), jnp.asarray(auxiliary, jnp.float32))
    plain = signals_of.__wrapped__(log_weights, auxiliary)
    all_zero = np.all(log_weights == -np.inf, axis=0)
    for answer in (compiled, plain):
        for name, value in answer.items():
            assert np.all(np.isfinite(value)), name
            assert np.all(np.asarray(value)[:, all_zero] == 0), name


def test_kinds_of_array():
    log_weights = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    for name, value in signals_of(jnp.asarray(log_weights), jnp.asarray(log_weights[:2])).items():
        plain = signals_of.__wrapped__(log_weights, log_weights[:2])[name]
        assert plain.dtype == value.dtype == np.float32
        np.testing.assert_allclose(value, plain, atol=1e-5)
