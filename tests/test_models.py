"""Sigmoid belief networks: their probabilities by enumeration and by hand, their samples, their slices."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import SBN_KINDS, all_configurations, binary_configurations, copies, example_of, sbn_model, sbn_toy

from vimco import VIMCO, Batch, gaussian_model, generative_sbn, structured_sbn
from vimco.models import BernoulliLayer
from vimco.parameters import partition

OBSERVATIONS = binary_configurations((3,))[0][0]  # all eight observations that the toys know


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def bernoulli(value, logits):
    """Return Π_i σ(a_i)^v_i (1 − σ(a_i))^(1 − v_i), by definition."""
    return np.prod(np.where(value == 1, sigmoid(logits), 1 - sigmoid(logits)), axis=-1)


def test_means_of_numpy_are_taken_in_the_precision_of_jax():
    """Warnings are errors here: each layer would otherwise warn that float64 is not available."""
    mean = np.full(3, 0.5)
    models = [generative_sbn(jax.random.key(0), (2,), mean), gaussian_model(jax.random.key(0), (2,), mean)]
    for model in (*models, structured_sbn(jax.random.key(0), (2,), mean, mean)):
        assert {leaf.dtype for leaf in jax.tree.leaves(partition(model)[0])} == {np.dtype("float32")}


def by_hand(kind, model, latents, example):
    """Return P(x, h | c) and Q(h | x, c) of two layers of latents, from the paper's formulas (Secs. 5.1 and 5.2)."""
    h1, h2 = latents
    x, c = (np.asarray(array) for array in (example.observation, example.context))
    first, second = model.prior.layers
    context = c - np.array([0.4, 0.7]) if kind != "generative" else c
    joint = (
        bernoulli(h1, context @ np.asarray(first.weights[0]) + first.bias)
        * bernoulli(h2, h1 @ second.weights[0] + second.bias)
        * bernoulli(x, h2 @ model.likelihood.weights[0] + model.likelihood.bias)
    )
    centred = x - np.array([0.3, 0.6, 0.5])
    if kind == "structured-prior":
        proposal = bernoulli(h1, context @ np.asarray(first.weights[0]) + first.bias) * bernoulli(
            h2, h1 @ second.weights[0] + second.bias
        )
    elif kind == "generative":
        up, further_up = model.proposal.chain.layers
        proposal = bernoulli(h2, centred @ np.asarray(up.weights[0]) + up.bias) * bernoulli(
            h1, h2 @ further_up.weights[0] + further_up.bias
        )
    else:
        down, further_down = model.proposal.chain.layers
        logits = h1 @ further_down.weights[0] + centred @ np.asarray(further_down.weights[1]) + further_down.bias
        proposal = bernoulli(h1, context @ np.asarray(down.weights[0]) + down.bias) * bernoulli(h2, logits)
    return joint, proposal


@pytest.mark.usefixtures("float64")
class TestProbabilities:
    @pytest.mark.parametrize("kind", SBN_KINDS)
    def test_are_those_of_the_paper(self, kind):
        toy = sbn_toy(kind)
        joint, proposal = by_hand(kind, toy.model, binary_configurations((2, 1)), toy.example)
        np.testing.assert_allclose(np.exp(toy.log_joint), joint[0], rtol=1e-12)
        np.testing.assert_allclose(np.exp(toy.log_proposal), proposal[0], rtol=1e-12)

    @pytest.mark.parametrize("kind", SBN_KINDS)
    @pytest.mark.parametrize(("layers", "symmetric"), [((2, 1), False), ((1, 1, 1), True)])
    def test_sum_to_one(self, kind, layers, symmetric):
        """Σ_h Q(h | x, c) = 1 for every x, and Σ_{x, h} P(x, h | c) = 1; two and three layers."""
        model, context = sbn_model(kind, layers, symmetric), example_of(kind).context
        total = 0.0
        for x in OBSERVATIONS:
            samples = all_configurations(model, layers, Batch(jnp.asarray(x[None]), context))
            total += np.sum(np.exp(samples.log_joint))
            assert np.sum(np.exp(samples.log_proposal)) == pytest.approx(1, abs=1e-13)
        assert total == pytest.approx(1, abs=1e-13)

    @pytest.mark.parametrize("kind", SBN_KINDS)
    def test_recoding_is_another_parameterisation(self, kind):
        """(2h − 1) W + b = h (2W) + (b − Σ W): the same distributions, wherever the parent is a latent."""
        symmetric, plain, example = sbn_model(kind, symmetric=True), sbn_model(kind), example_of(kind)

        def children_of_latents(model):
            proposal = () if model.proposal is None else model.proposal.chain.layers[1:]
            return [*model.prior.layers[1:], model.likelihood, *proposal]

        def affine_maps(model):
            return [part for layer in children_of_latents(model) for part in (layer.weights[0], layer.bias)]

        recoded = []
        for layer in children_of_latents(symmetric):
            weight, bias = np.asarray(layer.weights[0]), np.asarray(layer.bias)
            recoded += [jnp.asarray(2 * weight), jnp.asarray(bias - weight.sum(axis=0))]
        actual, expected, other = (
            all_configurations(model, (2, 1), example)
            for model in (eqx.tree_at(affine_maps, plain, recoded), symmetric, plain)
        )
        np.testing.assert_allclose(actual.log_joint, expected.log_joint, rtol=1e-12)
        np.testing.assert_allclose(actual.log_proposal, expected.log_proposal, rtol=1e-12)
        assert np.max(np.abs(other.log_joint - expected.log_joint)) > 1e-2

    def test_prior_as_proposal_leaves_the_likelihood(self):
        """Eq. 1: f = P(x | h, c), and the prior's parameters are not in it."""
        toy = sbn_toy("structured-prior")
        latents = tuple(map(jnp.asarray, binary_configurations((2, 1))))
        batch = copies(toy.example, 8)
        samples = eqx.filter_jit(toy.model.weighted)(latents, batch)
        assert samples.proposal_is_prior
        probabilities = np.asarray(eqx.filter_jit(toy.model.observation_probabilities)(latents))
        likelihood = np.prod(np.where(np.asarray(batch.observation) == 1, probabilities, 1 - probabilities), axis=-1)
        np.testing.assert_allclose(np.exp(samples.log_weights), likelihood, rtol=1e-12)
        gradient = eqx.filter_jit(eqx.filter_grad(lambda model: jnp.sum(model.weighted(latents, batch).log_weights)))(
            toy.model
        )
        for leaf in jax.tree.leaves(gradient.prior):
            np.testing.assert_allclose(leaf, 0, atol=1e-14)


def draws(kind: str, number: int):
    """Return a toy in float32, eight copies of its example, and draws of its proposal as numbers (K, B) from 0 to 7."""
    model = jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_array(a) else a, sbn_toy(kind).model)
    example = jax.tree.map(lambda a: a.astype(jnp.float32), sbn_toy(kind).example)
    batch = copies(example, 8)
    latents, _ = eqx.filter_jit(model.proposal_sample)(jax.random.key(1), jnp.arange(number), batch)
    return model, batch, configuration_numbers(latents)


def configuration_numbers(latents) -> np.ndarray:
    """Return which of the eight configurations each pair of latents is, in the order of enumeration."""
    bits = np.concatenate(latents, axis=-1).astype(int)
    return bits @ np.array([4, 2, 1])


def assert_frequencies(numbers, probabilities):
    """Assert that every count is within five standard deviations of its expectation."""
    counts = np.bincount(np.ravel(numbers), minlength=len(probabilities))
    expected = counts.sum() * probabilities
    assert np.all(np.abs(counts - expected) <= 5 * np.sqrt(expected * (1 - probabilities)) + 1)


class TestSamples:
    @pytest.mark.parametrize("kind", SBN_KINDS)
    def test_come_from_the_proposal_and_do_not_know_each_other(self, kind):
        """16,000 draws, 8 examples: frequencies of single samples, and of pairs along both axes.

        Examples are paired with their neighbours, and with those two further, which share words of the cipher.
        """
        _, _, numbers = draws(kind, 2000)
        probabilities = np.exp(sbn_toy(kind).log_proposal)
        pairs = np.outer(probabilities, probabilities).ravel()
        assert_frequencies(numbers, probabilities)
        assert_frequencies(8 * numbers[::2] + numbers[1::2], pairs)
        assert_frequencies(8 * numbers[:, ::2] + numbers[:, 1::2], pairs)
        assert_frequencies(8 * numbers[:, [0, 1, 4, 5]] + numbers[:, [2, 3, 6, 7]], pairs)

    @pytest.mark.parametrize("kind", ["generative", "structured-learned"])
    def test_dreams_come_from_the_model(self, kind):
        """(x, h) ~ P(x, h | c): all 64 cells, and the mean of log Q at the dreams of the sleep update."""
        toy, layers = sbn_toy(kind), (2, 1)
        model, batch, _ = draws(kind, 1)
        many = copies(jax.tree.map(lambda a: a[:1], batch), 20_000)
        latents, observations = eqx.filter_jit(model.sample)(jax.random.key(2), many.context)
        assert observations.shape == (1, 20_000, 3)
        with jax.enable_x64(True):
            cells = [
                all_configurations(toy.model, layers, Batch(jnp.asarray(x[None]), toy.example.context))
                for x in OBSERVATIONS
            ]
        probabilities = np.exp([np.asarray(c.log_joint[0]) for c in cells])  # (x, h)
        log_proposal = np.array([np.asarray(c.log_proposal[0]) for c in cells])
        numbers = 8 * (np.asarray(observations).astype(int) @ np.array([4, 2, 1])) + configuration_numbers(latents)
        assert_frequencies(numbers, probabilities.ravel())

        at_dreams = np.asarray(eqx.filter_jit(model.log_proposal_of_dreams)(jax.random.key(3), many))
        mean = np.sum(probabilities * log_proposal)
        deviation = np.sqrt(np.sum(probabilities * (log_proposal - mean) ** 2))
        assert at_dreams.shape == (20_000,)
        assert abs(at_dreams.mean() - mean) < 5 * deviation / np.sqrt(20_000)

    @pytest.mark.parametrize("kind", SBN_KINDS)
    def test_carry_their_own_probabilities_and_depend_on_the_key_alone(self, kind):
        """`importance_samples` is `weighted` at latents drawn from the proposal with the same key."""
        model, batch, _ = draws(kind, 1)

        @jax.jit
        def three(key):
            latents, log_proposal = model.proposal_sample(key, jnp.arange(5), batch)
            assert [h.shape for h in latents] == [(5, 8, 2), (5, 8, 1)]
            return model.importance_samples(key, batch, 5), model.weighted(latents, batch), log_proposal

        samples, expected, log_proposal = three(jax.random.key(4))
        assert samples.log_joint.shape == samples.log_proposal.shape == (5, 8)
        assert samples.proposal_is_prior == (kind == "structured-prior")
        np.testing.assert_allclose(samples.log_joint, expected.log_joint, rtol=1e-5)
        np.testing.assert_allclose(samples.log_proposal, expected.log_proposal, rtol=1e-5)
        np.testing.assert_allclose(log_proposal, expected.log_proposal, rtol=1e-5)

        again, other = three(jax.random.key(4))[0], three(jax.random.key(5))[0]
        np.testing.assert_array_equal(samples.log_joint, again.log_joint)
        assert np.any(np.asarray(samples.log_joint) != np.asarray(other.log_joint))

    def test_slices_change_neither_samples_nor_gradients(self):
        """K = 10 whole, and as two slices of four and one of two."""
        model, batch, _ = draws("generative", 1)
        key = jax.random.key(5)

        def surrogate(model):
            samples = model.importance_samples(key, batch, 10)
            return jnp.sum(VIMCO()(samples).surrogate), samples

        both = eqx.filter_jit(eqx.filter_value_and_grad(surrogate, has_aux=True))
        (_, whole), gradient = both(model)
        (_, sliced), gradient_in_slices = both(dataclasses.replace(model, slice_size=4))
        np.testing.assert_allclose(sliced.log_joint, whole.log_joint, rtol=1e-6)
        np.testing.assert_allclose(sliced.log_proposal, whole.log_proposal, rtol=1e-6)
        parameters, parameters_in_slices = partition(gradient)[0], partition(gradient_in_slices)[0]
        for a, b in zip(jax.tree.leaves(parameters), jax.tree.leaves(parameters_in_slices), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


class TestLayer:
    def test_parent_without_a_sample_axis(self):
        """Logits (B, n) from the data, (K, B, n) from latents, and their broadcast sum from both."""
        layer = BernoulliLayer(jax.random.key(0), (3, 2), 4)
        h, x = jnp.ones((5, 6, 3)), jax.random.normal(jax.random.key(1), (6, 2))
        expected = np.einsum("kbi,in->kbn", h, layer.weights[0]) + np.asarray(x @ layer.weights[1]) + layer.bias
        np.testing.assert_allclose(layer(h, x), expected, rtol=1e-5, atol=1e-6)
        assert BernoulliLayer(jax.random.key(0), (2,), 4)(x).shape == (6, 4)

    def test_no_parent_is_a_learned_prior(self):
        layer = BernoulliLayer(jax.random.key(0), (0,), 3)
        layer = eqx.tree_at(lambda layer: layer.bias, layer, jnp.array([1.0, 2.0, 3.0]))
        np.testing.assert_array_equal(layer(jnp.zeros((4, 0))), np.tile([1.0, 2.0, 3.0], (4, 1)))

    def test_initial_weights_are_glorot_uniform(self):
        layer = BernoulliLayer(jax.random.key(0), (60, 40), 50)
        limit = (6 / 150) ** 0.5
        for weight in layer.weights:
            assert limit * 0.99 < np.max(np.abs(weight)) <= limit
            assert np.std(weight) == pytest.approx(limit / 3**0.5, rel=0.05)
        assert np.all(np.asarray(layer.bias) == 0)

    @pytest.mark.parametrize("kind", ["generative", "structured-learned"])
    def test_what_depends_on_the_data_alone_is_computed_once_per_example(self, kind):
        """No matrix product over the observation has more than B rows, whatever K is."""
        D, K, B = 11, 7, 5  # sizes that no other axis has
        means = [jnp.full(D, 0.5)] if kind == "generative" else [jnp.full(D, 0.5), jnp.full(4, 0.5)]
        build = generative_sbn if kind == "generative" else structured_sbn
        batch = Batch(jnp.ones((B, D)), jnp.ones((B, 0 if kind == "generative" else 4)))
        jaxpr = jax.make_jaxpr(lambda key: build(key, (3, 2), *means).importance_samples(key, batch, K))(
            jax.random.key(0)
        )

        def products(jaxpr):
            for equation in jaxpr.eqns:
                if equation.primitive.name == "dot_general":
                    yield equation
                for parameter in equation.params.values():
                    inner = getattr(parameter, "jaxpr", parameter)
                    if hasattr(inner, "eqns"):
                        yield from products(inner)

        from_observation = [
            np.prod(equation.outvars[0].aval.shape)
            for equation in products(jaxpr.jaxpr)
            if any(variable.aval.shape[0] == D for variable in equation.invars if variable.aval.ndim == 2)
        ]
        assert from_observation == [B * 2]


class TestConstruction:
    def test_observations_start_as_often_on_as_in_the_data(self):
        """A pixel that was never (or always) on starts at 1/1000 (or 999/1000): a bias of ±inf could not change."""
        mean = jnp.array([0.2, 0.5, 0.0, 1.0])
        for model in (
            generative_sbn(jax.random.key(0), (2,), mean),
            structured_sbn(jax.random.key(0), (2,), mean, jnp.zeros(3)),
        ):
            np.testing.assert_allclose(sigmoid(model.likelihood.bias), [0.2, 0.5, 0.001, 0.999], rtol=1e-4)

    def test_means_are_no_parameters(self):
        model = structured_sbn(jax.random.key(0), (2,), jnp.full(3, 0.5), jnp.full(4, 0.5))
        parameters, rest = partition(model)
        assert all(np.all(np.asarray(leaf) == 0.5) for leaf in jax.tree.leaves(eqx.filter(rest, eqx.is_array)))
        # prior: 4·2 + 2; likelihood: 2·3 + 3; proposal: (4 + 3)·2 + 2
        assert sum(leaf.size for leaf in jax.tree.leaves(parameters)) == 10 + 9 + 16

    @pytest.mark.parametrize("layers", [(200, 200), (200, 200, 200)])
    def test_sizes_of_the_paper(self, layers):
        """200-200-200-784 and its proposal the other way; 392 → 200-200(-200) → 392 with the observation beside."""
        between = (len(layers) - 1) * (200 * 200 + 200)
        generative = eqx.filter_eval_shape(lambda k: generative_sbn(k, layers, jnp.zeros(784)), jax.random.key(0))
        sizes = [leaf.size for leaf in jax.tree.leaves(partition_of_shapes(generative))]
        assert sum(sizes) == (200 + between) + (200 * 784 + 784) + (784 * 200 + 200 + between)
        structured = eqx.filter_eval_shape(
            lambda k: structured_sbn(k, layers, jnp.zeros(392), jnp.zeros(392)), jax.random.key(0)
        )
        sizes = [leaf.size for leaf in jax.tree.leaves(partition_of_shapes(structured))]
        chain = 392 * 200 + 200 + between
        assert sum(sizes) == chain + (200 * 392 + 392) + (chain + 392 * 200)

    def test_precision_is_that_of_the_means(self):
        with jax.enable_x64(True):
            for dtype in (jnp.float32, jnp.float64):
                mean, batch = jnp.full(4, 0.5, dtype), Batch(jnp.ones((2, 4), dtype))
                model = eqx.filter_eval_shape(lambda k, m: generative_sbn(k, (3, 2), m), jax.random.key(0), mean)
                assert {leaf.dtype for leaf in partition_of_shapes(model)} == {jnp.dtype(dtype)}
                samples = eqx.filter_eval_shape(
                    lambda k, m, b: generative_sbn(k, (3, 2), m).importance_samples(k, b, 3),
                    jax.random.key(0),
                    mean,
                    batch,
                )
                assert samples.log_joint.dtype == samples.log_proposal.dtype == dtype


def partition_of_shapes(model):
    """Return the parameters of a model that is only shapes: weights and biases, not the means."""
    chains = (model.prior, model.likelihood, model.proposal.chain)
    return [leaf for leaf in jax.tree.leaves(chains) if isinstance(leaf, jax.ShapeDtypeStruct)]


def test_keys_of_another_kind():
    """As with JAX_DEFAULT_PRNG_IMPL=rbg, whose keys have four words instead of two."""
    model = generative_sbn(jax.random.key(0), (2,), jnp.full(3, 0.5))
    samples = model.importance_samples(jax.random.key(1, impl="rbg"), Batch(jnp.ones((4, 3))), 2)
    assert np.all(np.isfinite(samples.log_weights))
