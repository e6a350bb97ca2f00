"""Objectives other than L^K: RLOO and VarGrad on the ELBO, the thermodynamic objective, variants of RWS."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import PROPOSAL_OF_TABLE, SBN_KINDS, gradient_of_surrogates, sbn_toy, table_toy
from hypothesis import given
from test_signals import hostile_log_weights

from vimco import RWS, ImportanceSamples, UsageError
from vimco.estimators import RLOO, TVO, MomentTVO
from vimco.signals import (
    check_partition,
    log_spaced_partition,
    moment_partition,
    rloo_signal,
    thermodynamic_bound,
    thermodynamic_coefficients,
    wake_weights,
)

LOG_JOINT = [-6.0, -5.2, -7.1, -4.0, -6.5, -5.0, -8.0, -4.6]
LOGITS = [-0.7, 0.1, -1.5, 1.2, -1.0, 0.4, -2.1, 0.9]
WITH_ZEROS = [-1.2, -np.inf, -0.3, -np.inf, -2.0, -0.8, -np.inf, -3.1]


@pytest.mark.usefixtures("float64")
class TestRLOO:
    @pytest.mark.parametrize("kind", SBN_KINDS)
    @pytest.mark.parametrize("K", [2, 3])
    def test_unbiased_for_the_elbo(self, kind, K):
        """The ELBO is L^1, whatever K."""
        toy = sbn_toy(kind)
        expected = toy.expected_gradient(RLOO(), K)
        np.testing.assert_allclose(expected, toy.exact_gradient(K, 1.0), rtol=0, atol=1e-12)
        np.testing.assert_allclose(expected, toy.exact_gradient(1), rtol=0, atol=1e-12)

    def test_vargrad_is_the_same_vector(self):
        """−∇ ½ Var_k log f_k for the proposal, sample set by sample set."""
        samples = sbn_toy("generative").samples(3)
        of_proposal = gradient_of_surrogates(samples, RLOO(), None).log_proposal

        def half_variance(log_proposal):
            return -0.5 * jnp.sum(jnp.var(samples.log_joint - log_proposal, axis=0, ddof=1))

        np.testing.assert_allclose(of_proposal, jax.jit(jax.grad(half_variance))(samples.log_proposal), atol=1e-12)

    def test_reports_bound_and_objective(self):
        samples = sbn_toy("generative").samples(2)
        estimate = eqx.filter_jit(RLOO())(samples)
        np.testing.assert_allclose(estimate.objective, np.mean(samples.log_weights, axis=0), atol=1e-12)
        assert np.all(np.asarray(estimate.bound) >= np.asarray(estimate.objective) - 1e-12)


PARTITION = (0.0, 0.1, 0.45)


def exact_tvo(log_joint, log_proposal):
    """Return Σ_i (β_{i+1} − β_i) E_{π_β} log f over all configurations."""
    log_f = log_joint - log_proposal
    total = 0.0
    for beta, after in zip(PARTITION, (*PARTITION[1:], 1.0), strict=True):
        probability = jax.nn.softmax(beta * log_joint + (1 - beta) * log_proposal)
        total = total + (after - beta) * probability @ log_f
    return total


@pytest.mark.usefixtures("float64")
class TestTVO:
    @pytest.mark.parametrize("centred", [True, False])
    def test_gradient_with_exact_expectations(self, centred):
        """N samples that hold each configuration as often as Q says are exact expectations under every π_β.

        What is left is the factor N / (N − 1) of the covariances, which both sides have.
        """
        counts = np.array([3, 1, 2, 6, 1, 4, 1, 2])
        N = counts.sum()
        numbers = np.repeat(np.arange(8), counts)
        log_joint, log_proposal = np.array(LOG_JOINT), np.log(counts / N)
        of_joint, of_proposal = thermodynamic_coefficients(
            (log_joint - log_proposal)[numbers], PARTITION, centred=centred
        )
        # ∇ log Q along the simplex, as a softmax's parameters move it; log P is free.
        scores = np.eye(8) - counts / N
        actual_joint = np.bincount(numbers, of_joint, minlength=8)
        actual_proposal = of_proposal @ scores[numbers]

        def plain(log_joint, logits):
            return exact_tvo(log_joint, jax.nn.log_softmax(logits))

        def means_alone(log_joint, logits):  # ∇ of log f under constant probabilities
            log_f, total = log_joint - jax.nn.log_softmax(logits), 0.0
            for beta, after in zip(PARTITION, (*PARTITION[1:], 1.0), strict=True):
                weights = jax.nn.softmax(beta * log_joint + (1 - beta) * jax.nn.log_softmax(logits))
                total = total + (after - beta) * jax.lax.stop_gradient(weights) @ log_f
            return total

        both = jax.jit(jax.grad(plain, (0, 1)))(jnp.asarray(log_joint), jnp.asarray(log_proposal))
        means = jax.jit(jax.grad(means_alone, (0, 1)))(jnp.asarray(log_joint), jnp.asarray(log_proposal))
        for actual, b, m in zip((actual_joint, actual_proposal), both, means, strict=True):
            np.testing.assert_allclose(actual, m + N / (N - 1) * (b - m), rtol=0, atol=1e-12)
        bound = thermodynamic_bound((log_joint - log_proposal)[numbers], PARTITION)
        assert float(bound) == pytest.approx(float(plain(log_joint, log_proposal)), abs=1e-12)
        assert bound < np.logaddexp.reduce(log_joint)

    def test_centring_changes_no_mean_and_lowers_the_variance(self):
        toy = table_toy(LOG_JOINT, LOGITS)
        as_prior = dataclasses.replace(toy.samples(3), proposal_is_prior=True)
        centred, plain = (
            np.asarray(gradient_of_surrogates(s, TVO(PARTITION), None).log_proposal) for s in (toy.samples(3), as_prior)
        )
        scores = toy.gradient_of_log_proposal[toy.sets(3)]
        gradients = [np.einsum("ks,ksp->sp", c, scores) for c in (centred, plain)]
        p = toy.probabilities(3)
        np.testing.assert_allclose(p @ gradients[0], p @ gradients[1], rtol=0, atol=1e-12)
        variances = [p @ np.sum((g - p @ g) ** 2, axis=1) for g in gradients]
        assert variances[0] < 0.5 * variances[1]

    @pytest.mark.parametrize("kind", SBN_KINDS)
    def test_one_point_is_rloo(self, kind):
        toy = sbn_toy(kind)
        samples = dataclasses.replace(toy.samples(3), proposal_is_prior=kind == "structured-prior")
        one, rloo = (gradient_of_surrogates(samples, e, None) for e in (TVO((0.0,)), RLOO()))
        np.testing.assert_allclose(one.log_joint, rloo.log_joint, rtol=0, atol=1e-12)
        np.testing.assert_allclose(one.log_proposal, rloo.log_proposal, rtol=0, atol=1e-12)

    def test_bias_falls_with_samples(self):
        toy = table_toy(LOG_JOINT, LOGITS)
        tables = jnp.asarray(toy.log_joint), jnp.asarray(toy.log_proposal)
        of_joint, of_proposal = jax.jit(jax.grad(exact_tvo, (0, 1)))(*tables)
        exact = of_joint @ toy.gradient_of_log_joint + of_proposal @ toy.gradient_of_log_proposal
        biases = [np.linalg.norm(toy.expected_gradient(TVO(PARTITION), K) - exact) for K in (2, 3, 4)]
        assert biases[0] > 1.2 * biases[1] > 1.3 * biases[2]

    def test_moments_divide_the_rise_evenly(self):
        log_weights = np.random.default_rng(0).normal(-80, 3, size=(50, 4))
        points = moment_partition(log_weights, 5)

        def mean(beta):
            weights = np.exp(beta * (log_weights + 80))
            return np.mean(np.sum(weights / weights.sum(axis=0) * log_weights, axis=0))

        expected = mean(0) + np.arange(5) / 5 * (mean(1) - mean(0))
        np.testing.assert_allclose([mean(beta) for beta in points], expected, atol=1e-5)
        check_partition(tuple(map(float, points)))

    @pytest.mark.parametrize("spread", [0.0, 1e-4, 1e-2, 1.0])
    def test_moments_in_float32_far_from_one(self, spread):
        """Nearly equal weights of e^−90: the rise is below the last digit of log f, and almost even in β."""
        noise = np.random.default_rng(1).normal(size=(5, 20))
        log_weights = np.float32(-90) + (spread * noise).astype(np.float32)
        points = np.asarray(moment_partition(log_weights, 5))
        assert points[0] == 0
        assert (np.diff(points) >= 0).all()
        if spread == 1e-2:
            np.testing.assert_allclose(points, np.arange(5) / 5, atol=0.02)

    def test_partition_follows_the_weights_now_and_then(self):
        """It is renewed with the first estimate and every third, and constant in between. It is not a parameter."""
        samples = [sbn_toy("generative").samples(2), table_toy(LOG_JOINT, LOGITS).samples(2)]
        estimator = MomentTVO(num_points=3, every=3)
        seen = []
        for number in (0, 1, 1, 1, 0):
            estimate = eqx.filter_jit(estimator)(samples[number])
            estimator = eqx.filter_jit(lambda e, x: e.updated(x))(estimator, estimate)
            seen.append(np.asarray(estimator.partition.points))
        first, other = (np.asarray(moment_partition(np.asarray(s.log_weights), 3)) for s in samples)
        for points, expected in zip(seen, (first, first, first, other, other), strict=True):
            np.testing.assert_allclose(points, expected, atol=1e-6)
        fixed = TVO(tuple(map(float, other)))
        np.testing.assert_allclose(
            gradient_of_surrogates(samples[0], estimator, None).log_joint,
            gradient_of_surrogates(samples[0], fixed, None).log_joint,
            atol=1e-12,
        )


def test_log_spaced_partition():
    np.testing.assert_allclose(log_spaced_partition(4, 0.001), (0, 0.001, 0.0316227766 / np.sqrt(10), 0.1), rtol=1e-8)
    assert log_spaced_partition(1, 0.5) == (0.0,)


@pytest.mark.usefixtures("float64")
class TestRWS:
    @pytest.mark.parametrize("kind", ["generative", "structured-learned"])
    @pytest.mark.parametrize("K", [2, 3])
    def test_centring_changes_no_mean(self, kind, K):
        toy = sbn_toy(kind)
        literal, centred = RWS(), RWS(centred=True)
        np.testing.assert_allclose(
            toy.expected_gradient(centred, K), toy.expected_gradient(literal, K), rtol=0, atol=1e-12
        )

    @pytest.mark.parametrize("K", [2, 3])
    def test_nor_where_samples_are_impossible(self, K):
        toy = table_toy(WITH_ZEROS, LOGITS)
        centred, literal = (toy.expected_gradient(RWS(centred=c), K) for c in (True, False))
        np.testing.assert_allclose(centred, literal, rtol=0, atol=1e-12)

    def test_centring_lowers_the_variance(self):
        toy = table_toy(LOG_JOINT, LOGITS)
        for K in (2, 3, 4):
            literal, centred = (toy.variance(RWS(centred=c), K, PROPOSAL_OF_TABLE) for c in (False, True))
            assert 3 * centred < literal

    def test_mixture_of_wake_and_sleep(self):
        """λ wake + (1 − λ) sleep for the proposal, and the model's gradient once."""
        samples = dataclasses.replace(
            sbn_toy("generative").samples(2), log_proposal_of_dreams=jnp.linspace(-3.0, -1.0, 64)
        )
        wake, sleep, mixed = (
            gradient_of_surrogates(samples, e, None)
            for e in (RWS(), RWS(wake=0.0, sleep=1.0), RWS(wake=0.3, sleep=0.7))
        )
        np.testing.assert_allclose(mixed.log_joint, wake.log_joint, atol=1e-15)
        np.testing.assert_allclose(mixed.log_proposal, 0.3 * wake.log_proposal, atol=1e-15)
        np.testing.assert_allclose(mixed.log_proposal_of_dreams, 0.7 * sleep.log_proposal_of_dreams, atol=1e-15)


def test_refusals():
    values = jnp.zeros((1, 3))
    one = ImportanceSamples(values, values)
    for estimator in (RLOO(), TVO()):
        with pytest.raises(UsageError, match="K >= 2; got K = 1"):
            eqx.filter_eval_shape(estimator, one)
    for partition in ((), (0.1, 0.5), (0.0, 0.5, 0.2), (0.0, 0.0), (0.0, 1.0), (0.0, float("nan"))):
        with pytest.raises(UsageError, match=r"partition of the thermodynamic objective"):
            TVO(partition)
    with pytest.raises(UsageError, match=r"one or more points"):
        log_spaced_partition(0, 0.1)
    with pytest.raises(UsageError, match=r"between 0 and 1; got 3 and 1.5"):
        log_spaced_partition(3, 1.5)
    with pytest.raises(UsageError, match=r"one or more points; got 0"):
        moment_partition(np.zeros((2, 1)), 0)
    with pytest.raises(UsageError, match=r"every 1 or more updates; got 0"):
        MomentTVO(every=0)
    with pytest.raises(UsageError, match="use VIMCO for mixed latents"):
        eqx.filter_eval_shape(TVO(), ImportanceSamples(jnp.zeros((2, 1)), jnp.zeros((2, 1)), jnp.zeros((2, 1))))
    with pytest.raises(UsageError, match="must not be negative or infinite"):
        RWS(wake=-0.5, sleep=1.0)


ESTIMATORS = {"rloo": RLOO(), "tvo": TVO((0.0, 0.05, 0.5)), "rws": RWS(centred=True)}


@eqx.filter_jit
def answers(samples):
    estimates = {name: e(samples) for name, e in ESTIMATORS.items()}
    gradients = {name: jax.grad(lambda s, e=e: jnp.sum(e(s).surrogate))(samples) for name, e in ESTIMATORS.items()}
    return estimates, gradients, moment_partition(samples.log_joint, 3)


@given(hostile_log_weights)
def test_hostile_weights_make_no_nan(log_weights):
    if len(log_weights) < 2:
        return
    samples = ImportanceSamples(jnp.asarray(log_weights, jnp.float32), jnp.zeros(log_weights.shape, jnp.float32))
    estimates, gradients, points = answers(samples)
    all_zero = np.all(log_weights == -np.inf, axis=0)
    one_zero = np.any(log_weights == -np.inf, axis=0)
    for name, estimate in estimates.items():
        assert np.all(np.isfinite(estimate.learning_signal)), name
        assert estimate.objective is None or not np.any(np.isnan(estimate.objective)), name
        assert np.all(np.isfinite(gradients[name].log_joint)), name
        assert np.all(np.isfinite(gradients[name].log_proposal)), name
        assert np.all(np.asarray(gradients[name].log_proposal)[:, all_zero] == 0), name
    assert np.all(np.asarray(gradients["rloo"].log_proposal)[:, one_zero] == 0)
    assert np.all((np.asarray(points) >= 0) & (np.asarray(points) <= 1))
    for values in (rloo_signal(log_weights), wake_weights(log_weights, centred=True), moment_partition(log_weights, 3)):
        assert np.all(np.isfinite(values))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_answers_in_kind(dtype):
    log_weights = np.random.default_rng(0).normal(size=(3, 4)).astype(dtype)
    values = [rloo_signal(log_weights), wake_weights(log_weights, centred=True), moment_partition(log_weights, 3)]
    values += [thermodynamic_bound(log_weights, PARTITION), *thermodynamic_coefficients(log_weights, PARTITION)]
    assert {value.dtype for value in values} == {np.dtype(dtype)}
