"""Bounds and likelihoods: in slices and as a whole, against enumeration, and their errors."""

import dataclasses
import itertools
import math
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import sbn_toy
from scipy.special import logsumexp

from vimco.errors import UsageError
from vimco.models import generative_sbn
from vimco.samples import Batch, Examples, ImportanceSamples
from vimco.signals import jackknife_bound
from vimco.training.evaluation import BLOCK, ROWS, Evaluation, evaluate, joined, paired_comparison

N, D = 250, 5


def pixels(number=N, seed=0):
    return jnp.asarray(np.random.default_rng(seed).integers(0, 2, (number, D)), jnp.uint8)


def tiny_model():
    return generative_sbn(jax.random.key(0), (2, 3), jnp.full(D, 0.5, jnp.result_type(float)))


class AnyModel:
    """A user's model with only one method, no pytree: f(x, h) = exp(h), h ~ N(0, scale²)."""

    def __init__(self, scale):
        self.scale = scale

    def importance_samples(self, key, batch, num_samples):
        h = self.scale * jax.random.normal(key, (num_samples, len(batch.observation)))
        return ImportanceSamples(h, jnp.zeros_like(h))


@dataclasses.dataclass
class UnhashableModel(AnyModel):
    scale: float


class ModelOfArrays(eqx.Module):
    """The same as a tree of arrays, which is compiled once."""

    scale: jax.Array
    importance_samples = AnyModel.importance_samples


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda h: ImportanceSamples(h.T, h.T), r"have the shape \(K, B\), here \(3, 2\); got \(2, 3\)"),
        (lambda h: ImportanceSamples(h.sum(1), h.sum(1)), r"got \(3,\)"),
        (lambda h: (h, h), "returns a vimco.ImportanceSamples; got tuple"),
    ],
)
def test_samples_of_another_shape_are_refused(result, message):
    model = AnyModel(1.0)
    model.importance_samples = lambda key, batch, num_samples: result(jnp.zeros((num_samples, len(batch.observation))))
    with pytest.raises(UsageError, match=message):
        evaluate(model, Examples(pixels(2)), jax.random.key(0), 3)


def test_examples_of_any_shape():
    """One number for each example, and grids."""
    for shape in ((6,), (6, 2, 3)):
        examples = Examples(jnp.zeros(shape, jnp.uint8))
        assert (examples.context.shape, examples.context.dtype) == ((6, 0), jnp.uint8)
        assert Batch(jnp.zeros(shape)).context.shape == (6, 0)
        assert evaluate(AnyModel(1.0), examples, jax.random.key(0), 2).bound.shape == (6,)


# In slices, and as a whole


@pytest.mark.parametrize("K", [1, 2 * BLOCK + 20])
def test_slices_make_no_difference(float64, K):
    """All log-weights at once, drawn with the keys of each slice of examples and block of samples; 250 examples are
    more than one slice from K = 50 on, and the last slice is not full."""
    model, examples, key = tiny_model(), Examples(pixels()), jax.random.key(3)
    size = min(N, ROWS // min(K, BLOCK))
    assert (size < N) == (K >= BLOCK)
    draw = eqx.filter_jit(lambda key, batch, number: model.importance_samples(key, batch, number).log_weights)
    columns = []
    for i in range(math.ceil(N / size)):
        rows = jnp.arange(i * size, (i + 1) * size) % N
        blocks = [min(BLOCK, K - start) for start in range(0, K, BLOCK)]
        columns.append(
            np.concatenate(
                [
                    draw(
                        jax.random.fold_in(jax.random.fold_in(key, i), j),
                        examples.batch(rows, jnp.dtype(float)),
                        number,
                    )
                    for j, number in enumerate(blocks)
                ]
            )
        )
    log_weights = np.concatenate(columns, axis=1)[:, :N]
    assert log_weights.shape == (K, N)

    evaluation = evaluate(model, examples, key, K)
    weights = np.exp(log_weights - log_weights.max(axis=0))
    np.testing.assert_allclose(evaluation.bound, logsumexp(log_weights, axis=0) - np.log(K), rtol=1e-12)
    np.testing.assert_allclose(
        evaluation.effective_sample_size, weights.sum(axis=0) ** 2 / (weights**2).sum(axis=0), rtol=1e-12
    )
    assert evaluation.mean_bound == pytest.approx(np.mean(evaluation.bound), abs=1e-12)
    assert evaluation.negative_log_likelihood == -evaluation.mean_bound
    assert evaluation.standard_error == pytest.approx(evaluation.bound.std(ddof=1) / N**0.5, rel=1e-12)
    if K > 1:
        # The sample variance of the mean weight, relative to its square.
        variance = weights.var(axis=0, ddof=1) / K / weights.mean(axis=0) ** 2
        np.testing.assert_allclose(evaluation.variance, variance, rtol=1e-9, atol=1e-14)
        assert evaluation.monte_carlo_error == pytest.approx(variance.sum() ** 0.5 / N, rel=1e-9)


class Weighted(eqx.Module):
    """Log-weights (K, N) of given samples, which the observation numbers; the keys of blocks are those of K samples."""

    log_weights: jax.Array

    def importance_samples(self, key, batch, num_samples):
        columns = self.log_weights[:, batch.observation[:, 0].astype(int)]
        start = 0 if num_samples == len(columns) else jnp.argmax(jnp.all(jax.random.key_data(key) == BLOCK_KEYS, 1))
        values = jax.lax.dynamic_slice_in_dim(columns, start * BLOCK, num_samples)
        return ImportanceSamples(values, jnp.zeros_like(values))


BLOCK_KEYS = np.stack(
    [jax.random.key_data(jax.random.fold_in(jax.random.fold_in(jax.random.key(3), 0), i)) for i in range(3)]
)


def test_the_jackknife_in_expectation_by_enumeration(float64):
    """Every set of K = 3 samples is an example: the mean is that of the definition, and closer to log P(x)."""
    toy = sbn_toy("generative")
    log_weights = jnp.asarray(toy.samples(3).log_weights)
    numbers = Examples(jnp.arange(log_weights.shape[1])[:, None])
    evaluation = evaluate(Weighted(log_weights), numbers, jax.random.key(3), 3, jackknife=True)
    np.testing.assert_allclose(evaluation.jackknife, jackknife_bound(log_weights), rtol=0, atol=1e-12)
    mean = toy.probabilities(3) @ evaluation.jackknife
    assert abs(mean - toy.log_likelihood) < 0.7 * (toy.log_likelihood - toy.expected_bound(3))


def test_the_jackknife_in_blocks(float64):
    """More samples than a block; one weight that outweighs all, several of −inf, only one that is not, none."""
    log_weights = np.random.default_rng(1).normal(0, 3, (2 * BLOCK + 20, 5))
    log_weights[7, 1], log_weights[30:, 2], log_weights[1:, 3], log_weights[:, 4] = 60.0, -np.inf, -np.inf, -np.inf
    model, examples = Weighted(jnp.asarray(log_weights)), Examples(jnp.arange(5)[:, None])
    evaluation = evaluate(model, examples, jax.random.key(3), len(log_weights), jackknife=True)
    np.testing.assert_allclose(evaluation.jackknife, jackknife_bound(log_weights), rtol=0, atol=1e-10)
    assert np.isneginf(evaluation.jackknife[3:]).all()
    assert evaluation.to_json()["jackknife_negative_log_likelihood"] is None
    with pytest.raises(UsageError, match="needs K = 2 or more; got 1"):
        evaluate(model, examples, jax.random.key(3), 1, jackknife=True)


def test_the_jackknife_with_two_equal_weights_in_float32():
    """Two samples with the same latents outweigh the rest; rounding may take the share of each above a half."""
    log_scale = np.random.default_rng(0).uniform(-130, -80, 60).astype(np.float32)
    for lower in (np.zeros((0, 1)), np.full((3, 1), -30.0)):
        log_weights = (log_scale + np.concatenate([np.zeros((2, 1)), lower])).astype(np.float32)
        examples = Examples(jnp.arange(60)[:, None])
        evaluation = evaluate(
            Weighted(jnp.asarray(log_weights)), examples, jax.random.key(3), len(log_weights), jackknife=True
        )
        expected = jackknife_bound(log_weights.astype(np.float64))
        np.testing.assert_allclose(evaluation.jackknife, expected, rtol=0, atol=2e-4)


def test_the_jackknife_with_one_weight_far_above_all_in_float32():
    """The sum of the others, relative to it, is below the smallest number."""
    log_weights = np.array([[0.0, -100.0], [-200.0, -350.0], [-210.0, -np.inf]], np.float32)
    examples = Examples(jnp.arange(2)[:, None])
    evaluation = evaluate(Weighted(jnp.asarray(log_weights)), examples, jax.random.key(3), 3, jackknife=True)
    np.testing.assert_allclose(evaluation.jackknife, jackknife_bound(log_weights), rtol=1e-5)


@pytest.mark.parametrize("number", [3, 7])  # six slices: a part of several has none
def test_parts_are_bit_for_bit_the_whole(number):
    model, examples, key = tiny_model(), Examples(pixels()), jax.random.key(3)
    whole = evaluate(model, examples, key, 60, jackknife=True)
    parts = [evaluate(model, examples, key, 60, part=(i + 1, number), jackknife=True) for i in range(number)]
    assert (min(len(part.bound) for part in parts) == 0) == (number == 7)
    for actual, expected in zip(joined(parts)[1:4], whole[1:4], strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(joined(parts).jackknife, whole.jackknife)
    with pytest.raises(UsageError, match="There is no part 4 of 3"):
        evaluate(model, examples, key, 60, part=(4, 3))


def test_progress_is_told_to_the_end():
    seen = []
    evaluate(AnyModel(1.0), Examples(pixels(450)), jax.random.key(0), BLOCK, lambda *counts: seen.append(counts))
    size = ROWS // BLOCK
    assert seen == [*((done, 450) for done in range(size, 450, size)), (450, 450)]


# Likelihoods


def test_many_samples_give_the_likelihood(float64):
    """Against the sum over all 2⁵ states of the latents: minus the bound is a little too large, never too small."""
    model, x = tiny_model(), np.array(list(itertools.product((0, 1), repeat=D)), np.uint8)
    latents = np.array(list(itertools.product((0.0, 1.0), repeat=5)))  # (32, 5): a (2, 3) network
    batch = Batch(jnp.asarray(x, jnp.float64))
    states = tuple(
        jnp.broadcast_to(part[:, None, :], (32, len(x), part.shape[1])) for part in (latents[:, :2], latents[:, 2:])
    )
    log_joint = eqx.filter_jit(model.weighted)(states, batch).log_joint
    exact = logsumexp(log_joint, axis=0)
    assert np.exp(exact).sum() == pytest.approx(1, abs=1e-9)  # a distribution over all x

    few, many = (evaluate(model, Examples(jnp.asarray(x)), jax.random.key(1), K) for K in (2, 2000))
    assert abs(many.mean_bound - exact.mean()) < 4 * many.monte_carlo_error < 0.05
    assert few.mean_bound < many.mean_bound - 0.02
    difference = (many.bound - exact) / many.variance**0.5
    assert np.abs(difference).max() < 4


def test_the_monte_carlo_error_is_what_repetition_shows():
    """The spread of 60 evaluations, known to a tenth, against the error that each states."""
    examples = Examples(pixels(20))
    model = ModelOfArrays(jnp.asarray(0.7))
    evaluations = [evaluate(model, examples, jax.random.key(seed), 40) for seed in range(60)]
    spread = np.std([e.mean_bound for e in evaluations], ddof=1)
    claimed = np.mean([e.monte_carlo_error for e in evaluations])
    assert 0.7 < spread / claimed < 1.3
    # Log-normal weights: Var f / (E f)² = exp(σ²) − 1.
    assert claimed == pytest.approx(((math.exp(0.49) - 1) / 40 / 20) ** 0.5, rel=0.1)


def test_one_sample_does_not_know_its_error():
    evaluation = evaluate(AnyModel(1.0), Examples(pixels()), jax.random.key(0), 1)
    assert np.isnan(evaluation.monte_carlo_error)
    assert np.isfinite(evaluation.standard_error)
    np.testing.assert_array_equal(evaluation.effective_sample_size, 1)
    assert evaluation.to_json()["monte_carlo_error"] is None


def test_weights_of_zero():
    """A sample of weight zero is a sample; an example whose samples all have weight zero has the bound −inf."""

    class Model:
        def importance_samples(self, key, batch, num_samples):
            lost = batch.observation[:, 0] == 1
            half = jnp.arange(num_samples)[:, None] % 2 == 1
            log_weights = jnp.where(half | lost, -jnp.inf, 0.0)
            return ImportanceSamples(log_weights, jnp.zeros_like(log_weights))

    x = jnp.asarray([[0, 0], [1, 0]], jnp.uint8)
    evaluation = evaluate(Model(), Examples(x), jax.random.key(0), 120)
    np.testing.assert_allclose(evaluation.bound, [math.log(0.5), -math.inf], rtol=1e-6)
    np.testing.assert_allclose(evaluation.effective_sample_size, [60, 0], rtol=1e-6)
    assert evaluation.to_json()["negative_log_likelihood"] is None  # JSON has no infinity


# Models


@pytest.mark.parametrize("kind", [AnyModel, UnhashableModel])
def test_any_object_with_importance_samples_will_do(kind):
    model, examples, key = kind(0.0), Examples(pixels()), jax.random.key(0)
    assert evaluate(model, examples, key, 8).mean_bound == 0
    model.scale = 2.0  # the object has changed, so the old compiled function must not be reused
    assert evaluate(model, examples, key, 8).mean_bound > 0.5


def test_context_reaches_the_model():
    class Model:
        def importance_samples(self, key, batch, num_samples):
            total = batch.context.sum(axis=1) - 10 * batch.observation.sum(axis=1)
            return ImportanceSamples(jnp.tile(total, (num_samples, 1)), jnp.zeros((num_samples, len(total))))

    x, c = pixels(), pixels(seed=1)
    evaluation = evaluate(Model(), Examples(x, c), jax.random.key(0), 2)
    np.testing.assert_allclose(evaluation.bound, np.sum(c, axis=1) - 10.0 * np.sum(x, axis=1), atol=1e-5)


@pytest.mark.parametrize("chance", [1.0, 0.0])
def test_the_log_loss_where_labels_are_impossible(chance):
    """The right label has probability ½ in half of the examples, and 1 (or 0) in the others; a third one has 0."""
    model, labels = AnyModel(1.0), jnp.eye(3)[jnp.array([0, 1, 0, 1])]

    def log_probabilities(key, batch, num_samples):
        is_first = batch.observation[:, :1] == 1
        each = jnp.where(is_first, jnp.array([0.5, 0.5, 0.0]), jnp.array([1 - chance, chance, 0.0]))
        return jnp.log(jnp.broadcast_to(each, (num_samples, *each.shape)))

    model.label_log_probabilities = log_probabilities
    evaluation = evaluate(model, Examples(labels), jax.random.key(0), 2)
    expected = math.log(2) / 2 if chance else math.inf
    assert evaluation.prediction.log_loss == pytest.approx(expected)
    assert evaluation.to_json()["log_loss"] == (pytest.approx(expected) if chance else None)


def test_active_units_of_an_object_that_has_changed():
    """An object that is no tree is compiled anew at each call, with all that is measured of it."""
    model = AnyModel(1.0)
    model.posterior_means = lambda key, batch, num_samples: (model.scale * batch.observation,)
    examples = Examples(pixels())
    assert evaluate(model, examples, jax.random.key(0), 2).active_units == (D,)
    model.scale = 0.0
    assert evaluate(model, examples, jax.random.key(0), 2).active_units == (0,)


def test_a_weight_that_is_no_number_is_no_zero():
    class Broken(eqx.Module):
        def importance_samples(self, key, batch, num_samples):
            weights = jnp.zeros((num_samples, len(batch.observation))).at[0, 0].set(jnp.nan)
            return ImportanceSamples(weights, jnp.zeros_like(weights))

    evaluation = evaluate(Broken(), Examples(pixels()), jax.random.key(0), 3)
    for values, of_others in (
        (evaluation.bound, 0.0),
        (evaluation.variance, 0.0),
        (evaluation.effective_sample_size, 3.0),
    ):
        assert np.isnan(values[0])
        np.testing.assert_allclose(values[1:], of_others, atol=1e-6)


OUTSIDE = """
import jax, jax.numpy as jnp, numpy as np, vimco
model = vimco.generative_sbn(jax.random.key(0), (2,), jnp.full(3, 0.5))
for K in np.array([1, 3]):
    evaluation = vimco.evaluate(model, vimco.Examples(jnp.zeros((6, 3))), jax.random.key(0), K)
    print(evaluation.num_samples, evaluation.bound.shape)
statistics = vimco.gradient_statistics(model, vimco.VIMCO(), jax.random.key(0), vimco.Batch(jnp.zeros((6, 3))), K, 2)
try:
    vimco.Examples(jnp.zeros((6, 3)), jnp.zeros((2, 1)))
except vimco.UsageError as error:
    print(error)
half = jnp.full(3, 0.5)
for build, sizes in ((vimco.structured_sbn, ((2,), half, half)), (vimco.models.attention_model, ((28, 28),))):
    try:
        build(jax.random.key(0), *sizes, proposal="Learned")
    except vimco.UsageError as error:
        print(error)
for estimator, choice in ((vimco.BBVI, "layers"), (vimco.MuProp, "ELBO"), (vimco.LocalExpectations, "L")):
    try:
        estimator(choice)
    except vimco.UsageError as error:
        print(error)
"""


def test_where_nobody_checks_types():
    """In the tests every annotation is checked; a user may use numbers of NumPy, mix two splits up, or misspell."""
    done = subprocess.run([sys.executable, "-c", OUTSIDE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "1 (6,)",
        "3 (6,)",
        "Every example has one context: got 6 observations and 2 contexts.",
        "The proposal is one of learned, prior; got 'Learned'.",
        "The proposal is one of learned, prior; got 'Learned'.",
        "The control variate of BBVI is one of layer, unit, same-samples, none; got 'layers'.",
        "The objective of MuProp is one of bound, elbo; got 'ELBO'.",
        "The objective of local expectations is one of bound, elbo; got 'L'.",
    ]


def test_no_samples_are_refused():
    with pytest.raises(UsageError, match="one example or more"):
        evaluate(AnyModel(1.0), Examples(pixels()[:0]), jax.random.key(0), 1)
    with pytest.raises(UsageError, match="one sample or more"):
        evaluate(AnyModel(1.0), Examples(pixels()), jax.random.key(0), 0)


# Comparisons


def record(bound):
    return Evaluation(10, np.asarray(bound), np.ones(len(bound)), np.ones(len(bound)))


def test_paired_comparison():
    """Second minus first, in negative log-likelihood: differences 1, 2, 3 have mean 2 and standard error 1/√3."""
    comparison = paired_comparison(record([-80.0, -120.0, -100.0]), record([-81.0, -122.0, -103.0]))
    assert comparison.difference == pytest.approx(2)
    assert comparison.standard_error == pytest.approx(3**-0.5)
    with pytest.raises(UsageError, match="same examples"):
        paired_comparison(record([1.0]), record([1.0, 2.0]))


def test_a_single_example_has_no_standard_error():
    assert np.isnan(record([-3.0]).standard_error)
    assert record([-3.0]).to_json()["standard_error"] is None
