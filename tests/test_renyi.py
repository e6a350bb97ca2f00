"""VIMCO with c times the arithmetic mean, and bounds of Rényi order α: means, variances, bad input."""

import math
import warnings
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import PROPOSAL_OF_TABLE, SBN_KINDS, sbn_toy, table_toy
from hypothesis import given
from hypothesis import strategies as st
from test_signals import hostile_log_weights

from vimco import (
    VIMCO,
    ImportanceSamples,
    UsageError,
    arithmetic_mean_of_others,
    geometric_mean_of_others,
    left_out,
    multi_sample_bound,
    vimco_signal,
)
from vimco.estimators import RenyiVIMCO, RenyiWarmup
from vimco.estimators.vimco import vimco_estimate
from vimco.signals import ScaledMean, jackknife_bound, powers_of_weights, renyi_bound

LOG_JOINT = [-6.0, -5.2, -7.1, -4.0, -6.5, -5.0, -8.0, -4.6]


class Scaled(eqx.Module):
    """VIMCO with f̂ = c · arithmetic mean and order α as arrays: one compilation for all values."""

    scale: jax.Array
    order: jax.Array
    needs = ()

    def __call__(self, samples, batch=None):
        return vimco_estimate(samples, ScaledMean(self.scale), self.order)


@pytest.mark.usefixtures("float64")
class TestExact:
    @pytest.mark.parametrize("kind", SBN_KINDS)
    @pytest.mark.parametrize("K", [2, 3])
    @pytest.mark.parametrize("order", [0.0, 0.4, 0.9])
    def test_unbiased_for_the_bound_of_any_order_with_any_scale(self, kind, K, order):
        toy = sbn_toy(kind)
        exact = toy.exact_gradient(K, order)
        for scale in (0.0, 0.3, 1.0, 2.5):
            expected = toy.expected_gradient(Scaled(jnp.array(scale), jnp.array(order)), K)
            np.testing.assert_allclose(expected, exact, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("kind", SBN_KINDS)
    def test_the_class_has_the_same_mean(self, kind):
        toy = sbn_toy(kind)
        exact = toy.exact_gradient(2, 0.4)
        np.testing.assert_allclose(toy.expected_gradient(RenyiVIMCO(0.4), 2), exact, rtol=0, atol=1e-12)
        assert np.linalg.norm(exact - toy.exact_gradient(2)) > 1e-2

    @pytest.mark.parametrize(("kind", "scale"), [("generative", 0.4), ("structured-prior", 1.0)])
    def test_default_scale(self, kind, scale):
        toy = sbn_toy(kind)
        actual, expected = (toy.gradients(RenyiVIMCO(0.4, c), 2) for c in (None, scale))
        np.testing.assert_array_equal(actual, expected)

    @pytest.mark.parametrize("K", [2, 3])
    def test_impossible_samples_leave_it_unbiased(self, K):
        toy = table_toy([-1.2, -np.inf, -0.3, -np.inf, -2.0, -0.8, -np.inf, -3.1], [0.2, -0.4, 1, 0.3, -0.9, 0, 0.6, 0])
        expected = toy.expected_gradient(RenyiVIMCO(0.4), K)
        np.testing.assert_allclose(expected, toy.exact_gradient(K, 0.4), rtol=0, atol=1e-12)

    def test_best_scale_of_a_learned_proposal(self):
        """Exact variances for the proposal at K = 4: c = 0 beats the means; at order α the best scale is near α."""
        toy = table_toy(LOG_JOINT, [-0.7, 0.1, -1.5, 1.2, -1.0, 0.4, -2.1, 0.9])

        def variance(scale, order=0.0):
            return toy.variance(Scaled(jnp.array(scale), jnp.array(order)), 4, PROPOSAL_OF_TABLE)

        at_zero = {scale: variance(scale) for scale in (0.0, 0.5, 1.0)}
        assert at_zero == pytest.approx({0.0: 0.0043734, 0.5: 0.0429002, 1.0: 0.1948779}, abs=1e-7)
        at_high_order = {scale: variance(scale, 0.9) for scale in (0.0, 0.9, 1.0)}
        assert at_high_order == pytest.approx({0.0: 21.2272456, 0.9: 0.0038558, 1.0: 0.2045879}, abs=1e-7)

    def test_best_scale_of_the_prior(self):
        """With the prior as proposal the arithmetic mean is best, and leaving out many times worse."""
        toy = sbn_toy("structured-prior")
        at_three = {scale: toy.variance(Scaled(jnp.array(scale), jnp.array(0.0)), 3) for scale in (0.0, 0.5, 1.0)}
        assert at_three[0.0] > 4 * at_three[1.0]
        assert at_three[0.5] > at_three[1.0]

    def test_order_near_one_is_rloo(self):
        """(l_k − l̄) / (K − 1) is the limit of both means' signals."""
        log_weights = np.random.default_rng(0).normal(-80, 3, size=(4, 5))
        expected = (log_weights - log_weights.mean(axis=0)) / 3
        powers = powers_of_weights(log_weights, 1 - 1e-7)
        for mean in (geometric_mean_of_others, arithmetic_mean_of_others):
            np.testing.assert_allclose(vimco_signal(powers, mean(powers)) / 1e-7, expected, atol=1e-5)

    def test_warm_up_goes_from_one_objective_to_the_other(self):
        """Its mean is the gradient of the bound of its order at every count, and f̂ = 0 at the end."""
        toy = sbn_toy("generative")
        at = lambda count: eqx.tree_at(lambda e: e.count, RenyiWarmup(8), jnp.array(count, jnp.int32))  # noqa: E731
        for count, order in ((0, 0.99), (4, 0.9), (8, 0.0), (100, 0.0)):
            assert float(at(count).order) == pytest.approx(order, abs=1e-12)
            expected = toy.expected_gradient(at(count), 2)
            np.testing.assert_allclose(expected, toy.exact_gradient(2, order), rtol=0, atol=1e-11)
        np.testing.assert_allclose(toy.gradients(at(8), 2), toy.gradients(VIMCO(left_out), 2), rtol=0, atol=1e-12)

    def test_jackknife_is_its_definition_and_closer_to_the_likelihood(self):
        """From the same samples; the bias of the bound falls as 1/K, that of the jackknife as 1/K²."""
        toy = table_toy(LOG_JOINT, [-0.7, 0.1, -1.5, 1.2, -1.0, 0.4, -2.1, 0.9])
        log_weights = np.asarray(toy.samples(3).log_weights)
        without = [multi_sample_bound(np.delete(log_weights, j, axis=0)) for j in range(3)]
        expected = 3 * multi_sample_bound(log_weights) - 2 * np.mean(without, axis=0)
        np.testing.assert_allclose(jackknife_bound(log_weights), expected, rtol=0, atol=1e-12)
        mean = toy.probabilities(3) @ jackknife_bound(log_weights)
        assert abs(mean - toy.log_likelihood) < 0.5 * (toy.log_likelihood - toy.expected_bound(3))

    @pytest.mark.parametrize("K", [2, 50, 20_000])
    def test_jackknife_in_single_precision(self, K):
        """Its definition is a difference of numbers of size K, of which little is left in float32."""
        log_weights = np.random.default_rng(0).normal(-90, 2, (K, 4)).astype(np.float32)
        exact = jackknife_bound(log_weights.astype(np.float64))
        np.testing.assert_allclose(jackknife_bound(log_weights), exact, rtol=0, atol=3e-5)

    def test_jackknife_where_few_weights_count(self):
        """Of two equal weights each is half of the sum; with a single positive one nothing is left without it."""
        inf = float("inf")
        log_weights = np.array([[0.0, 0, 0, -inf], [0, -200, -inf, -inf], [-200, -300, -inf, -inf]])
        bound = multi_sample_bound(log_weights)
        halves = 3 * bound[0] - 2 * np.mean([-math.log(2), -math.log(2), 0.0])
        rare = 3 * bound[1] - 2 * np.mean([-200 - math.log(2), -math.log(2), -math.log(2)])
        np.testing.assert_allclose(jackknife_bound(log_weights), [halves, rare, -inf, -inf], rtol=1e-12)


def test_scaled_means_are_the_known_ones():
    log_weights = np.random.default_rng(1).normal(-80, 3, size=(4, 5))
    np.testing.assert_allclose(ScaledMean(1.0)(log_weights), arithmetic_mean_of_others(log_weights))
    assert np.all(ScaledMean(0)(log_weights) == -np.inf)
    np.testing.assert_allclose(
        vimco_signal(log_weights, ScaledMean(0.5)(log_weights)),
        vimco_signal(log_weights, left_out(log_weights)) - np.log1p(0.5 / 3),
        atol=1e-12,
    )


def test_orders_of_the_bound():
    """Order 0 is L̂; it falls with the order, towards the mean of log f; the estimate has both."""
    log_weights = np.random.default_rng(2).normal(-80, 3, size=(4, 5))
    np.testing.assert_array_equal(renyi_bound(log_weights, 0.0), multi_sample_bound(log_weights))
    bounds = [np.asarray(renyi_bound(log_weights, order)) for order in (0.0, 0.5, 0.9, 0.999)]
    assert all(np.all(a > b) for a, b in pairwise(bounds))
    np.testing.assert_allclose(bounds[-1], np.mean(log_weights, axis=0), atol=2e-2)
    samples = ImportanceSamples(jnp.asarray(log_weights), jnp.zeros((4, 5)))
    estimate = eqx.filter_jit(RenyiVIMCO(0.5))(samples)
    np.testing.assert_allclose(estimate.objective, bounds[1], rtol=1e-6)
    np.testing.assert_allclose(estimate.bound, bounds[0], rtol=1e-6)
    assert eqx.filter_eval_shape(VIMCO(), samples).objective is None


@pytest.mark.parametrize("order", [1.0, -0.1, 2.0, float("nan")])
def test_orders_that_are_refused(order):
    for refused in (lambda: RenyiVIMCO(order), lambda: renyi_bound(np.zeros((2, 1)), order)):
        with pytest.raises(UsageError, match=r"at least 0 .* and below 1; got .* RLOO"):
            refused()


def test_powers_that_rounding_makes_meaningless_are_refused():
    """Close to order 1, by the precision of the weights: single precision needs 1 − α above 1.2e-5."""
    for single in (lambda: renyi_bound(np.zeros((2, 1), np.float32), 1 - 1e-6), lambda: RenyiWarmup(8, 1e-8)):
        with pytest.raises(UsageError, match=r"little more than rounding errors in this precision: .* RLOO"):
            single()
    log_weights = np.array([[-80.0], [-79], [-81]])
    single = renyi_bound(log_weights.astype(np.float32), 1 - 2e-5)
    np.testing.assert_allclose(single, renyi_bound(log_weights, 1 - 2e-5), rtol=0, atol=2e-2)
    np.testing.assert_allclose(renyi_bound(log_weights, 1 - 1e-7), np.mean(log_weights, axis=0), atol=1e-6)


def test_other_bad_input():
    with pytest.raises(UsageError, match="scale c of a mean"):
        ScaledMean(-0.5)(np.zeros((2, 1)))
    with pytest.raises(UsageError, match="K >= 2; got K = 1"):
        jackknife_bound(np.zeros((1, 3)))
    with pytest.raises(UsageError, match="one or more updates; got 0"):
        RenyiWarmup(0)
    with pytest.raises(UsageError, match="1 − α above 0"):
        RenyiWarmup(10, start=0.0)


def test_leaving_out_warns_where_it_is_a_bad_choice():
    values = jnp.zeros((2, 1))
    prior = ImportanceSamples(values, values, proposal_is_prior=True)
    for mean in (left_out, ScaledMean(0.0)):
        with pytest.warns(UserWarning, match="prior as proposal .* arithmetic mean"):
            eqx.filter_eval_shape(VIMCO(mean), prior)
    with pytest.warns(UserWarning, match=r"variance of the scale 0.5"):
        eqx.filter_eval_shape(RenyiVIMCO(0.5, 0.0), ImportanceSamples(values, values))
    with pytest.warns(UserWarning, match=r"variance of the scale 1"):
        eqx.filter_eval_shape(RenyiVIMCO(0.0, 0.0), prior)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eqx.filter_eval_shape(VIMCO(left_out), ImportanceSamples(values, values))
        eqx.filter_eval_shape(VIMCO(ScaledMean(0.5)), prior)


@eqx.filter_jit
def estimate_and_gradient(samples, order):
    estimator = Scaled(order, order)
    return (
        estimator(samples),
        jackknife_bound(samples.log_joint),
        jax.grad(lambda s: jnp.sum(estimator(s).surrogate))(samples),
    )


@given(hostile_log_weights, st.sampled_from([0.0, 0.3, 0.99]))
def test_hostile_weights_make_no_nan(log_weights, order):
    if len(log_weights) < 2:
        return
    samples = ImportanceSamples(jnp.asarray(log_weights, jnp.float32), jnp.zeros(log_weights.shape, jnp.float32))
    estimate, jackknife, gradient = estimate_and_gradient(samples, jnp.float32(order))
    assert np.all(np.isfinite(estimate.learning_signal))
    assert np.all(np.isfinite(gradient.log_joint))
    assert np.all(np.isfinite(gradient.log_proposal))
    assert not np.any(np.isnan(estimate.objective))
    for values in (jackknife_bound(log_weights), jackknife):
        assert not np.any(np.isnan(values))
    all_zero = np.all(log_weights == -np.inf, axis=0)
    assert np.all(np.asarray(gradient.log_proposal)[:, all_zero] == 0)
    np.testing.assert_allclose(np.sum(np.asarray(gradient.log_joint), axis=0), np.where(all_zero, 0, 1), atol=1e-5)
