"""One update against its definition, and the compiled loop against single updates."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vimco.data import load_dataset
from vimco.errors import UsageError
from vimco.estimators import ESTIMATORS, VIMCO
from vimco.models.kernels.randomness import fold_in
from vimco.parameters import partition
from vimco.runs.config import RunConfig
from vimco.runs.experiment import Experiment, Purpose, key_for
from vimco.samples import Batch, samples_for
from vimco.signals import multi_sample_bound
from vimco.training.evaluation import evaluate
from vimco.training.loop import updated

BARS = load_dataset("synthetic")
TINY = RunConfig(data="synthetic", layers=(4, 3), num_samples=3, averaging=0.2, learning_rate=0.01)


def experiment(**changes):
    return Experiment(dataclasses.replace(TINY, **changes), BARS)


NVIL = experiment(estimator="nvil", clip=1.0, weight_decay=0.1, schedule="cosine", warmup_updates=3, updates=20)


one_update = eqx.filter_jit(updated)


def states(this, number):
    """Return the states after 0, 1, ..., `number` updates within the first epoch, one update at a time."""
    trainer, examples = this.trainer, this.examples("train")
    order = trainer.epoch_order(examples, 0)
    history = [this.initial_state()]
    for _ in range(number):
        history.append(one_update(trainer, history[-1], examples, order))
    return history


@pytest.fixture(scope="module")
def history():
    """Return four states in float64, the first before training."""
    with jax.enable_x64(True):
        return states(experiment(precision="float64"), 3)


@pytest.fixture(scope="module")
def history_of_nvil():
    return states(NVIL, 3)


@eqx.filter_jit
def defined(model, n):
    """Return the gradient of update n and the estimate it comes from, by the definition of rows and keys."""
    order = jax.random.permutation(jax.random.fold_in(key_for(Purpose.ORDER, 0), 0), 600)
    batch = Batch(jnp.asarray(BARS.train)[jax.lax.dynamic_slice(order, (24 * (n - 1),), (24,))].astype(float))
    key = jax.random.fold_in(key_for(Purpose.LATENTS, 0), n)

    def mean_surrogate(parameters, rest):
        estimate = VIMCO()(eqx.combine(parameters, rest).importance_samples(key, batch, 3))
        return jnp.mean(estimate.surrogate), estimate

    return jax.grad(mean_surrogate, has_aux=True)(*partition(model))


def assert_equal(first, second):
    """Assert equality bit for bit."""
    first, second = jax.tree.leaves(eqx.filter(first, eqx.is_array)), jax.tree.leaves(eqx.filter(second, eqx.is_array))
    assert len(first) == len(second) > 0
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def assert_close(first, second, rtol=1e-9, atol=1e-12):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), first, second)


def copied(state):
    """Return a copy of a state, since the loop donates the memory of its argument."""
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, state)


def test_an_update_is_adam_on_the_estimators_gradient(float64, history):
    """Rows, keys, gradient, step and average of the first updates, from their definitions."""
    parameters, rest = partition(history[0].model)
    average = parameters
    first = second = jax.tree.map(jnp.zeros_like, parameters)
    for n, after in enumerate(history[1:], start=1):
        gradient, _ = defined(eqx.combine(parameters, rest), jnp.asarray(n))
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g**2, second, gradient)
        parameters = jax.tree.map(
            lambda p, m, v, n=n: p + 0.01 * (m / (1 - 0.9**n)) / (jnp.sqrt(v / (1 - 0.999**n)) + 1e-8),
            parameters,
            first,
            second,
        )
        assert_close(partition(after.model)[0], parameters)
        keep = {1: 2 / 11, 2: 0.2, 3: 0.2}[n]  # min(0.2, (1 + n) / (10 + n)): short at first, then its decay
        average = jax.tree.map(lambda a, p, keep=keep: keep * a + (1 - keep) * p, average, parameters)
        assert_close(after.average, average)


def test_metrics_are_averages_over_updates(float64, history):
    """Means of bound and effective sample size, the root mean square of the signal, and the norm of the gradient of one
    update in fifty, from the first on."""
    defined_here = [defined(state.model, jnp.asarray(n)) for n, state in enumerate(history[:-1], start=1)]
    estimates = [estimate for _, estimate in defined_here]
    expected = {
        "train_bound": np.mean([e.bound for e in estimates]),
        "signal_rms": np.sqrt(np.mean([e.learning_signal**2 for e in estimates])),
        "effective_sample_size": np.mean([e.effective_sample_size for e in estimates]),
        "gradient_norm": optax.tree.norm(defined_here[0][0]),
    }
    metrics = history[-1].totals.averages()
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-9, err_msg=name)


def test_precision_is_of_everything(history, history_of_nvil):
    for state, kind in ((history[-1], "float64"), (history_of_nvil[-1], "float32")):
        assert {leaf.dtype for leaf in jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array))} == {np.dtype(kind)}


def test_what_is_not_a_parameter_stays(history_of_nvil):
    """The optimizer leaves centring means and NVIL's moments alone; the latter change without a gradient."""
    before, *_, after = history_of_nvil
    assert_equal(before.model.proposal.centre, after.model.proposal.centre)
    assert_equal(before.estimator.input_baseline.centre, after.estimator.input_baseline.centre)
    of_optimizer = [leaf.shape for leaf in jax.tree.leaves(after.optimizer_state) if leaf.ndim]
    parameters = [leaf.shape for leaf in jax.tree.leaves(partition((after.model, after.estimator))[0])]
    assert sorted(of_optimizer) == sorted(2 * parameters)  # two moments each, and nothing else


def test_nvil_starts_from_a_draw_that_is_not_used_for_learning(history_of_nvil):
    """Number 0, with the first rows: updates count from 1."""
    state, batch = history_of_nvil[0], NVIL.examples("train").batch(jnp.arange(24), jnp.dtype("float32"))
    key = jax.random.fold_in(key_for(Purpose.LATENTS, 0), 0)
    samples = eqx.filter_jit(state.model.importance_samples)(key, batch, 3)
    bound = multi_sample_bound(samples.log_weights)
    assert int(state.estimator.moments.count) == 1
    np.testing.assert_allclose(state.estimator.moments.mean, np.mean(bound), rtol=1e-5)  # b(x) is 0 at first
    assert int(history_of_nvil[-1].estimator.moments.count) == 4


def test_length_of_calls_does_not_matter():
    """Bit for bit, with everything that a state can hold: moments, a schedule's count, an average."""
    trainer, examples = NVIL.trainer, NVIL.examples("train")
    order = trainer.epoch_order(examples, 0)
    start = NVIL.initial_state()
    whole = trainer.advance(copied(start), examples, order, 13)
    parts = start
    for number in (1, 4, 2, 6):
        parts = trainer.advance(parts, examples, order, number)
    assert int(whole.update) == 13
    assert_equal(whole, parts)


def test_an_epoch_is_a_permutation_that_depends_on_its_number():
    trainer, examples = experiment().trainer, experiment().examples("train")
    orders = [np.asarray(trainer.epoch_order(examples, epoch)) for epoch in (0, 1, 1)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(600))
    assert (orders[0] != orders[1]).any()
    np.testing.assert_array_equal(orders[1], orders[2])
    assert trainer.updates_per_epoch(examples) == 25


def test_data_stay_bytes_on_the_device():
    examples = experiment().examples("train")
    assert examples.observation.dtype == np.uint8
    structured = experiment(task="structured").examples("test")
    assert structured.observation.shape == structured.context.shape == (200, 32)
    np.testing.assert_array_equal(np.concatenate([structured.context, structured.observation], axis=1), BARS.test)


def test_the_first_bad_update_is_remembered():
    """An infinite step at the third update: after it, or during the next one, the state says 3 or 4, and keeps it."""
    this = experiment(layers=(2,), averaging=None)
    infinite_at_the_third = optax.sgd(lambda count: jnp.where(count == 2, jnp.inf, 1e-3))
    trainer = dataclasses.replace(this.trainer, optimizer=infinite_at_the_third)
    examples = this.examples("train")
    order = trainer.epoch_order(examples, 0)
    start = trainer.initial_state(this.model(), this.estimator(), examples)
    before = trainer.advance(copied(start), examples, order, 2)
    assert int(before.first_bad_update) == 0
    # The third update makes the parameters infinite; its bound and gradient are still finite.
    assert int(trainer.advance(copied(before), examples, order, 1).first_bad_update) == 3
    assert int(trainer.advance(copied(before), examples, order, 5).first_bad_update) == 4


def test_training_learns():
    """From −38.9 at the start; a factorial model of the pixels has −34.2. Seeded."""
    this = experiment(layers=(8,), learning_rate=0.02)
    trainer, examples = this.trainer, this.examples("train")
    state = this.initial_state()
    bounds = []
    for epoch in range(12):
        state = eqx.tree_at(lambda s: s.totals, state, type(state.totals).zero())
        state = trainer.advance(state, examples, trainer.epoch_order(examples, epoch), 25)
        bounds.append(state.totals.averages()["train_bound"])
    assert bounds[0] < -36
    assert bounds[-1] > -30


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_loop_does_not_know_the_estimator(name):
    """Every estimator works in the loop without a special case (traced, not run)."""
    prior = {"task": "structured", "proposal": "prior"} if name in ("tang", "ram") else {}
    this = experiment(estimator=name, averaging=None, **prior)

    def rehearsal():
        examples = this.examples("train")
        return updated(this.trainer, this.initial_state(), examples, this.trainer.epoch_order(examples, 0))

    model = eqx.filter_eval_shape(this.model)
    if not all(hasattr(model, need.method) for need in this.estimator().needs):  # binary latents: not reparameterised
        with pytest.raises(UsageError, match="and the model offers none"):
            eqx.filter_eval_shape(rehearsal)
        return
    state = eqx.filter_eval_shape(rehearsal)
    assert state.update.shape == ()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("annealed", "updates=40"), ("renyi-warmup", "updates=40"), ("rloo", ""), ("bbvi", "")),
        *(("muprop", "objective=elbo"), ("local-expectations", "objective=elbo")),
    ],
)
def test_the_bound_is_logged_beside_another_objective(name, options):
    """The bound is that of the model with all K samples; while a warm-up lasts the objective is another number."""
    this = experiment(estimator=name, estimator_options=(options,) if options else (), averaging=None)
    trainer, examples = this.trainer, this.examples("train")
    order = trainer.epoch_order(examples, 0)
    state = trainer.advance(this.initial_state(), examples, order, 1)
    first = state.totals.averages()
    batch = examples.batch(order[: trainer.batch_size], jnp.result_type(float))
    keys = jax.tree.map(lambda key: fold_in(key, jnp.int32(1)), trainer.keys)
    samples = eqx.filter_jit(samples_for)(this.model(), (), keys, batch, trainer.num_samples)
    assert first["train_bound"] == pytest.approx(float(jnp.mean(multi_sample_bound(samples.log_weights))), rel=1e-5)
    assert abs(first["train_objective"] - first["train_bound"]) > 0.1
    if name not in ("annealed", "renyi-warmup"):
        assert first["train_objective"] == pytest.approx(float(jnp.mean(samples.log_weights)), rel=1e-5)
        return
    state = eqx.tree_at(lambda s: s.estimator.count, state, jnp.int32(100))
    state = eqx.tree_at(lambda s: s.totals, state, jax.tree.map(jnp.zeros_like, state.totals))
    last = trainer.advance(state, examples, order, 1).totals.averages()
    assert last["train_objective"] == pytest.approx(last["train_bound"], rel=1e-6)


def test_vimco_logs_no_second_objective():
    assert eqx.filter_eval_shape(experiment(averaging=None).initial_state).totals.objective is None


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(UsageError, match="--batch-size 601 is more than the 600 training examples"):
        experiment(batch_size=601)


def test_nvil_learns_with_many_samples():
    """K = 10, 500 updates: −25.7 nats. With the normaliser on one term of the gradient alone it was at −29.5."""
    this = experiment(estimator="nvil", num_samples=10, layers=(10, 20), averaging=None)
    trainer, examples, state = this.trainer, this.examples("train"), this.initial_state()
    for epoch in range(20):
        state = trainer.advance(state, examples, trainer.epoch_order(examples, epoch), 25)
    evaluation = evaluate(state.model, this.examples("validation"), jax.random.key(0), num_samples=10)
    assert float(np.mean(evaluation.bound)) > -27.5
