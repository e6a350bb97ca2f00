"""Several devices: the samples of one device bit for bit, its gradients to rounding, whole slices in evaluations."""

import dataclasses
import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from enumeration import sbn_model
from jax.flatten_util import ravel_pytree

import vimco
from vimco import RunConfig, UsageError, named_estimator
from vimco.data import load_dataset
from vimco.estimators import ESTIMATORS
from vimco.models import attention_model, gaussian_model
from vimco.runs import directory
from vimco.runs.experiment import Experiment
from vimco.samples import Examples, Keys
from vimco.training.devices import mesh_of, on_every_device, refuse_uneven
from vimco.training.evaluation import evaluate
from vimco.training.loop import Totals, Trainer, TrainingState, advance, gradient_and_estimate

B = 32
ONE_MODEL = {"tang": "structured-prior", "ram": "attention-prior"} | dict.fromkeys(
    ("pathwise", "dreg", "stl", "rws-dreg"), "gaussian"
)
K_OF = {"stl": 1}
CASES = [  # with the numbers of devices: every estimator on two, four and eight
    *((name, "generative", 3, (4, 8)) for name in ESTIMATORS if name not in ONE_MODEL),
    *((name, "structured-learned", 3, (2,)) for name in ESTIMATORS if name not in ONE_MODEL),
    *((name, kind, K_OF.get(name, 3), (2, 4, 8)) for name, kind in ONE_MODEL.items()),
    *((name, "attention-learned", 3, (4,)) for name in ("vimco", "rws-both")),
    *((name, "structured-prior", 3, (2, 4, 8)) for name in ("vimco", "nvil")),
    *((name, "structured-learned", 3, (4, 8)) for name in ("vimco", "nvil")),
    *((name, "generative", 3, (2,)) for name in ("vimco", "nvil")),
    ("nvil local-signals=true", "generative", 1, (4,)),
    ("muprop baseline-width=2 variance-normalisation=true", "generative", 3, (4,)),
]


@functools.cache
def model_of(kind):
    """Return a model whose parameters are not the initial ones, so that a gradient says something."""
    if kind == "gaussian":
        model = gaussian_model(jax.random.key(0), (2,), jnp.full(3, 0.4), hidden=(2,))
    elif kind.startswith("attention"):
        sizes = {"glimpses": 2, "units": 3, "grid": 2, "patch": 2, "scales": 1, "num_labels": 3}
        model = attention_model(jax.random.key(0), (3, 3), proposal=kind.removeprefix("attention-"), **sizes)
    else:
        model = sbn_model(kind)
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    flat, unflat = ravel_pytree(arrays)
    return eqx.combine(unflat(flat + jax.random.normal(jax.random.key(5), flat.shape)), rest)


def examples_of(kind):
    model = model_of(kind)
    if kind.startswith("attention"):
        images = jax.random.bernoulli(jax.random.key(1), 0.4, (B, 9)).astype(jnp.uint8)
        return Examples(jax.nn.one_hot(jnp.arange(B) % 3, 3, dtype=jnp.uint8), images)
    D, C = (3, 0) if kind == "gaussian" else (model.likelihood.bias.shape[0], model.centre_context.mean.shape[0])
    bits = jax.random.bernoulli(jax.random.key(1), 0.4, (B, D + C)).astype(jnp.uint8)
    return Examples(bits[:, :D], bits[:, D:])


@eqx.filter_jit
def gradient_on(n, K, model, estimator, examples, number):
    """Return the gradient and the estimate of an update on this many devices, and the estimator that has seen it."""
    keys = Keys(*jax.random.split(jax.random.key(3), 3))
    trainer = Trainer(optax.sgd(1.0), K, B, None, keys, jax.random.key(4), mesh_of(n))
    state = TrainingState(model, estimator, None, None, number, Totals.zero(), number)

    def on_one(part, state, examples):
        order = trainer.epoch_order(examples, 0)
        gradient, estimate = gradient_and_estimate(trainer, state, examples, order, part)
        return gradient, estimate, state.estimator.updated(estimate)

    if trainer.mesh is None:
        return on_one(None, state, examples)
    return on_every_device(on_one, trainer.mesh, state, examples)


@pytest.mark.filterwarnings("ignore:Leaving the sample out")
@pytest.mark.parametrize(("name", "kind", "K", "numbers"), CASES)
def test_the_gradient_is_that_of_one_device(name, kind, K, numbers):
    """At equal state, which has seen an update: gradient, signals, and the estimator's next state."""
    model, examples = model_of(kind), examples_of(kind)
    mean = jnp.full(examples.observation.shape[1] + examples.context.shape[1], 0.4)
    fresh = named_estimator(name.split()[0], jax.random.key(7), mean, name.split()[1:])
    number = jnp.asarray(0)
    _, _, estimator = gradient_on(1, K, model, fresh, examples, number)
    one = gradient_on(1, K, model, estimator, examples, number + 1)
    assert max(np.abs(leaf).max(initial=0) for leaf in jax.tree.leaves(one[0])) > 1e-3
    for n in numbers:
        several = gradient_on(n, K, model, estimator, examples, number + 1)
        for actual, expected in zip(several, one, strict=True):
            actual, expected = (np.concatenate([np.ravel(a) for a in arrays_of(tree)]) for tree in (actual, expected))
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-6 * np.abs(expected).max(initial=0))


def arrays_of(tree):
    return [np.zeros(0), *jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


@pytest.mark.parametrize(("name", "exchanges"), [("vimco", 1), ("rws-both", 1), ("nvil", 2)])
@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_an_update_has_one_exchange_on_every_platform(name, exchanges, platform):
    """NVIL has one more, of the residuals that its normaliser sees. Lowering needs no device of the platform."""
    config = RunConfig(data="synthetic", layers=(3, 2), num_samples=2, averaging=0.9, estimator=name)
    experiment = Experiment(config, load_dataset("synthetic"))
    examples = experiment.examples("train")
    order, number = experiment.trainer.epoch_order(examples, 0), jnp.asarray(3, jnp.int32)
    trainer = dataclasses.replace(experiment, mesh=mesh_of(2)).trainer
    state = eqx.filter_eval_shape(experiment.initial_state)
    arguments = ((trainer, examples, order, number), state)
    shapes, rest = eqx.partition(arguments, lambda leaf: eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct))
    jitted = jax.jit(lambda arrays: eqx.filter(advance(*eqx.combine(arrays, rest)), eqx.is_array))
    text = jitted.trace(shapes).lower(lowering_platforms=(platform,)).as_text()
    assert len(re.findall(r"stablehlo\.(?:all_|collective_|reduce_scatter)\w*", text)) == exchanges
    assert text.count("stablehlo.all_reduce") == exchanges
    assert "custom_call" not in re.sub(r"custom_call @(?:Sharding|SPMD)\w*", "", text)


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("kind", ["generative", "structured-learned", "gaussian", "attention-learned"])
def test_the_samples_are_those_of_one_device(kind, n):
    """Bit for bit: latents from the proposal, and dreams."""
    model, examples = model_of(kind), examples_of(kind)

    @eqx.filter_jit
    def on_one(part, model, examples):
        batch = examples.batch(jnp.arange(B), jnp.dtype("float32"), part)
        if kind == "attention-learned":
            latents, dreams = model.paths(batch, model._chooser(jax.random.key(3), jnp.arange(2), batch)).places, ()
        else:
            latents, _ = model.proposal_sample(jax.random.key(3), jnp.arange(2), batch)
            dreams = () if kind == "gaussian" else model.sample(jax.random.key(4), batch.context, part)
        drawn = jax.tree.map(lambda a: jnp.moveaxis(a, 1, -1), (latents, dreams))
        return drawn if part is None else jax.tree.map(part.joined, drawn)

    several = eqx.filter_jit(on_every_device)(on_one, mesh_of(n), model, examples)
    for actual, expected in zip(jax.tree.leaves(several), jax.tree.leaves(on_one(None, model, examples)), strict=True):
        if kind == "gaussian":  # the noise is the same; what is made of it is rounded
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(actual, expected)
        assert len(np.unique(np.asarray(actual), axis=-1).T) > 1


class Coins(eqx.Module):
    """A model that knows nothing of parts."""

    logit: jax.Array

    def importance_samples(self, key, batch, num_samples):
        h = jax.random.bernoulli(key, 0.5, (num_samples, len(batch.observation))).astype(jnp.float32)
        log_joint = h * self.logit - jnp.log1p(jnp.exp(self.logit))
        return vimco.ImportanceSamples(log_joint, jnp.full_like(log_joint, jnp.log(0.5)))


def test_a_model_that_knows_nothing_of_parts_draws_for_each_part_anew():
    examples = Examples(jnp.zeros((B, 1), jnp.uint8))
    model = Coins(jnp.asarray(1.0))
    _, estimate, _ = gradient_on(4, 16, model, vimco.VIMCO(), examples, jnp.asarray(0))
    shares = np.asarray(estimate.log_weights).reshape(16, 4, 4, 2)
    assert len(np.unique(shares.transpose(2, 0, 1, 3).reshape(4, -1), axis=0)) == 4


class Odd(vimco.VIMCO):
    def __call__(self, samples, batch=None):
        return dataclasses.replace(super().__call__(samples, batch), residual=jnp.zeros((B // 2, 3)))


def test_a_residual_without_examples_is_refused():
    with pytest.raises(UsageError, match="its last axis, which must be the examples"):
        gradient_on(2, 3, model_of("generative"), Odd(), examples_of("generative"), jnp.asarray(0))


@pytest.mark.parametrize(
    ("size", "count", "advice"),
    [
        (24, 5, "--batch-size 20 or 40, or 1 or 2 or 3 or 6 devices"),
        (24, 8, "--batch-size 32, or 1 or 2 or 3 or 6 devices"),
        (6, 2, "--batch-size 8, or 1 devices"),
    ],
)
def test_a_batch_that_does_not_divide_is_refused_with_numbers_that_would(size, count, advice):
    with pytest.raises(UsageError, match=advice):
        refuse_uneven(size, count)
    refuse_uneven(4 * count, count)


def test_too_few_devices():
    with pytest.raises(UsageError, match="--devices 9: this process has 8, of the kind cpu"):
        mesh_of(9)
    with pytest.raises(UsageError, match="must be positive"):
        mesh_of(0)


@pytest.mark.parametrize("n", [2, 4])
def test_an_evaluation_in_parts_is_bit_for_bit_that_of_one_device(n):
    """Five slices of examples, the last of them filled up."""
    model, key = model_of("generative"), jax.random.key(2)
    bits = jax.random.bernoulli(key, 0.4, (4 * 48 + 7, model.likelihood.bias.shape[0])).astype(jnp.uint8)
    one, told = evaluate(model, Examples(bits), key, 60), []
    several = evaluate(model, Examples(bits), key, 60, lambda *done: told.append(done), mesh_of(n))
    for actual, expected in zip(several[1:4], one[1:4], strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert told[-1] == (199, 199)
    assert len(told) == -(-5 // n)


TINY = RunConfig(data="synthetic", layers=(3,), num_samples=2, updates=6, validate_every=3, log_every=3, averaging=0.5)


def test_a_run_on_two_devices_resumes_bit_for_bit_and_says_where_it_differs(tmp_path):
    whole = vimco.train(TINY, tmp_path / "whole", devices=2)
    vimco.train(dataclasses.replace(TINY, updates=3), tmp_path / "cut", devices=2)
    cut = vimco.resume(tmp_path / "cut", devices=2, updates=6)
    for name in ("latest", "best", "best-average"):
        expected, actual = (jax.tree.leaves(run.model(name)) for run in (whole, cut))
        assert [leaf.tobytes() for leaf in map(np.asarray, actual)] == [
            leaf.tobytes() for leaf in map(np.asarray, expected)
        ]
    assert whole.environment["devices"] == 2
    one = vimco.train(TINY, tmp_path / "one")
    np.testing.assert_allclose(one.best()[1], whole.best()[1], rtol=1e-4)
    with pytest.warns(UserWarning, match="devices 2 then, 1 now"):
        vimco.resume(tmp_path / "cut", updates=7)
    np.testing.assert_array_equal(cut.evaluate(20, devices=4).bound, cut.evaluate(20).bound)


def test_a_run_of_an_earlier_version_had_one_device(tmp_path):
    run = directory.new_run(tmp_path, TINY, load_dataset("synthetic"))
    earlier = dataclasses.replace(
        run, environment={k: v for k, v in run.environment.items() if k not in ("devices", "processes")}
    )
    assert directory.differences(earlier) == []
    assert directory.differences(earlier, 2) == ["devices 1 then, 2 now"]


def test_a_batch_that_does_not_divide_leaves_nothing_behind(tmp_path):
    with pytest.raises(UsageError, match="does not divide among 5 devices"):
        vimco.train(TINY, tmp_path / "run", devices=5)
    assert not (tmp_path / "run").exists()
