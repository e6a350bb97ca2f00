"""Estimators: the paper's Algorithm 1, NVIL and learned baselines in detail, refusals, extreme weights."""

import dataclasses
import runpy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import gradient_of_surrogates
from hypothesis import given
from test_signals import hostile_log_weights

from vimco import (
    NVIL,
    RWS,
    VIMCO,
    BaselineNetwork,
    Batch,
    ImportanceSampledEM,
    ImportanceSamples,
    LearnedVIMCO,
    Naive,
    UsageError,
    named_estimator,
    normalized_weights,
    vimco_signal,
)
from vimco import samples as samples_module
from vimco.estimators import ESTIMATORS, STL, DReG, Estimator, RunningMoments, RWSDReG
from vimco.parameters import partition
from vimco.samples import Dreams

# Without the type checks of tests, which users do not have.
UncheckedSamples = runpy.run_path(samples_module.__file__)["ImportanceSamples"]

# Three samples of four examples wherever the numbers do not matter: JAX compiles for each shape.
MEAN = jnp.array([0.2, 0.5, 0.7])  # of context and observation, side by side


def batch_of(number: int) -> Batch:
    bits = np.random.default_rng(number).integers(0, 2, size=(number, 3)).astype(jnp.result_type(float))
    return Batch(jnp.asarray(bits[:, 1:]), jnp.asarray(bits[:, :1]))


def samples_of(K: int, B: int, seed: int = 0, **fields) -> ImportanceSamples:
    rng = np.random.default_rng(seed)
    values = (rng.normal(mean, deviation, size=(K, B)) for mean, deviation in ((-90, 4), (-10, 1)))
    return ImportanceSamples(*(jnp.asarray(v.astype(jnp.result_type(float))) for v in values), **fields)


OPTIONS = {"stl": ["biased=true"], "ovis": ["auxiliary=1"]}  # to take more than one sample, and what there is


def with_everything(samples: ImportanceSamples, dreams, estimator: Estimator) -> ImportanceSamples:
    """Return the samples with all that any estimator needs; attached latents are not for all."""
    return dataclasses.replace(
        samples,
        log_proposal_of_dreams=dreams,
        auxiliary_log_weights=samples.log_weights[:1] + 0.3,
        log_likelihood=0.9 * samples.log_joint,
        frozen_log_weights=samples.log_weights,
        latents_attached=any(need.field == "latents_attached" for need in estimator.needs),
    )


@eqx.filter_jit
def estimate_of(estimator, samples, batch=None):
    """Return the estimate, compiled as a whole, which is faster than operation by operation."""
    return estimator(samples, batch)


def test_centred_coefficients_are_zero_where_every_weight_is():
    """Nothing is learned from a set of impossible samples, not even the baseline of 1/K."""
    impossible = jnp.full((3, 1), -jnp.inf)
    for is_prior, estimator in (
        (True, ImportanceSampledEM(centred=True)),
        (False, NVIL(centred_weights=True)),
        (False, RWS(centred=True)),
    ):

        def surrogate(log_proposal, is_prior=is_prior, estimator=estimator):
            samples = ImportanceSamples(impossible, log_proposal, proposal_is_prior=is_prior)
            return jnp.sum(estimator(samples).surrogate)

        np.testing.assert_array_equal(jax.grad(surrogate)(jnp.full((3, 1), -1.0)), 0.0)


def test_an_impossible_sample_does_not_poison_the_priors_control_variate():
    """It is left out: the others have the coefficients w̃ − P / (K Q), by hand."""
    log_joint, log_likelihood = jnp.array([[-1.0], [-jnp.inf], [-2.0]]), jnp.array([[-0.5], [-jnp.inf], [-0.5]])
    log_proposal = jnp.full((3, 1), -1.0)

    def surrogate(log_prior):
        samples = ImportanceSamples(log_prior + log_likelihood, log_proposal, log_likelihood=log_likelihood)
        return jnp.sum(RWS(prior_control=True)(samples).surrogate)

    log_prior = jnp.where(log_likelihood > -jnp.inf, log_joint - log_likelihood, -1.0)
    weights = np.array([1.0, 0.0, np.exp(-1.0)]) / (1 + np.exp(-1.0))
    expected = weights - np.array([np.exp(0.5), 0.0, np.exp(-0.5)]) / 3
    np.testing.assert_allclose(jax.grad(surrogate)(log_prior)[:, 0], expected, rtol=1e-5)


def trained_network() -> BaselineNetwork:
    """Return a network whose output is not the 0 it starts with."""
    network = BaselineNetwork(jax.random.key(5), MEAN, num_hidden=6)
    return eqx.tree_at(lambda n: n.output_weight, network, jnp.linspace(-2.0, 3.0, 6))


def moments_of(mean: float, variance: float, decay: float = 0.8) -> RunningMoments:
    values = (jnp.array(mean), jnp.array(variance), jnp.array(9, jnp.int32))
    return eqx.tree_at(lambda m: (m.mean, m.variance, m.count), RunningMoments(decay), values)


def gradient(estimator, samples, batch=None) -> ImportanceSamples:
    """Return the factor of each log-probability in the gradient of the surrogate."""
    return gradient_of_surrogates(samples, estimator, batch)


def algorithm_1(log_f, grad_log_q, grad_log_f, grad_log_f_of_model):
    """Return the result of Algorithm 1 of supplement A, line by line, for one observation and given samples.

    `log_f` is l[1..K], under the paper's name; the gradients have a row for each sample.
    """
    l = [float(value) for value in log_f]  # noqa: E741
    K = len(l)

    def log_sum_exp(values):
        return max(values) + np.log(sum(np.exp(value - max(values)) for value in values))

    bound = log_sum_exp(l) - np.log(K)
    s = sum(l)
    bound_without = []
    for i in range(K):
        temp = l[i]
        l[i] = (s - l[i]) / (K - 1)
        bound_without.append(log_sum_exp(l) - np.log(K))
        l[i] = temp
    w = [np.exp(value - log_sum_exp(l)) for value in l]
    grad_theta, grad_psi = 0.0, 0.0
    for i in range(K):
        grad_theta = grad_theta + (bound - bound_without[i]) * grad_log_q[i]
        grad_theta = grad_theta + w[i] * grad_log_f[i]
        grad_psi = grad_psi + w[i] * grad_log_f_of_model[i]
    return bound, [bound - without for without in bound_without], grad_theta, grad_psi


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("K", [2, 5, 20])
def test_vimco_is_algorithm_1(K):
    """θ moves log Q (and with it log f), ψ moves log P: signal, bound and both gradients."""
    rng = np.random.default_rng(K)
    theta, psi = jnp.asarray(rng.normal(size=3)), jnp.asarray(rng.normal(size=4))
    features_q, features_p = rng.normal(size=(K, 3)), 3 * rng.normal(size=(K, 4))

    def samples(theta, psi):
        return ImportanceSamples((features_p @ psi)[:, None], (-jax.nn.softplus(features_q @ theta))[:, None])

    grad_log_q = -np.asarray(jax.nn.sigmoid(features_q @ theta))[:, None] * features_q
    bound, signal, grad_theta, grad_psi = algorithm_1(
        samples(theta, psi).log_weights[:, 0], grad_log_q, -grad_log_q, features_p
    )
    estimate = jax.jit(lambda t, p: VIMCO()(samples(t, p)))(theta, psi)
    np.testing.assert_allclose(estimate.bound, [bound], rtol=0, atol=1e-12)
    np.testing.assert_allclose(estimate.learning_signal[:, 0], signal, rtol=0, atol=1e-12)
    fast = jax.jit(jax.grad(lambda t, p: VIMCO()(samples(t, p)).surrogate[0], (0, 1)))(theta, psi)
    np.testing.assert_allclose(fast[0], grad_theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(fast[1], grad_psi, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 4, 1), (4,), (1, 4), (4, 1), (5, 4), ()])
def test_log_probabilities_of_other_shapes_are_refused(shape):
    """Most of them would broadcast: with K = B = 4 an axis more would compare every example with every other."""
    with pytest.raises(UsageError, match=r"log_joint and log_proposal must agree in shape, .* got \(4, 4\) and"):
        UncheckedSamples(jnp.zeros((4, 4)), jnp.zeros(shape))
    with pytest.raises(UsageError, match="needs a sample axis"):
        UncheckedSamples(jnp.zeros(()), jnp.zeros(()))
    with pytest.raises(UsageError, match="log_score must agree"):
        UncheckedSamples(jnp.zeros((4, 4)), jnp.zeros((4, 4)), jnp.zeros(shape))
    with pytest.raises(UsageError, match="log_weights and log_proposal must agree"):
        UncheckedSamples.from_weights(jnp.zeros(shape), jnp.zeros((4, 4)))


def test_two_arrays_are_all_that_vimco_needs():
    """`VIMCO()(samples)` for a user who has log P and log Q and nothing else."""
    samples = samples_of(3, 4)
    estimate = estimate_of(VIMCO(), ImportanceSamples(samples.log_joint, samples.log_proposal))
    log_weights = np.asarray(samples.log_joint) - np.asarray(samples.log_proposal)
    signal, weights = vimco_signal(log_weights), normalized_weights(log_weights)
    assert estimate.surrogate.shape == estimate.bound.shape == estimate.effective_sample_size.shape == (4,)
    np.testing.assert_allclose(estimate.learning_signal, signal, atol=1e-5)
    slopes = gradient(VIMCO(), samples)
    np.testing.assert_allclose(slopes.log_joint, weights, atol=1e-6)
    np.testing.assert_allclose(slopes.log_proposal, signal - weights, atol=1e-5)


# They look inside log f, or at the prior as proposal, or at rewards: test_layered.py, test_straight_through.py,
# test_tang.py, test_attention.py.
LOOKING_INSIDE = {"straight-through", "tang", "ram", "bbvi", "muprop", "local-expectations"}


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in LOOKING_INSIDE])
def test_examples_are_independent(name):
    """No estimator mixes examples or averages over them: changing all columns but one does not change that one.

    NVIL's normaliser is common to the whole batch, so it is switched off.
    """
    estimator = named_estimator(name, jax.random.key(0), MEAN, OPTIONS.get(name, ()))
    if isinstance(estimator, NVIL):
        estimator = NVIL(estimator.input_baseline, variance_normalisation=False)
    batch, dreams = batch_of(4), jnp.arange(-4.0, 0.0)
    one, other = (with_everything(samples_of(3, 4, seed), dreams + seed, estimator) for seed in (0, 1))
    changed = jax.tree.map(lambda a, b: jnp.asarray(np.concatenate([a[..., :1], b[..., 1:]], axis=-1)), one, other)
    before, after = estimate_of(estimator, one, batch), estimate_of(estimator, changed, batch)
    for field in ("surrogate", "bound", "learning_signal", "effective_sample_size"):
        np.testing.assert_array_equal(getattr(before, field)[..., 0], getattr(after, field)[..., 0])
    assert np.all(np.asarray(before.surrogate)[1:] != np.asarray(after.surrogate)[1:])


def test_signal_magnitude_is_the_root_mean_square():
    """Supplement C: over samples and examples."""
    estimate = estimate_of(VIMCO(), samples_of(3, 4))
    signal = np.asarray(estimate.learning_signal)
    assert float(estimate.signal_rms) == pytest.approx(np.sqrt(np.mean(signal**2)))


class TestNVIL:
    """The coefficient of ∇ log Q(h^j) is (L̂ − b(x) − c − w̃_j) / max(1, √v), that of ∇ log P(x, h^j) is w̃_j."""

    samples, batch = samples_of(3, 4), batch_of(4)

    @pytest.mark.parametrize("network", [None, trained_network()], ids=["", "input"])
    @pytest.mark.parametrize("constant", [False, True])
    @pytest.mark.parametrize("normalised", [False, True])
    def test_three_switches(self, network, constant, normalised):
        estimator = NVIL(network, moments_of(-70.0, 9.0), constant, normalised, scale_sees_batch=False)
        estimate = estimate_of(estimator, self.samples, self.batch)
        b = 0 if network is None else np.asarray(network(self.batch))
        centred = np.asarray(estimate.bound) - b - (-70.0 if constant else 0)
        weights = normalized_weights(np.asarray(self.samples.log_joint) - np.asarray(self.samples.log_proposal))
        slopes = gradient(estimator, self.samples, self.batch)
        np.testing.assert_allclose(slopes.log_proposal, (centred - weights) / (3.0 if normalised else 1.0), rtol=2e-5)
        np.testing.assert_allclose(slopes.log_joint, weights, atol=1e-5)
        # What supplement C plots is before the normalisation.
        np.testing.assert_allclose(estimate.learning_signal, np.broadcast_to(centred, (3, 4)), rtol=1e-5)

    def test_small_signals_are_not_magnified(self):
        plain = gradient(NVIL(None, moments_of(-70.0, 0.0), variance_normalisation=False), self.samples)
        small = gradient(NVIL(None, moments_of(-70.0, 0.25), scale_sees_batch=False), self.samples)
        np.testing.assert_array_equal(small.log_proposal, plain.log_proposal)

    def test_normaliser_with_the_prior_or_shared_parameters(self):
        """(L̂ − c) / s for the prior, whose log f contains no log Q; everything by s where parameters are shared."""
        estimator = NVIL(None, moments_of(-70.0, 9.0), scale_sees_batch=False)
        weights = np.asarray(normalized_weights(self.samples.log_weights))
        centred = np.asarray(estimate_of(estimator, self.samples).bound) + 70.0
        prior = gradient(estimator, samples_of(3, 4, proposal_is_prior=True))
        np.testing.assert_allclose(prior.log_proposal + weights, np.broadcast_to(centred / 3, (3, 4)), rtol=2e-5)
        np.testing.assert_allclose(prior.log_joint, weights, atol=1e-5)
        log_score = jnp.zeros((3, 4))
        for samples in (samples_of(3, 4, shared_parameters=True), samples_of(3, 4, log_score=log_score)):
            slopes = gradient(estimator, samples)
            np.testing.assert_allclose(slopes.log_joint, weights / 3, atol=1e-5)
            scored = slopes.log_proposal + weights / 3 if samples.log_score is None else slopes.log_score
            np.testing.assert_allclose(scored, np.broadcast_to(centred / 3, (3, 4)), rtol=2e-5)

    def test_any_f_is_scaled_as_a_whole(self):
        """`from_weights` does not know whether f and Q share parameters, except with the prior's flag."""
        weights, log_q = jnp.zeros((2, 3)), jnp.zeros((2, 3))
        assert ImportanceSamples.from_weights(weights, log_q).shared_parameters
        assert not ImportanceSamples.from_weights(weights, log_q, proposal_is_prior=True).shared_parameters

    @pytest.mark.parametrize(("sees_batch", "limit"), [(True, 12.0), (False, 400.0)])
    def test_one_catastrophic_sample_takes_a_bounded_step(self, sees_batch, limit):
        """After ordinary batches of 24, a signal of −3,000 is scaled to at most B / √(0.2 (B − 1)) = 11.2."""
        estimator = NVIL(None, scale_sees_batch=sees_batch)
        for seed in range(6):
            estimator = estimator.updated(estimate_of(estimator, samples_of(1, 24, seed)))
        bad = samples_of(1, 24, 7)
        bad = eqx.tree_at(lambda s: s.log_joint, bad, bad.log_joint.at[0, 5].add(-3000.0))
        slopes = gradient(estimator, bad).log_proposal
        assert np.all(np.isfinite(slopes))
        assert np.abs(slopes).max() < limit if sees_batch else np.abs(slopes).max() > limit
        assert float(np.mean(np.abs(np.delete(slopes[0], 5)))) < 5

    def test_all_is_switched_on_at_first(self):
        estimator = named_estimator("nvil", jax.random.key(0), MEAN)
        assert isinstance(estimator, NVIL)
        assert estimator.constant_baseline
        assert estimator.variance_normalisation
        assert estimator.scale_sees_batch
        assert not estimator.centred_weights
        assert estimator.input_baseline.hidden_weight.shape == (3, 100)
        assert estimator.moments.decay == 0.8

    def test_uses_its_moments_before_it_updates_them(self):
        """A baseline that has seen the current samples adds a bias."""
        estimator = NVIL(None, moments_of(-70.0, 4.0))
        estimate = estimate_of(estimator, self.samples)
        np.testing.assert_allclose(np.asarray(estimate.learning_signal)[0], np.asarray(estimate.bound) + 70, rtol=1e-5)
        after = estimator.updated(estimate)
        bound = np.asarray(estimate.bound)
        assert float(after.moments.mean) == pytest.approx(0.8 * -70 + 0.2 * bound.mean(), rel=1e-6)
        assert float(after.moments.variance) == pytest.approx(0.8 * 4 + 0.2 * bound.var(), rel=1e-5)
        assert estimator.moments.mean == -70

    def test_one_draw_starts_the_moments(self):
        """`estimator.updated(estimator(samples))`: the first signal is then centred, not as large as the bound."""
        estimate = estimate_of(NVIL(), self.samples)
        started, bound = NVIL().updated(estimate), np.asarray(estimate.bound)
        assert float(started.moments.mean) == pytest.approx(bound.mean(), rel=1e-6)
        assert np.abs(np.mean(estimate_of(started, self.samples).learning_signal)) < 1e-3


def test_moments_survive_a_batch_that_overflows():
    before = moments_of(-70.0, 4.0)
    after = before.updated(jnp.asarray([1e30, -1e30, 0.0]))
    assert (float(after.mean), float(after.variance), int(after.count)) == (-70.0, 4.0, int(before.count))


def test_moments_are_plain_averages_that_turn_exponential():
    """The n-th batch counts 1/n until that falls below 1 − decay."""
    moments, mean, variance = RunningMoments(0.75), 0.0, 0.0
    for n in range(8):
        residual = np.random.default_rng(n).normal(n, 2, size=5).astype(np.float32)
        new = max(1 / (n + 1), 0.25)
        mean, variance = mean + new * (residual.mean() - mean), variance + new * (residual.var() - variance)
        moments = moments.updated(jnp.asarray(residual))
        assert float(moments.mean) == pytest.approx(mean, rel=1e-5)
        assert float(moments.variance) == pytest.approx(variance, rel=1e-5)
    assert moments.count == 8


@pytest.mark.parametrize("decay", [1.0, 0.75])
def test_moments_of_batches_of_one_have_the_variance_of_the_stream(decay):
    """With decay = 1 the plain mean and variance; else those with the weights that an exponential average gives."""
    stream, moments = np.random.default_rng(0).normal(-90, 7, size=9).astype(np.float32), RunningMoments(decay)
    for value in stream:
        moments = moments.updated(jnp.asarray([value]))
    weights = np.ones(1)
    for n in range(1, len(stream)):
        new = max(1 / (n + 1), 1 - decay)
        weights = np.append(weights * (1 - new), new)
    mean = weights @ stream
    assert float(moments.mean) == pytest.approx(mean, rel=1e-5)
    assert float(moments.variance) == pytest.approx(weights @ (stream - mean) ** 2, rel=1e-4)


def test_an_outlier_without_others_in_its_batch_is_divided_by_its_size():
    """With one example a batch, log f = −5000 has a coefficient of a few units, as in a batch of many."""
    nvil = NVIL()
    for value in (0.0, 100.0, -300.0, 50.0, 1000.0):
        nvil = nvil.updated(nvil(ImportanceSamples(jnp.array([[value]]), jnp.zeros((1, 1)))))

    def surrogate(log_proposal):
        return jnp.sum(nvil(ImportanceSamples(jnp.array([[-5000.0]]), log_proposal)).surrogate)

    assert -5 < float(jax.grad(surrogate)(jnp.zeros((1, 1)))[0, 0]) < 0


def test_moments_pass_over_infinite_residuals():
    moments = moments_of(-3.0, 2.0)
    assert eqx.tree_equal(moments.updated(jnp.array([-jnp.inf, -jnp.inf])), moments)
    with_hole, without = moments.updated(jnp.array([-4.0, -jnp.inf, -6.0])), moments.updated(jnp.array([-4.0, -6.0]))
    assert eqx.tree_equal(with_hole, without)


LEARNED = {
    "nvil": lambda network, moments: NVIL(network, moments),
    "vimco-learned": lambda network, moments: LearnedVIMCO(network, moments),
}


class TestBaselineNetwork:
    @pytest.mark.parametrize("name", LEARNED)
    @pytest.mark.parametrize("K", [1, 3])
    def test_learns_from_its_squared_residual_alone(self, name, K):
        samples, batch, network = samples_of(K, 4), batch_of(4), trained_network()
        targets = samples.log_weights if name == "vimco-learned" else estimate_of(NVIL(), samples).bound[None]

        def surrogate(network):
            return jnp.sum(LEARNED[name](network, moments_of(-70.0, 9.0))(samples, batch).surrogate)

        def negative_squared_residual(network):
            return -jnp.sum(jnp.mean((targets - network(batch) - -70.0) ** 2, axis=0))

        actual, expected = (
            eqx.filter_jit(eqx.filter_grad(function))(network) for function in (surrogate, negative_squared_residual)
        )
        for name in ("hidden_weight", "hidden_bias", "output_weight"):
            np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), rtol=1e-4, atol=1e-3)
            assert np.any(np.asarray(getattr(actual, name)) != 0)

    @pytest.mark.parametrize("name", LEARNED)
    def test_its_learning_moves_nothing_else(self, name):
        """With the network's values written down as constants, all other gradients are the same."""
        batch = jax.tree.map(lambda a: jnp.asarray(np.repeat(a[:1], 4, axis=0)), batch_of(4))
        samples, network = samples_of(3, 4), trained_network()
        with_network = gradient(LEARNED[name](network, moments_of(-70.0, 9.0)), samples, batch)
        constant = gradient(LEARNED[name](None, moments_of(-70.0 + float(network(batch)[0]), 9.0)), samples)
        np.testing.assert_allclose(with_network.log_proposal, constant.log_proposal, rtol=1e-5)
        np.testing.assert_allclose(with_network.log_joint, constant.log_joint, rtol=1e-5)

    def test_starts_as_zero_and_sees_centred_context_and_observation(self):
        network = BaselineNetwork(jax.random.key(0), MEAN)
        np.testing.assert_array_equal(network(batch_of(4)), 0)
        network = trained_network()
        at_the_mean = network(Batch(MEAN[None, 1:], MEAN[None, :1]))
        np.testing.assert_allclose(at_the_mean, 0, atol=1e-6)
        moved = [network(Batch(MEAN[None, 1:] + d, MEAN[None, :1] + c))[0] for d, c in ((0.5, 0.0), (0.0, 0.5))]
        assert min(map(abs, moved)) > 1e-3

    def test_running_moments_and_means_are_not_parameters(self):
        estimator = named_estimator("nvil", jax.random.key(0), MEAN)
        parameters, rest = partition(estimator)
        sizes = [leaf.shape for leaf in jax.tree.leaves(parameters)]
        assert sizes == [(3, 100), (100,), (100,)]
        for both in (eqx.combine(parameters, rest), eqx.combine(rest, parameters)):
            assert eqx.tree_equal(both, estimator)

    def test_wants_the_data(self):
        with pytest.raises(UsageError, match=r"estimator\(samples, batch\)"):
            NVIL(trained_network())(samples_of(2, 4))


@pytest.mark.usefixtures("float64")
def test_learned_vimco_at_one_sample_is_nvil():
    """Sec. 2.5.3: the same signals, gradients, baselines and moments, through updates of network and moments."""
    estimators = [
        LearnedVIMCO(trained_network(), moments_of(-70.0, 9.0)),
        NVIL(trained_network(), moments_of(-70.0, 9.0), variance_normalisation=False),
    ]
    batch = batch_of(4)

    @eqx.filter_jit
    def step(estimator, samples):
        parameters, rest = partition(estimator)
        estimate = estimator(samples, batch)
        ascent = jax.grad(lambda p: jnp.mean(eqx.combine(p, rest)(samples, batch).surrogate))(parameters)
        moved = eqx.combine(jax.tree.map(lambda p, g: p + 1e-3 * g, parameters, ascent), rest)
        return estimate, gradient(estimator, samples, batch), moved.updated(estimate)

    for update in range(4):
        samples = samples_of(1, 4, seed=update)
        (learned, *_), (nvil, *_) = results = [step(estimator, samples) for estimator in estimators]
        for field in ("surrogate", "bound", "learning_signal"):
            np.testing.assert_allclose(getattr(learned, field), getattr(nvil, field), rtol=1e-12)
        for field in ("log_joint", "log_proposal"):
            np.testing.assert_allclose(*(getattr(slopes, field) for _, slopes, _ in results), rtol=1e-12)
        estimators = [moved for _, _, moved in results]
        assert estimators[0].moments.mean != -70
        np.testing.assert_allclose(estimators[0].moments.mean, estimators[1].moments.mean, rtol=1e-12)
        np.testing.assert_allclose(
            estimators[0].network.output_weight, estimators[1].input_baseline.output_weight, rtol=1e-12
        )


class TestNames:
    def test_table(self):
        names = "naive, nvil, rws, rws-both, rws-sleep, vimco, vimco-arithmetic, vimco-learned, vimco-leave-one-out"
        assert set(names.split(", ")) <= set(ESTIMATORS)

    def test_three_updates_of_rws(self):
        wake, sleep, both = (
            named_estimator(name, jax.random.key(0), MEAN) for name in ("rws", "rws-sleep", "rws-both")
        )
        assert (wake.wake, wake.sleep, wake.needs) == (True, False, ())
        assert (sleep.wake, sleep.sleep, sleep.needs) == (False, True, (Dreams(),))
        assert (both.wake, both.sleep, both.needs) == (True, True, (Dreams(),))

    def test_estimators_without_memory_are_their_own_update(self):
        estimator = VIMCO()
        assert estimator.updated(estimate_of(estimator, samples_of(3, 4))) is estimator

    def test_unknown(self):
        with pytest.raises(UsageError, match=r"no estimator 'vimcoo'; choose one of .*naive, nvil, .*--plugin"):
            named_estimator("vimcoo", jax.random.key(0), MEAN)


@pytest.mark.parametrize(
    ("estimator", "samples", "message"),
    [
        (VIMCO(), samples_of(1, 2), r"needs K >= 2; got K = 1\. Use NVIL"),
        (RWS(), samples_of(1, 2), r"mean zero at K = 1.*use K >= 2, or the sleep update"),
        (RWS(), samples_of(2, 2, proposal_is_prior=True), r"its own proposal: use VIMCO or NVIL"),
        (RWS(), samples_of(2, 2, log_score=jnp.zeros((2, 2))), r"reparameterised latents: use VIMCO"),
        *(
            (dreg, samples_of(2, 2, **{name: jnp.zeros((2, 2)) for name in ("log_score", "frozen_log_weights")}), mixed)
            for dreg in (DReG(), STL(biased=True), RWSDReG())
            for mixed in ("proposal of the others untrained: use VIMCO for mixed latents",)
        ),
        (
            RWS(sleep=True),
            samples_of(2, 2),
            r"needs dreams, draws from the model itself: give the samples `log_proposal_of_dreams`",
        ),
    ],
    ids=["vimco-K1", "wake-K1", "rws-prior", "rws-mixed", "dreg-mixed", "stl-mixed", "rws-dreg-mixed", "no-dreams"],
)
def test_refusals_say_why_and_what_to_do(estimator, samples, message):
    with pytest.raises(UsageError, match=message):
        estimator(samples)


def test_rws_must_train_its_proposal():
    with pytest.raises(UsageError, match="switch one of them on"):
        RWS(wake=False, sleep=False)


def test_plain_wake_sleep_works_with_one_sample():
    samples = samples_of(1, 2, log_proposal_of_dreams=jnp.array([-3.0, -4.0]))
    slopes = gradient(RWS(wake=False, sleep=True), samples)
    np.testing.assert_array_equal(slopes.log_joint, 1)
    np.testing.assert_array_equal(slopes.log_proposal, 0)
    np.testing.assert_array_equal(slopes.log_proposal_of_dreams, 1)


# Tested with the same weights in test_renyi.py, test_ovis.py and test_elbo.py.
HOSTILE_ELSEWHERE = {
    "vimco-scaled",
    "renyi",
    "renyi-warmup",
    "tvo-moments",
    "ovis",
    "ovis-asymptotic",
    "rloo",
    "tvo",
    "tvo-log-spaced",
}


@eqx.filter_jit
def all_surrogates_and_gradients(samples):
    """Return those of every estimator for this K: gradients for the log-probabilities and its own parameters."""
    results = {}
    for name in ESTIMATORS:
        if name in LOOKING_INSIDE or name in HOSTILE_ELSEWHERE:
            continue
        estimator = named_estimator(name, jax.random.key(0), MEAN, OPTIONS.get(name, ()))

        def surrogate(both):
            samples, estimator = both
            estimate = estimator(samples, batch_of(2))
            return jnp.sum(estimate.surrogate), (estimate, estimator.updated(estimate))

        try:
            complete = with_everything(samples, jnp.array([-2.0, -5.0]), estimator)
            results[name] = eqx.filter_value_and_grad(surrogate, has_aux=True)((complete, estimator))
        except UsageError:
            assert samples.num_samples == 1, name
    return eqx.filter(results, eqx.is_array)


@given(hostile_log_weights)
def test_hostile_log_weights_never_poison_a_parameter(log_weights):
    """float32, as users run it: no NaN in surrogates or running moments, and every gradient finite."""
    log_joint = jnp.asarray(log_weights, jnp.float32)
    samples = ImportanceSamples(log_joint, jnp.linspace(-3.0, -1.0, log_joint.size).reshape(log_joint.shape))
    for name, ((value, (estimate, after)), gradients) in all_surrogates_and_gradients(samples).items():
        for leaf in jax.tree.leaves((value, estimate, after)):
            assert not np.any(np.isnan(leaf)), name
        for leaf in jax.tree.leaves(gradients):
            assert np.all(np.isfinite(leaf)), name


def test_latents_that_are_all_attached_have_no_score():
    """A score of attached latents would be counted beside the gradient that flows through them."""
    samples = samples_of(3, 4)
    attached, zero = (
        dataclasses.replace(samples, latents_attached=True, log_score=score)
        for score in (None, jnp.zeros_like(samples.log_joint))
    )
    nvil = NVIL(None, eqx.tree_at(lambda m: m.variance, RunningMoments(), jnp.array(81.0)), scale_sees_batch=False)
    for estimator in (VIMCO(), Naive(), nvil, named_estimator("rloo", jax.random.key(0), MEAN)):
        with_none, with_zero, scored = (
            jax.grad(lambda s, e=estimator: jnp.sum(e(s).surrogate))(s) for s in (attached, zero, samples)
        )
        np.testing.assert_array_equal(with_none.log_proposal, with_zero.log_proposal)
        assert np.any(np.asarray(with_none.log_proposal) != np.asarray(scored.log_proposal))
    for name in ("rws", "tvo", "tang"):
        with pytest.raises(UsageError):
            named_estimator(name, jax.random.key(0), MEAN)(
                dataclasses.replace(attached, log_likelihood=samples.log_joint)
            )


def test_rws_refuses_parameters_in_common():
    """Its two rules would both move them; and f must be P / Q, which `from_weights` does not promise."""
    weights = jnp.zeros((2, 3))
    for samples in (ImportanceSamples.from_weights(weights, weights), samples_of(3, 4, shared_parameters=True)):
        with pytest.raises(UsageError, match="may not share parameters, and f must be P / Q"):
            RWS()(samples)


def test_share_of_the_wake_update_is_in_the_signal():
    samples = samples_of(3, 4, log_proposal_of_dreams=jnp.zeros(4))
    whole, part = (RWS(wake=share, sleep=1.0)(samples).learning_signal for share in (1.0, 0.3))
    np.testing.assert_allclose(part, 0.3 * whole, rtol=1e-6)


def test_naive_multiplies_every_score_with_the_bound():
    """Eq. 7."""
    estimate = estimate_of(Naive(), samples_of(3, 4))
    np.testing.assert_array_equal(estimate.learning_signal, np.broadcast_to(estimate.bound, (3, 4)))
