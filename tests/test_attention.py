"""Hard attention: probabilities by hand, gradients by a sum over all paths, scenes, and a run from end to end."""

import dataclasses
import functools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import Toy, copies, cosine, gradient_of_surrogates, raveled
from jax.flatten_util import ravel_pytree
from recorded import recorded_run

import vimco
from vimco import NVIL, RWS, VIMCO, Batch, ImportanceSampledEM, RunConfig, UsageError, attention_model
from vimco.cli.evaluate import _are_comparable
from vimco.data import load_dataset
from vimco.estimators import RAM
from vimco.estimators.baselines import RunningMoments
from vimco.models.attention import Retina, _first_above, _uniforms
from vimco.models.scenes import Canvas
from vimco.parameters import partition
from vimco.runs.experiment import Experiment
from vimco.signals import arithmetic_mean_of_others
from vimco.studies import STUDIES
from vimco.studies.results import collected

PATHS = np.indices((4, 4)).reshape(2, -1).T  # two glimpses at four places
KINDS = ("prior", "learned")


@eqx.filter_jit
def tiny_model(proposal):
    """Parameters far from zero: policy, labels and proposal have clear preferences."""
    model = attention_model(jax.random.key(0), (4, 4), glimpses=2, units=3, grid=2, patch=2, scales=2, num_labels=3)
    parameters, rest = partition(model)
    flat, unravel = ravel_pytree(parameters)
    model = eqx.combine(unravel(flat + 0.7 * jax.random.normal(jax.random.key(6), flat.shape)), rest)
    if proposal == "mild":  # policy and proposal have slight preferences
        parts = lambda m: (m.policy, m.proposal)  # noqa: E731
        return eqx.tree_at(parts, model, jax.tree.map(lambda leaf: 0.2 * leaf, parts(model)))
    return model if proposal == "learned" else dataclasses.replace(model, proposal=None)


def example():
    image = np.random.default_rng(0).integers(0, 2, (1, 16)).astype(float)
    return Batch(jnp.array([[0.0, 1.0, 0.0]]), jnp.asarray(image))


@functools.cache
def toy_of(proposal):
    with jax.enable_x64(True):
        many = copies(example(), len(PATHS))
        places = jnp.asarray(PATHS)[None]
        toy = Toy.of(tiny_model(proposal), example(), lambda m: m.weighted(places, many))
        return dataclasses.replace(toy, shared_parameters=proposal == "prior")


def part(toy, vector, name):
    """Return the part of a gradient that belongs to policy, classifier, proposal, or core with glimpse network."""
    tree = toy.unravel(vector)
    return raveled((tree.glimpse, tree.place, tree.input, tree.recurrent) if name == "core" else getattr(tree, name))


@pytest.mark.usefixtures("float64")
class TestProbabilities:
    @pytest.mark.parametrize("proposal", KINDS)
    def test_they_are_the_definitions(self, proposal):
        toy, model, batch = toy_of(proposal), tiny_model(proposal), example()
        glimpses = np.asarray(model.retina(batch.context))[0]
        coarse = np.asarray(batch.context).reshape(4, 4).mean()[None]

        def relu(x):
            return np.maximum(x, 0)

        def log_softmax(x):
            return x - np.logaddexp.reduce(x)

        for path, log_joint, log_proposal in zip(PATHS, toy.log_joint, toy.log_proposal, strict=True):
            state, expected, of_proposal, seen = np.zeros(3), 0.0, 0.0, np.zeros(3)
            for t, place in enumerate(path):
                expected += log_softmax(state @ model.policy.weight + model.policy.bias)[place]
                if proposal == "learned":
                    q = model.proposal
                    hidden = relu(coarse @ q.image.weight + q.image.bias + q.label[1] + q.number[t] + seen)
                    of_proposal += log_softmax(hidden @ q.output.weight + q.output.bias)[place]
                    seen = seen + q.earlier[place]
                look = relu(glimpses[place] @ model.glimpse.weight + model.glimpse.bias + model.place[place])
                state = relu(state @ model.recurrent + look @ model.input.weight + model.input.bias)
            of_proposal = of_proposal if proposal == "learned" else expected
            expected += log_softmax(state @ model.classifier.weight + model.classifier.bias)[1]
            np.testing.assert_allclose(log_joint, expected, rtol=1e-12)
            np.testing.assert_allclose(log_proposal, of_proposal, rtol=1e-12)
        assert np.sum(np.exp(toy.log_proposal)) == pytest.approx(1, abs=1e-12)

    def test_all_labels_and_paths_sum_to_one(self):
        model, batch = tiny_model("prior"), copies(example(), 16)
        paths = eqx.filter_jit(lambda m: m.paths(batch, lambda t, _: jnp.asarray(PATHS)[None, :, t]))(model)
        assert np.sum(np.exp(paths.log_prior + jax.nn.logsumexp(paths.log_labels, -1))) == pytest.approx(1, abs=1e-12)

    def test_retina_is_means_of_pixels_around_a_centre(self):
        """At scale s pixel (i, j) of the patch at (r, c) is the mean of a square; black outside the image."""
        retina = Retina((9, 8), grid=3, patch=4, scales=3)
        image = np.random.default_rng(1).random((9, 8))
        expected = np.zeros((9, 48))
        padded = np.pad(image, 20)
        starts = [[round(i * (size - 4) / 2) for i in range(3)] for size in (9, 8)]  # 0, 2, 5 (2.5 is rounded to even)
        for place in range(9):
            row, column = starts[0][place // 3], starts[1][place % 3]
            for s, i, j in np.ndindex(3, 4, 4):
                width = 2**s
                top, left = (20 + first + 2 - 2 * width for first in (row, column))
                square = padded[top + i * width :, left + j * width :][:width, :width]
                expected[place, 16 * s + 4 * i + j] = square.mean()
        np.testing.assert_allclose(retina(jnp.asarray(image.reshape(1, -1)))[0], expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_paths_are_drawn_from_the_proposal_and_do_not_depend_on_slices():
    """20,000 draws: the share of each of 16 paths within five standard deviations."""
    for proposal in KINDS:
        model = dataclasses.replace(tiny_model(proposal), slice_size=700)
        samples = eqx.filter_jit(model.importance_samples)(jax.random.key(2), example(), 20_000)
        whole = eqx.filter_jit(tiny_model(proposal).importance_samples)(jax.random.key(2), example(), 20_000)
        np.testing.assert_allclose(samples.log_joint, whole.log_joint, atol=1e-5)
        toy = toy_of(proposal)
        nearest = np.argmin(np.abs(np.asarray(samples.log_joint) - toy.log_joint), axis=1)
        share, exact = np.bincount(nearest, minlength=16) / 20_000, np.exp(toy.log_proposal)
        assert np.all(np.abs(share - exact) < 5 * np.sqrt(exact / 20_000))


@functools.cache
def labels_of_paths():
    """Return log P(y | a, image) of all paths, and their gradients. Policy and proposal have no part in them."""
    with jax.enable_x64(True):
        parameters, rest = partition(tiny_model("learned"))
        flat, unravel = ravel_pytree(parameters)
        batch = copies(example(), len(PATHS))

        def of_labels(flat):
            paths = eqx.combine(unravel(flat), rest).paths(batch, lambda t, _: jnp.asarray(PATHS)[None, :, t])
            return jnp.sum(paths.log_labels[0] * batch.observation, axis=-1)

        return np.asarray(jax.jit(of_labels)(flat)), np.asarray(jax.jit(jax.jacrev(of_labels))(flat))


def of_sets(toy, estimator, K):
    """Return the gradient that each set of K paths gives, for an estimator that knows log P(y | a, image)."""
    sets, (values, gradient) = toy.sets(K), labels_of_paths()
    samples = dataclasses.replace(toy.samples(K), log_likelihood=jnp.asarray(values[sets]))
    record = gradient_of_surrogates(samples, estimator, None)
    return sum(
        np.einsum("ks,ksp->sp", factors, rows[sets])
        for factors, rows in (
            (record.log_joint, toy.gradient_of_log_joint),
            (record.log_proposal, toy.gradient_of_log_proposal),
            (record.log_likelihood, gradient),
        )
    )


@pytest.mark.usefixtures("float64")
class TestGradients:
    @pytest.mark.parametrize("proposal", KINDS)
    @pytest.mark.parametrize("K", [2, 3])
    @pytest.mark.parametrize("estimator", [VIMCO(), VIMCO(arithmetic_mean_of_others)], ids=["geometric", "arithmetic"])
    def test_vimco_is_unbiased_for_every_parameter(self, proposal, K, estimator):
        toy = toy_of(proposal)
        exact = toy.exact_gradient(K)
        np.testing.assert_allclose(toy.expected_gradient(estimator, K), exact, rtol=0, atol=1e-12)
        names = ("core", "policy", "classifier", *(("proposal",) if proposal == "learned" else ()))
        assert all(np.linalg.norm(part(toy, exact, name)) > 1e-2 for name in names)

    @pytest.mark.parametrize("proposal", KINDS)
    def test_normaliser_of_nvil_scales_what_shares_parameters_as_one(self, proposal):
        """The core serves policy and labels: scaled apart, its two gradients would not sum to one that ascends."""
        toy = toy_of(proposal)
        moments = eqx.tree_at(lambda m: (m.mean, m.variance), RunningMoments(), (jnp.array(-1.0), jnp.array(81.0)))
        nvil = NVIL(moments=moments, scale_sees_batch=False)
        expected, exact = toy.expected_gradient(nvil, 2), toy.exact_gradient(2)
        if proposal == "learned":
            scales = {"core": 1, "policy": 1, "classifier": 1, "proposal": 9}
            for name, scale in scales.items():
                np.testing.assert_allclose(scale * part(toy, expected, name), part(toy, exact, name), atol=1e-12)
        else:
            np.testing.assert_allclose(9 * expected, exact, rtol=0, atol=1e-12)
            apart = dataclasses.replace(toy, shared_parameters=False).expected_gradient(nvil, 2)
            assert cosine(part(toy, apart, "core"), part(toy, exact, "core")) < 0.995

    def test_tang_is_exact_for_labels_and_follows_weighted_scores_elsewhere(self):
        toy = toy_of("prior")
        expected, exact = toy.expected_gradient(ImportanceSampledEM(), 2), toy.exact_gradient(2)
        np.testing.assert_allclose(part(toy, expected, "classifier"), part(toy, exact, "classifier"), atol=1e-12)
        weights = np.exp((toy.log_joint - toy.log_proposal)[toy.sets(2)])
        weights /= weights.sum(axis=0)
        mean = np.einsum("s,ks,ksp->p", toy.probabilities(2), weights, toy.gradient_of_log_joint[toy.sets(2)])
        np.testing.assert_allclose(expected, mean, rtol=0, atol=1e-12)
        assert np.linalg.norm(part(toy, expected - exact, "policy")) > 1e-2

    @pytest.mark.parametrize("centred", [False, True])
    def test_ws_ram_is_exact_for_the_model_and_its_proposal_leaves_the_core_alone(self, centred):
        toy = toy_of("learned")
        expected, exact = toy.expected_gradient(RWS(centred=centred), 2), toy.exact_gradient(2)
        for name in ("core", "policy", "classifier"):
            np.testing.assert_allclose(part(toy, expected, name), part(toy, exact, name), atol=1e-12)
            assert all(not np.any(part(toy, row, name)) for row in toy.gradient_of_log_proposal)
        assert np.linalg.norm(part(toy, expected - exact, "proposal")) > 1e-2

    @pytest.mark.parametrize("K", [2, 3])
    def test_control_variate_of_ws_ram_changes_no_mean(self, K):
        """P(a) / (K Q(a)) before the policy's score: exact for policy and core, by sums over all sets of paths."""
        toy = toy_of("learned")
        expected, exact = toy.probabilities(K) @ of_sets(toy, RWS(prior_control=True), K), toy.exact_gradient(K)
        np.testing.assert_allclose(expected, toy.expected_gradient(RWS(), K), rtol=0, atol=1e-12)
        for name in ("core", "policy", "classifier"):
            np.testing.assert_allclose(part(toy, expected, name), part(toy, exact, name), atol=1e-12)

    @pytest.mark.parametrize(("kind", "ratio"), [("mild", 0.599), ("learned", 19.289)])
    def test_control_variate_of_ws_ram_is_for_proposals_near_the_policy(self, kind, ratio):
        """The variance of all parameters with it over that without: both nearly uniform, or far from each other."""
        toy = toy_of(kind)
        probability = toy.probabilities(2)

        def variance(estimator):
            rows = of_sets(toy, estimator, 2)
            return float(probability @ np.sum((rows - probability @ rows) ** 2, axis=1))

        assert variance(RWS(prior_control=True)) / variance(RWS()) == pytest.approx(ratio, abs=5e-3)

    def test_control_variate_of_ws_ram_is_biased_if_it_is_normalised(self):
        """With P/Q divided by its sum over the samples, as a share of the policy's gradient."""
        toy, K = toy_of("learned"), 2
        of_labels, gradient_of_labels = labels_of_paths()
        ratios = np.exp(toy.log_joint - of_labels - toy.log_proposal)[toy.sets(K)]
        scores = (toy.gradient_of_log_joint - gradient_of_labels)[toy.sets(K)]
        mean = np.einsum("s,ks,ksp->p", toy.probabilities(K), ratios / ratios.sum(axis=0), scores)
        exact = part(toy, toy.exact_gradient(K), "policy")
        assert np.linalg.norm(part(toy, mean, "policy")) / np.linalg.norm(exact) == pytest.approx(1.0305, abs=5e-4)

    def test_ram_ascends_rewards_by_its_policy_and_the_likelihood_elsewhere(self):
        """Both by hand: ∇ Σ_a P(a) R(a), and Σ_a P(a) ∇ log P(y | a), with a baseline that is not zero."""
        toy, many = toy_of("prior"), copies(example(), 16)
        parameters, rest = partition(toy.model)
        flat, unravel = ravel_pytree(parameters)
        ram = RAM(eqx.tree_at(lambda m: m.mean, RunningMoments(), jnp.array(0.4)))
        probability = np.exp(toy.log_proposal)
        of_labels = toy.model.paths(many, lambda t, _: jnp.asarray(PATHS)[None, :, t]).log_labels[0]
        reward = (np.argmax(of_labels, axis=-1) == 1).astype(float)
        assert 0.05 < probability @ reward < 0.95

        def surrogate(flat):
            model = eqx.combine(unravel(flat), rest)
            return probability @ ram(model.rewarded(many, lambda t, _: jnp.asarray(PATHS)[None, :, t])).surrogate

        expected = jax.jit(jax.grad(surrogate))(flat)
        of_policy = (probability * reward) @ toy.gradient_of_log_proposal
        others = probability @ (toy.gradient_of_log_joint - toy.gradient_of_log_proposal)
        np.testing.assert_allclose(part(toy, expected, "policy"), part(toy, of_policy, "policy"), atol=1e-12)
        for name in ("core", "classifier"):
            np.testing.assert_allclose(part(toy, expected, name), part(toy, others, name), atol=1e-12)


@eqx.filter_jit
def drawn(model, method, batch):
    return getattr(model, method)(jax.random.key(0), batch, 3)


def test_baseline_of_ram_is_the_running_mean_of_earlier_rewards():
    model, batch = tiny_model("prior"), copies(example(), 5)
    samples = drawn(model, "rewarded_samples", batch)
    ram = RAM(RunningMoments(0.9))
    estimate = ram(samples, batch)
    np.testing.assert_allclose(estimate.objective, jnp.mean(samples.log_weights, axis=0), rtol=1e-5)
    np.testing.assert_array_equal(estimate.learning_signal, samples.reward)  # nothing was seen before
    after = ram.updated(estimate)
    assert after.baseline.mean == pytest.approx(float(jnp.mean(samples.reward)))
    np.testing.assert_allclose(after(samples, batch).learning_signal, samples.reward - after.baseline.mean)
    with pytest.raises(UsageError, match="Use --proposal prior, or RWS"):
        ram(drawn(tiny_model("learned"), "rewarded_samples", batch))
    with pytest.raises(UsageError, match="needs the reward of a right label"):
        ram(drawn(model, "importance_samples", batch))


class TestScenes:
    IMAGES = np.random.default_rng(0).integers(0, 2, (30, 15)).astype(np.uint8)

    def test_a_scene_depends_on_key_row_and_draw_alone(self):
        canvas = Canvas(jax.random.key(0), (9, 8), (5, 3), pieces=2, piece_size=2)
        make = jax.jit(lambda rows, draw: canvas(jnp.asarray(self.IMAGES), rows, draw))
        scenes = make(jnp.array([3, 7, 3]), jnp.array(5))
        np.testing.assert_array_equal(scenes[0], scenes[2])
        np.testing.assert_array_equal(make(jnp.array([7, 1, 2]), jnp.array(5))[0], scenes[1])
        assert np.any(make(jnp.array([3, 7, 3]), jnp.array(6)) != scenes)

    def test_images_are_whole_and_at_every_place_alike(self):
        """Of 4000 draws the image lies at each of 5 x 6 places in a thirtieth, within five standard deviations."""
        canvas = Canvas(jax.random.key(0), (9, 8), (5, 3))
        image = np.ones((1, 15), np.uint8)
        draws = jax.jit(jax.vmap(lambda n: canvas(jnp.asarray(image), jnp.array([0]), n)))(jnp.arange(4000))
        scenes = np.asarray(draws).reshape(-1, 9, 8)
        assert np.all(scenes.sum((1, 2)) == 15)
        corner = scenes.reshape(-1, 72).argmax(1)
        share = np.bincount(corner, minlength=72).reshape(9, 8)[:5, :6] / 4000
        assert share.sum() == 1
        assert np.all(np.abs(share - 1 / 30) < 5 * (1 / 30 / 4000) ** 0.5)

    def test_clutter_is_pieces_of_other_images(self):
        """The row's own image is black and the other ones white: what is seen are three squares of two pixels."""
        canvas = Canvas(jax.random.key(0), (9, 8), (5, 3), pieces=3, piece_size=2)
        images = jnp.asarray(np.concatenate([np.zeros((1, 15)), np.ones((4, 15))]).astype(np.uint8))
        draws = jax.jit(jax.vmap(lambda n: canvas(images, jnp.array([0]), n)))(jnp.arange(300))
        seen = np.asarray(draws).sum((1, 2))
        assert seen.max() == 12  # no two of them on one pixel
        assert seen.min() >= 4

    def test_labels_belong_to_their_images(self):
        """The nearest of ten mean images is of the right digit four times in five; with labels in disorder, in ten."""
        dataset = load_dataset("translated-mnist")  # loading compares the checksum
        train, test, labels = dataset.train, dataset.test, dataset.scenes.labels
        means = np.stack([train[labels[0] == digit].mean(0) for digit in range(10)])
        for images, right in ((test, labels[2]), (dataset.validation, labels[1])):
            distance = (means**2).sum(1) - 2 * images @ means.T
            assert np.mean(distance.argmin(1) == right) > 0.78

    def test_the_mean_is_that_of_the_scenes(self):
        """Over 2000 scenes, pixel by pixel, to five standard deviations of a coin; label by label exactly."""
        dataset = load_dataset("translated-bars")
        examples = Experiment(SMALL, dataset).examples("train")
        batches = jax.jit(jax.vmap(lambda n: examples.batch(jnp.arange(500), jnp.result_type(float), draw=n)))(
            jnp.arange(4)
        )
        mean = dataset.training_mean
        assert np.all(np.abs(np.mean(batches.context, (0, 1)) - mean[:256]) < 5 * 0.5 / 2000**0.5)
        np.testing.assert_allclose(np.mean(examples.observation, 0), mean[256:], atol=1e-6)
        assert mean[:256].max() < 0.3

    def test_evaluation_sees_the_same_scenes_with_every_seed(self):
        dataset = load_dataset("translated-bars")

        def scenes(seed, split, draw=0):
            examples = Experiment(RunConfig(task="attention", data="translated-bars", seed=seed), dataset).examples(
                split
            )
            return np.asarray(examples.batch(jnp.arange(8), jnp.result_type(float), draw=draw).context)

        for split in ("validation", "test"):
            np.testing.assert_array_equal(scenes(0, split), scenes(1, split))
        assert np.any(scenes(0, "train") != scenes(1, "train"))
        assert np.any(scenes(0, "train") != scenes(0, "train", 1))


SMALL = RunConfig(
    task="attention",
    task_options=("glimpses=2", "units=4", "grid=2", "patch=4", "scales=2"),
    data="translated-bars",
    proposal="prior",
    batch_size=200,
    num_samples=2,
    log_every=2,
    validate_every=4,
)


def parameters_of(run):
    return ravel_pytree(partition(run.model("latest"))[0])[0]


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path):
    """Across the end of an epoch, which has three updates. RAM carries a baseline along."""
    config = dataclasses.replace(SMALL, estimator="ram")
    whole = vimco.train(dataclasses.replace(config, updates=5), tmp_path / "whole")
    vimco.train(dataclasses.replace(config, updates=2), tmp_path / "parts")
    parts = vimco.resume(tmp_path / "parts", updates=5)
    np.testing.assert_array_equal(parameters_of(parts), parameters_of(whole))
    names = ("train_bound", "validation_bound", "validation_error", "validation_log_loss")
    last = [[run.metrics()[-1][name] for name in names] for run in (parts, whole)]
    assert last[0] == last[1]
    assert 0 < last[0][2] < 1
    assert (parts.path / "samples.png").exists()
    evaluation = parts.evaluate(num_samples=3, split="validation", weights="latest")
    assert 0 < evaluation.prediction.error < 1
    assert evaluation.to_json()["error"] == evaluation.prediction.error


def test_errors_and_log_loss_are_those_of_the_mean_of_twenty_paths():
    from vimco.training.evaluation import evaluate

    examples = Experiment(SMALL, load_dataset("translated-bars")).examples("test")
    model = attention_model(jax.random.key(3), (16, 16), proposal="prior", glimpses=2, units=4, grid=2, patch=4)
    prediction = evaluate(model, examples, jax.random.key(0), 1).prediction
    parts = []
    for number in range(2):  # slices of 120 examples, of which there are 200
        rows = (120 * number + jnp.arange(120)) % 200
        batch = examples.batch(rows, jnp.result_type(float))
        key = jax.random.fold_in(jax.random.key(0), number)
        each = np.exp(eqx.filter_jit(model.label_log_probabilities)(key, batch, 20))
        label = np.asarray(batch.observation).argmax(1)
        mean = each.mean(0)
        parts.append((mean.argmax(1) != label, (each.argmax(2) != label).mean(0), -np.log(mean[np.arange(120), label])))
    expected = [np.concatenate(column)[:200].mean() for column in zip(*parts, strict=True)]
    np.testing.assert_allclose(prediction, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "synthetic"}, "--data synthetic has none: use translated-mnist or cluttered-mnist"),
        ({"task": "generative", "task_options": (), "proposal": "learned"}, "it is for --task attention"),
        ({"task_options": ("patch=17",)}, "does not fit into images of 16 x 16"),
        ({"task_options": ("grid=1",)}, "The option grid of an attention model is 2 or more"),
        ({"task_options": ("glimpses=0",)}, "The option glimpses of an attention model is 1 or more"),
        ({"layers": (5,)}, "--layers 5 goes with"),
        ({"estimator": "ram", "proposal": "learned"}, "Use --proposal prior, or RWS"),
        ({"estimator": "rws"}, "cannot train a prior that is its own proposal"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path, changes, message):
    with pytest.raises(UsageError, match=message):
        vimco.train(dataclasses.replace(SMALL, updates=1, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_improbable_last_choice_is_not_drawn_by_rounding():
    """In float32 the sum of the probabilities may end below the largest uniform number."""
    logits = 3 * jax.random.normal(jax.random.key(0), (1, 2000, 49))
    log_probabilities = jax.nn.log_softmax(logits.at[..., -1].set(-60.0))
    assert jnp.any(jnp.cumsum(jnp.exp(log_probabilities), axis=-1)[..., -1] <= 1 - 2.0**-24)
    assert jnp.all(_first_above(jnp.full((1, 2000), 1 - 2.0**-24), log_probabilities) < 48)


def test_an_improbable_first_choice_is_not_drawn_by_rounding(monkeypatch):
    """A word of zero is one in 2²⁴: a choice of probability e⁻⁶⁰ would be drawn that often, with a weight of e⁶⁰."""
    words = jnp.zeros((1, 1, 2), "uint32")
    monkeypatch.setattr("vimco.models.attention.sample_words", lambda *_: (words, words))
    uniforms = _uniforms(jax.random.key(0), jnp.arange(1), 1, Batch(jnp.zeros((2, 10)), jnp.zeros((2, 4))))
    log_probabilities = jax.nn.log_softmax(jnp.zeros((1, 2, 49)).at[..., 0].set(-60.0))
    assert jnp.all(_first_above(uniforms[:, 0], log_probabilities) == 1)


def test_a_piece_lies_elsewhere_than_in_its_image():
    """The other image has one pixel; on a canvas of the same size it is seen at several places."""
    images = jnp.zeros((2, 64), "uint8").at[1, 3 * 8 + 3].set(1)
    canvas = Canvas(jax.random.key(0), (8, 8), (8, 8), pieces=1, piece_size=4)
    seen = {int(canvas(images, jnp.array([0]), jnp.array(draw))[0].argmax()) for draw in range(40)}
    assert len(seen - {0}) > 5


def test_the_study_compares_errors_after_equal_updates_and_equal_time(tmp_path):
    """Two runs, the second twice as slow: its errors within the first one's time are those of half the updates."""
    study = STUDIES["attention"]
    assert {run.data for run in study.adjusted(updates=20)} == {"translated-mnist"}
    configs = study.adjusted(updates=1000, rates=[1e-3], only=["ram", "prior-vimco"])
    for config, pace in zip(configs, (1, 2), strict=True):
        path = recorded_run(tmp_path, config, likelihood=0.5, num_samples=100)
        lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            line["processor_seconds"] = line["processor_seconds"] * pace + 30  # 30 seconds of compiling do not count
            if "validation_bound" in line:
                share = line["update"] / 1000
                line |= {"validation_error": 0.9 - 0.8 * share, "validation_log_loss": 2.3 - 2 * share}
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        summary = json.loads((path / "summary.json").read_text())
        summary["evaluations"][0] |= {"error": 0.08, "error_of_one": 0.125, "log_loss": 0.5}
        (path / "summary.json").write_text(json.dumps(summary))
    (claim,) = [claim for claim in study.claims if "(VIMCO)" in claim.statement]
    assert claim.check(collected([tmp_path])[0]).verdict == "not seen"  # both have 0.3 nats after all updates
    course, outcome, *_, curves, places = study.show(study, collected([tmp_path])[0])
    rows = [[entry.text for entry in row] for row in course.rows]
    assert rows == [
        ["RAM", "10.00%", "0.300", "10.00%", "0.300", "100.00"],
        ["VIMCO", "10.00%", "0.300", "50.00%", "1.300", "200.00"],
    ]
    assert course.headings[1:4:2] == ("wrong after 1k updates", "wrong after 100 seconds")
    assert [entry.text for entry in outcome.rows[0]] == ["RAM", "8.00%", "12.50%", "0.500 ± 0.250"]
    assert "labels wrong (%): RAM 10.00 at update 1,000, VIMCO 10.00" in curves.alternative
    assert "glimpse by glimpse" in places.caption


@pytest.mark.parametrize(("seed", "split", "is_alike"), [(0, "train", True), (1, "train", False), (1, "test", True)])
def test_scenes_for_training_are_compared_with_those_of_the_same_seed(tmp_path, seed, split, is_alike):
    config = RunConfig(task="attention", data="translated-mnist", updates=100)
    first, second = (
        vimco.load(recorded_run(tmp_path, dataclasses.replace(config, seed=s), name=name))
        for s, name in ((0, "first"), (seed, "second"))
    )
    assert _are_comparable(first, second, split) == is_alike
