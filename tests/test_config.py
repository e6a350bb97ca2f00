"""The configuration: refusals and their messages, the identity of a run, learning rates."""

import dataclasses
import json
import runpy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vimco.errors import UsageError
from vimco.registry import fits
from vimco.runs import config as config_module
from vimco.runs.config import DEFAULT_UPDATES, RunConfig
from vimco.runs.experiment import Purpose, key_for, optimizer

# The tests check the types of all arguments before the record does. This is the record without the tests' checks.
UncheckedConfig = runpy.run_path(config_module.__file__)["RunConfig"]


def test_integers_that_no_float_can_hold_are_refused():
    """A file of a run may have one, and the check must not fail itself."""
    assert not fits(10**400, float)
    assert not fits(10**400, int | None)
    assert fits(10**30, float)  # other checks have better words for it


def test_defaults_are_the_papers_protocol():
    config = RunConfig()
    assert (config.layers, config.batch_size, config.learning_rate) == ((200, 200, 200), 24, 1e-3)
    assert (config.schedule, config.warmup_updates, config.clip, config.averaging) == ("constant", 0, None, None)
    assert (config.estimator, config.task, config.proposal) == ("vimco", "generative", "learned")


def test_json_and_back():
    config = RunConfig(layers=(7, 5), averaging=0.99, epochs=1.5, task="structured", proposal="prior")
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_an_integer_is_a_number():
    assert UncheckedConfig.from_json({"clip": 2}).clip == 2


def test_fields_that_a_file_lacks_have_their_defaults():
    assert RunConfig.from_json({"seed": 3}) == RunConfig(seed=3)


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("layers", [200, "200"], "a list of integers"),
        ("layers", 200, "a list of integers"),
        ("num_samples", 5.0, "an integer"),
        ("num_samples", True, "an integer"),
        ("num_samples", None, "an integer"),
        ("learning_rate", "0.1", "a finite number"),
        ("clip", "none", "a finite number or null"),
        ("symmetric", 1, "true or false"),
        ("estimator", ["vimco"], "a string"),
        ("estimator_options", "decay=0.5", "a list of strings"),
        ("data", None, "a string"),
        ("updates", {"of": 3}, "an integer or null"),
    ],
)
def test_ill_typed_fields_are_named(field, value, wanted):
    with pytest.raises(UsageError, match=f"'{field}' must be {wanted}"):
        UncheckedConfig.from_json({field: value})


def test_unknown_fields_are_named():
    with pytest.raises(UsageError, match="no field 'learningrate'"):
        RunConfig.from_json({"learningrate": 0.1})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        *[({name: 0}, f"--{name.replace('_', '-')} must be a positive") for name in ("num_samples", "batch_size")],
        ({"learning_rate": -1e-3}, "--learning-rate must be a positive"),
        ({"learning_rate": float("nan")}, "--learning-rate must be a positive"),
        ({"learning_rate": float("inf")}, "finite"),
        ({"epochs": float("inf")}, "finite"),
        ({"minutes": 0.0}, "--minutes must be a positive"),
        ({"clip": 0.0}, "--clip must be a positive"),
        ({"weight_decay": -0.01}, "--weight-decay must be zero or a positive"),
        ({"log_every": 0}, "--log-every must be a positive"),
        ({"checkpoint_seconds": float("nan")}, "--checkpoint-seconds must be zero or"),
        ({"warmup_updates": -1}, "--warmup-updates must be zero or"),
        ({"seed": -1}, "--seed must be from 0"),
        ({"seed": 2**32}, "--seed must be from 0"),
        ({"layers": ()}, "--layers needs"),
        ({"layers": (200, 0)}, "--layers needs"),
        ({"averaging": 1.0}, "--averaging is a decay"),
        ({"proposal": "prior"}, "--task attention or structured"),
        ({"updates": 10, "epochs": 1.0}, "one budget"),
        ({"schedule": "cosine", "minutes": 1.0}, "--schedule-updates"),
        ({"schedule_updates": 100}, "add --schedule cosine or stages, or leave it out"),
    ],
)
def test_values_out_of_range_are_refused(fields, words):
    with pytest.raises(UsageError, match=words):
        RunConfig(**fields)


def test_an_older_record_with_a_horizon_of_no_schedule_is_read():
    """The option is refused now, and had no effect."""
    assert RunConfig.from_json({"schedule_updates": 100}) == RunConfig()


def test_budgets_in_updates():
    assert RunConfig().total_updates(2083) == DEFAULT_UPDATES
    assert RunConfig(updates=7).total_updates(2083) == 7
    assert RunConfig(epochs=1.5).total_updates(2083) == 3124  # 3124.5, to even
    assert RunConfig(epochs=1e-9).total_updates(2083) == 1
    assert RunConfig(minutes=1.0).total_updates(2083) is None
    with pytest.raises(UsageError, match="at most 2,147,483,647 updates"):
        RunConfig(epochs=1e7).total_updates(2083)
    with pytest.raises(UsageError, match="at most"):
        RunConfig(epochs=1e308).total_updates(2083)  # the product is infinite


def test_identity_is_all_that_decides_the_parameters():
    """Budget and cadence are not part of it; the horizon of a schedule is, given or derived."""
    config = RunConfig(updates=10)
    same = dataclasses.replace(config, updates=None, epochs=3.0, log_every=7, validate_every=9, checkpoint_seconds=1.0)
    assert same.identity == config.identity
    for change in ({"seed": 1}, {"layers": (200, 200)}, {"learning_rate": 3e-4}, {"precision": "float64"}):
        assert dataclasses.replace(config, **change).identity != config.identity
    cosine = RunConfig(schedule="cosine", updates=10)
    assert cosine.identity != RunConfig(schedule="cosine", updates=20).identity
    assert cosine.identity == RunConfig(schedule="cosine", updates=20, schedule_updates=10).identity


# The optimizer


def rates(config, number):
    """Return the learning rate of each update.

    With a gradient that is always 1, Adam's moments, corrected for their start, are 1: a step is −rate / (1 + 1e-8).
    """
    adam = optimizer(config)
    parameter, rates = jnp.zeros(()), []
    state = adam.init(parameter)
    for _ in range(number):
        step, state = adam.update(jnp.ones(()), state, parameter)
        rates.append(-float(step) * (1 + 1e-8))
    return np.array(rates)


def test_constant_learning_rate(float64):
    np.testing.assert_allclose(rates(RunConfig(learning_rate=0.25), 5), np.full(5, 0.25), rtol=1e-7)


def test_cosine_goes_to_zero_at_its_horizon(float64):
    """Update n + 1 has the rate r (1 + cos π n / N) / 2."""
    n = np.arange(12)
    expected = np.where(n < 10, 0.25 * (1 + np.cos(np.pi * n / 10)) / 2, 0.0)
    for config in (
        RunConfig(learning_rate=0.25, schedule="cosine", updates=10),
        RunConfig(learning_rate=0.25, schedule="cosine", updates=12, schedule_updates=10),
    ):
        np.testing.assert_allclose(rates(config, 12), expected, rtol=1e-7, atol=1e-15)


def test_warm_up_is_linear_and_then_hands_over(float64):
    config = RunConfig(learning_rate=0.25, warmup_updates=4)
    np.testing.assert_allclose(rates(config, 7), 0.25 * np.array([0, 1, 2, 3, 4, 4, 4]) / 4, rtol=1e-7)
    config = RunConfig(learning_rate=0.25, warmup_updates=4, schedule="cosine", updates=10)
    cosine = 0.25 * (1 + np.cos(np.pi * np.arange(6) / 6)) / 2
    np.testing.assert_allclose(rates(config, 10), [*(0.25 * np.arange(4) / 4), *cosine], rtol=1e-7, atol=1e-15)


def test_clipping_is_of_the_norm_over_all_parameters_of_the_model(float64):
    """A gradient of norm 5 and one of norm 1/2: clipped at 1, Adam sees the first at a fifth of its size.

    That of the estimator's network is clipped by its own norm, and one without networks has nothing to clip.
    """
    model = [{"a": jnp.array([3.0]), "b": jnp.array([4.0])}, {"a": jnp.array([0.3]), "b": jnp.array([-0.4])}]
    estimator = [{"c": jnp.array([0.9])}, {"c": jnp.array([8.0])}]
    alone = (model[0], None)
    clip = optimizer(RunConfig(clip=1.0))
    assert clip.update(alone, clip.init(alone))[0][1] is None
    gradients = list(zip(model, estimator, strict=True))
    clipped, plain = optimizer(RunConfig(clip=1.0)), optax.adam(1e-3)
    state, plain_state = clipped.init(gradients[0]), plain.init(gradients[0])
    for gradient, scales in zip(gradients, ((0.2, 1.0), (1.0, 1 / 8)), strict=True):
        step, state = clipped.update(gradient, state)
        smaller = tuple(jax.tree.map(lambda g, s=s: s * g, part) for part, s in zip(gradient, scales, strict=True))
        expected, plain_state = plain.update(smaller, plain_state)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7), step, expected)


def test_weight_decay_shrinks_matrices_by_the_rate_and_leaves_vectors(float64):
    """At the gradient g = 1 Adam's step is −r; weights w move by −r d w more, with the rate r of the update."""
    weights = {"weight": jnp.array([[2.0, -3.0]]), "bias": jnp.array([5.0, 7.0])}
    decaying = optimizer(RunConfig(weight_decay=0.1, learning_rate=0.25, schedule="cosine", updates=10, clip=9.0))
    state, gradient = decaying.init((weights, None)), (jax.tree.map(jnp.ones_like, weights), None)
    for n in range(3):
        (step, _), state = decaying.update(gradient, state, (weights, None))
        rate = 0.25 * (1 + np.cos(np.pi * n / 10)) / 2
        np.testing.assert_allclose(step["weight"], -rate * (1 + 0.1 * np.array([[2.0, -3.0]])), rtol=1e-7)
        np.testing.assert_allclose(step["bias"], [-rate, -rate], rtol=1e-7)


def test_a_configuration_always_gives_the_same_optimizer():
    """Functions compiled with it are then reused within a process."""
    assert optimizer(RunConfig(seed=3)) is optimizer(RunConfig(seed=3))


# Randomness


def test_every_purpose_and_seed_has_a_key_of_its_own():
    keys = [key_for(purpose, seed) for purpose in Purpose for seed in (0, 1, 2**32 - 1)]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == len(keys)
    with pytest.raises(UsageError, match="seed must be from 0"):
        key_for(Purpose.EVALUATION, -1)
