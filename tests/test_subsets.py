"""Wrappers of estimators: averages over subsets of the samples, and likelihood annealing."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import gradient_of_surrogates, sbn_toy

from vimco import NVIL, VIMCO, ImportanceSamples, UsageError, multi_sample_bound, vimco_signal
from vimco.estimators import BBVI, OVIS, RLOO, RWS, Annealed, LocalExpectations, SubsetAverage, subsets
from vimco.estimators.subsets import places_of
from vimco.samples import Auxiliary

pytestmark = pytest.mark.usefixtures("float64")


class TestSubsets:
    def test_all_subsets(self):
        assert sorted(map(tuple, subsets(3, 2).T)) == [(0, 1), (0, 2), (1, 2)]

    def test_blocks_hold_every_sample_equally_often(self):
        blocks = subsets(12, 3, repeats=5)
        assert blocks.shape == (3, 20)
        assert np.all(np.bincount(blocks.ravel()) == 5)
        assert all(len(set(block)) == 3 for block in blocks.T)
        assert len({tuple(sorted(block)) for block in blocks.T}) > 15
        assert subsets(5, 2, repeats=1).shape == (2, 2)  # an incomplete block is left out

    @pytest.mark.parametrize("repeats", [None, 2])
    def test_expectation_is_that_of_the_smaller_bound(self, repeats):
        """n = 3, m = 2, against enumeration; the variance is below that of one subset."""
        toy = sbn_toy("generative")
        average = SubsetAverage(VIMCO(), 2, repeats)
        np.testing.assert_allclose(toy.expected_gradient(average, 3), toy.exact_gradient(2), rtol=0, atol=1e-12)
        estimate = eqx.filter_jit(average)(toy.samples(3))
        assert toy.probabilities(3) @ estimate.bound == pytest.approx(toy.expected_bound(3), abs=1e-12)
        assert toy.probabilities(3) @ estimate.objective == pytest.approx(toy.expected_bound(2), abs=1e-12)
        assert toy.variance(average, 3) < 0.9 * toy.variance(VIMCO(), 2)

    def test_coefficients_are_averages(self):
        """Every sample's coefficient is the mean of its coefficients in the subsets, 0 in those without it."""
        samples = sbn_toy("generative").samples(3)
        slopes = gradient_of_surrogates(samples, SubsetAverage(VIMCO(), 2), None)
        expected = np.zeros(samples.log_joint.shape)
        signal = np.zeros(samples.log_joint.shape)
        for pair in ([0, 1], [0, 2], [1, 2]):
            tables = (np.asarray(values)[pair] for values in (samples.log_joint, samples.log_proposal))
            part = ImportanceSamples(*map(jnp.asarray, tables))
            expected[pair] += np.asarray(gradient_of_surrogates(part, VIMCO(), None).log_proposal) / 3
            signal[pair] += vimco_signal(np.asarray(part.log_weights)) / 3
        np.testing.assert_allclose(slopes.log_proposal, expected, rtol=0, atol=1e-12)
        estimate = eqx.filter_jit(SubsetAverage(VIMCO(), 2))(samples)
        np.testing.assert_allclose(estimate.learning_signal, signal, rtol=0, atol=1e-12)

    def test_no_array_has_an_entry_for_each_pair_of_samples(self):
        """Blocks of 4 of 10 samples leave two out of each permutation, so some samples are in fewer blocks."""
        numbers, signal = subsets(10, 4, repeats=3), np.random.default_rng(0).normal(size=24)
        expected = np.eye(10)[:, numbers.ravel()] @ signal
        places = places_of(numbers, 10)
        np.testing.assert_allclose(np.append(signal, 0)[places].sum(1), expected, rtol=1e-12)
        shape = jax.ShapeDtypeStruct((200, 3), float)
        average = SubsetAverage(VIMCO(), 10, repeats=5)
        made = str(jax.make_jaxpr(lambda *arrays: average(ImportanceSamples(*arrays)).learning_signal)(shape, shape))
        sizes = [np.prod(list(map(int, s.split(",")))) for s in re.findall(r"[fi]\d+\[([\d,]+)\]", made)]
        assert max(sizes) <= 10 * 200 * 5 * 3

    def test_passes_on_what_the_estimator_needs(self):
        samples = sbn_toy("generative").samples(3, 1)
        average = SubsetAverage(OVIS(1), 2)
        assert average.needs == (Auxiliary(1),)
        assert eqx.filter_eval_shape(average, samples).surrogate.shape == (8**4,)
        assert eqx.filter_eval_shape(SubsetAverage(RLOO(), 2), samples).objective.shape == (8**4,)

    def test_refusals(self):
        for size in (0, 4):
            with pytest.raises(UsageError, match=f"1 to 3 of them; got {size}"):
                subsets(3, size)
        with pytest.raises(UsageError, match="1 or more times; got 0"):
            subsets(4, 2, repeats=0)
        with pytest.raises(UsageError, match="carries state"):
            SubsetAverage(NVIL(), 2)
        with pytest.raises(UsageError, match=r"200 samples have 2,535,650,040 subsets of 5.* repeats=5"):
            subsets(200, 5)
        for estimator in (BBVI(), LocalExpectations()):
            with pytest.raises(UsageError, match="cannot be divided among subsets"):
                SubsetAverage(estimator, 2)


def record(parameters, sets):
    """Return two tables, a prior and a likelihood, each with parameters of its own."""
    log_likelihood = jax.nn.log_sigmoid(parameters["likelihood"])[sets]
    log_joint = jax.nn.log_softmax(parameters["prior"])[sets] + log_likelihood
    log_proposal = jax.nn.log_softmax(parameters["proposal"])[sets]
    return ImportanceSamples(log_joint, log_proposal, log_likelihood=log_likelihood)


class TestAnnealed:
    sets = np.indices((4, 4)).reshape(2, -1)

    @staticmethod
    def parameters():
        rng = np.random.default_rng(0)
        return {name: jnp.asarray(rng.normal(size=4)) for name in ("prior", "likelihood", "proposal")}

    @pytest.mark.parametrize(("count", "power"), [(0, 0.001), (3, 0.301), (30, 1.0)])
    def test_ascends_the_bound_of_the_annealed_model(self, count, power):
        """log f = β log P(x|h) + log P(h) − log Q: the exact gradient, and the plain bound beside it."""
        estimator = eqx.tree_at(lambda e: e.count, Annealed(VIMCO(), 10), jnp.array(count, jnp.int32))
        assert float(estimator.inverse_temperature) == pytest.approx(power, abs=1e-12)

        def bound(parameters):
            samples = record(parameters, self.sets)
            log_f = samples.log_weights - (1 - power) * samples.log_likelihood
            value = jax.nn.logsumexp(log_f, axis=0) - jnp.log(2)
            return jnp.exp(jnp.sum(samples.log_proposal, axis=0)) @ value

        def expected(parameters):
            samples = record(parameters, self.sets)
            probability = jax.lax.stop_gradient(jnp.exp(jnp.sum(samples.log_proposal, axis=0)))
            estimate = estimator(samples)
            return probability @ estimate.surrogate, (probability @ estimate.objective, estimate.bound)

        value, exact = jax.jit(jax.value_and_grad(bound))(self.parameters())
        actual, (objective, plain) = jax.jit(jax.grad(expected, has_aux=True))(self.parameters())
        for name in exact:
            np.testing.assert_allclose(actual[name], exact[name], rtol=0, atol=1e-12)
        assert float(objective) == pytest.approx(float(value), abs=1e-12)
        samples = record(self.parameters(), self.sets)
        np.testing.assert_allclose(plain, multi_sample_bound(np.asarray(samples.log_weights)), atol=1e-12)

    def test_an_estimator_that_looks_at_the_likelihood_sees_the_annealed_one(self):
        """RWS with the prior's control variate takes log P(h) as log P(x, h) − log P(x | h)."""
        estimator = RWS(prior_control=True)

        def surrogate(parameters, power, estimator):
            samples = record(parameters, self.sets)
            likelihood = power * samples.log_likelihood
            joint = samples.log_joint - samples.log_likelihood + likelihood
            return jnp.sum(
                estimator(dataclasses.replace(samples, log_joint=joint, log_likelihood=likelihood)).surrogate
            )

        expected = jax.grad(surrogate)(self.parameters(), 0.001, estimator)
        actual = jax.grad(surrogate)(self.parameters(), 1.0, Annealed(estimator, 10))
        for name in expected:
            np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=1e-12)

    def test_counts_updates_and_keeps_the_state_of_what_it_wraps(self):
        samples = record(self.parameters(), self.sets)
        estimator = Annealed(NVIL(), 10)
        after = eqx.filter_jit(lambda e, s: e.updated(e(s)))(estimator, samples)
        assert int(after.count) == 1
        assert int(after.estimator.moments.count) == 1

    def test_impossible_observations(self):
        """log P(x|h) = −inf at any power is an impossible sample; no NaN."""
        samples = record(self.parameters(), self.sets)
        impossible = jnp.where(jnp.asarray(self.sets == 1), -jnp.inf, 0.0)
        samples = dataclasses.replace(
            samples,
            log_joint=samples.log_joint + impossible,
            log_likelihood=samples.log_likelihood + impossible,
        )
        estimate, slopes = eqx.filter_jit(
            lambda s: (Annealed(VIMCO(), 10)(s), jax.grad(lambda t: jnp.sum(Annealed(VIMCO(), 10)(t).surrogate))(s))
        )(samples)
        assert np.all(np.isfinite(slopes.log_joint))
        assert np.all(np.isfinite(slopes.log_likelihood))
        assert not np.any(np.isnan(estimate.objective))

    def test_refusals(self):
        values = jnp.zeros((2, 3))
        with pytest.raises(UsageError, match="log_likelihood"):
            eqx.filter_eval_shape(Annealed(VIMCO(), 10), ImportanceSamples(values, values))
        with pytest.raises(UsageError, match="one or more updates; got 0"):
            Annealed(VIMCO(), 0)
        with pytest.raises(UsageError, match=r"between 0 and 1; got 1\.5"):
            Annealed(VIMCO(), 10, start=1.5)
        for outside in (OVIS(), RWS(wake=False, sleep=True), RWS(sleep=True), BBVI()):
            with pytest.raises(UsageError, match="takes weights of layers or of other samples, or dreams"):
                Annealed(outside, 10)
