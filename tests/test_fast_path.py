"""The kernels, against the plain definitions that they replace."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vimco
from vimco.data import load_dataset
from vimco.errors import UsageError
from vimco.models.kernels import bernoulli
from vimco.models.kernels.bernoulli import (
    _cover,
    _exp_of_minus,
    _four_uniforms,
    log_bernoulli,
    log_bernoulli_of_layers,
    plain_log_bernoulli,
    plain_log_bernoulli_of_layers,
    plain_sample_bernoulli,
    sample_bernoulli,
)
from vimco.models.kernels.products import plain_affine, plain_with_stored_gradient, with_stored_gradient
from vimco.models.kernels.randomness import fold_in, plain_fold_in, plain_sample_words, sample_words, threefry_2x32
from vimco.models.layers import BernoulliLayer
from vimco.parameters import partition
from vimco.runs.experiment import Experiment
from vimco.training import compilation, evaluation, loop
from vimco.training.compilation import compiler_options


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [  # the known answers that Random123 (Salmon et al., 2011) is published with, for 20 rounds
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_cipher_gives_its_known_answers(key, counter, expected):
    words = threefry_2x32(jnp.asarray(key, jnp.uint32), *(jnp.uint32(word) for word in counter))
    assert tuple(int(word) for word in words) == expected


def test_words_are_those_of_jax():
    arguments = (jax.random.key(3), jnp.arange(3), (5, 7))
    for words, expected in zip(sample_words(*arguments), plain_sample_words(*arguments), strict=True):
        np.testing.assert_array_equal(words, expected)


@pytest.mark.parametrize("number", [0, 1, 2**31 - 1])
def test_folding_in_a_number_is_that_of_jax(number):
    answer, expected = (jax.random.key_data(fold(jax.random.key(5), number)) for fold in (fold_in, plain_fold_in))
    np.testing.assert_array_equal(answer, expected)


def test_four_uniform_numbers_are_made_of_two_words():
    """By hand: of each number the first thirteen bits are its own, the last ten are five and five of the two words."""
    bits = ["10101010101010000000000001001101", "11111111111111000000000000110011"]
    common = bits[0][-5:] + bits[1][-5:]
    own = [part for word in bits for part in (word[:13], word[13:26])]
    expected = [(int(part + common, 2) + 0.5) / 2**23 for part in own]
    assert [float(u) for u in _four_uniforms(*(jnp.uint32(int(word, 2)) for word in bits))] == expected


def test_uniform_numbers_never_reach_their_limits():
    ends = [_four_uniforms(jnp.uint32(word), jnp.uint32(word)) for word in (0, 2**32 - 1)]
    assert [{float(u) for u in end} for end in ends] == [{2.0**-24}, {1 - 2.0**-24}]


@pytest.mark.parametrize("leading", [(), (6,)])
@pytest.mark.parametrize("batch_size", [1, 4, 5, 7])
def test_samples_follow_their_words(batch_size, leading):
    """A unit takes its less likely value where the uniform number is below that value's probability."""
    key = jax.random.key(0)
    logits = 2 * jax.random.normal(jax.random.key(1), (*leading, batch_size, 5))
    logits = logits.at[..., 0].set(-200).at[..., 4].set(200)
    samples = jax.jit(sample_bernoulli)(key, jnp.arange(6), logits)
    np.testing.assert_array_equal(samples, plain_sample_bernoulli(key, jnp.arange(6), logits))
    assert samples.dtype == jnp.float32
    assert not np.any(samples[..., 0])
    assert np.all(samples[..., 4] == 1)


@pytest.mark.parametrize("leading", [(), (1,)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_what_is_less_likely_than_all_intervals_is_never_drawn(monkeypatch, sign, leading):
    """The uniform numbers are forced to the smallest, 2⁻²⁴: an outcome a little less likely is not drawn."""
    monkeypatch.setattr(bernoulli, "sample_words", lambda *_: (jnp.zeros((1, 1, 2), jnp.uint32),) * 2)
    probabilities = 2.0**-24 * np.array([0.999, 1.001])
    logits = jnp.asarray(np.broadcast_to(sign * np.log(1 / probabilities - 1), (*leading, 1, 2)), jnp.float32)
    samples = jax.jit(lambda a: sample_bernoulli(jax.random.key(0), jnp.arange(1), a))(logits)
    likely = float(sign > 0)
    assert samples.tolist() == [[[likely, 1 - likely]]]


def test_samples_are_as_likely_as_they_should_be_and_independent():
    """Frequencies and correlations of 2¹⁷ samples: of units, and of examples that share the two words of a cipher."""
    number, logits = 2**17, jnp.asarray([[-3.0, 0.0, 1.0], [2.0, -1.0, 0.5], [0.1, 6.0, -0.4], [0.0, 0.0, -2.0]])
    samples = np.asarray(sample_bernoulli(jax.random.key(8), jnp.arange(number), logits)).reshape(number, 12)
    probabilities = np.asarray(jax.nn.sigmoid(logits)).ravel()
    deviations = (samples - probabilities) / np.sqrt(probabilities * (1 - probabilities))
    assert np.all(np.abs(deviations.mean(axis=0)) < 5 / number**0.5)
    correlations = deviations.T @ deviations / number
    np.fill_diagonal(correlations, 0)
    assert np.all(np.abs(correlations) < 5 / number**0.5)
    assert np.all(np.abs(np.mean(deviations[1:] * deviations[:-1], axis=0)) < 5 / number**0.5)


class TestLogProbability:
    SHAPES = (
        ((3, 4, 5), (3, 4, 5)),
        ((4, 5), (3, 4, 5)),
        ((3, 4, 5), (4, 5)),
        ((3, 4, 5), (5,)),
        ((3, 4, 5), (1, 4, 5)),
        ((3, 4, 5), (1, 1, 5)),
        ((3, 4, 5), (3, 1, 5)),
    )

    @pytest.mark.parametrize(("value_shape", "logits_shape"), SHAPES)
    def test_value_and_gradient(self, float64, value_shape, logits_shape):
        keys = jax.random.split(jax.random.key(1), 3)
        value = jax.random.bernoulli(keys[0], 0.4, value_shape).astype(float)
        logits = 5 * jax.random.normal(keys[1], logits_shape)
        weights = jax.random.normal(keys[2], (3, 4))
        expected = jax.value_and_grad(lambda a: jnp.sum(weights * plain_log_bernoulli(value, a)))(logits)
        answer = jax.value_and_grad(lambda a: jnp.sum(weights * log_bernoulli(value, a)))(logits)
        np.testing.assert_allclose(answer[0], expected[0], rtol=1e-13)
        np.testing.assert_allclose(answer[1], expected[1], rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize(("value_shape", "logits_shape"), SHAPES)
    def test_values_get_their_gradient_where_it_is_asked_for(self, float64, value_shape, logits_shape):
        """A pathwise estimator differentiates through the values: a gradient of zero would be silently wrong."""
        keys = jax.random.split(jax.random.key(4), 3)
        arrays = (jax.random.uniform(keys[0], value_shape), 5 * jax.random.normal(keys[1], logits_shape))
        weights = jax.random.normal(keys[2], (3, 4))
        for numbers in (0, (0, 1)):
            expected = jax.grad(lambda v, a: jnp.sum(weights * plain_log_bernoulli(v, a)), numbers)(*arrays)
            answer = jax.jit(jax.grad(lambda v, a: jnp.sum(weights * log_bernoulli(v, a)), numbers))(*arrays)
            for gradient, exact in zip(jax.tree.leaves(answer), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(gradient, exact, rtol=1e-12, atol=1e-13)

    def test_gradient_of_values_passes_slices_and_rematerialisation(self, float64):
        """One of two layers is differentiated, inside `lax.map` and `checkpoint`, as for many samples in slices."""
        logits = jax.random.normal(jax.random.key(5), (2, 6, 3))

        def objective(v, log_prob):
            rows = jax.lax.map(jax.checkpoint(lambda i: log_prob((v * i, jnp.ones(3)), (logits[0], logits[1]))), scale)
            return jnp.sum(jnp.sin(rows))

        scale = jnp.asarray([0.5, 1.0, 2.0])
        v = jax.random.uniform(jax.random.key(6), (6, 3))
        expected = jax.grad(objective)(v, plain_log_bernoulli_of_layers)
        np.testing.assert_allclose(jax.grad(objective)(v, log_bernoulli_of_layers), expected, rtol=1e-11)

    def test_float32_at_the_width_of_an_image(self):
        rng = np.random.default_rng(0)
        logits = rng.normal(0, 6, (50, 784))
        value = (rng.random((50, 784)) < 0.3).astype(float)
        expected = np.sum(value * logits - np.logaddexp(0, logits), axis=-1)
        answer = log_bernoulli(jnp.asarray(value, jnp.float32), jnp.asarray(logits, jnp.float32))
        np.testing.assert_allclose(answer, expected, rtol=1e-6)

    def test_exponential_in_float32(self):
        """Against NumPy's in float64. Its argument is rounded after a multiplication: an error of 2⁻²³ x at most.

        It is compiled, because XLA's simplifications could be wrong.
        """
        exp_of_minus = jax.jit(_exp_of_minus)
        x = np.linspace(0, 87, 1_000_001).astype(np.float32)
        error = np.abs(np.asarray(exp_of_minus(jnp.asarray(x))) / np.exp(-x.astype(np.float64)) - 1)
        assert np.all(error <= 3e-7 + 2.0**-23 * x)
        assert np.all(np.asarray(exp_of_minus(jnp.asarray([88.0, 1e4, np.inf]))) < 1e-37)
        assert np.isnan(exp_of_minus(jnp.asarray(np.nan, jnp.float32)))

    @pytest.mark.parametrize("K", [1, 3, 9])
    def test_a_stored_gradient_is_the_gradient(self, K):
        weights = jnp.arange(4.0 * K).reshape(K, 4)
        stored, plain = (
            jax.value_and_grad(lambda a, f=f: jnp.sum(weights * f(a)))(jnp.ones((K, 4)))
            for f in (with_stored_gradient, plain_with_stored_gradient)
        )
        np.testing.assert_array_equal(stored[0], plain[0])
        np.testing.assert_array_equal(stored[1], plain[1])

    @pytest.mark.parametrize("is_shared", [False, True])
    @pytest.mark.parametrize(("n", "least", "most"), [(784, 15, 40), (200, 0, 60)])
    def test_float32_where_units_are_nearly_certain(self, is_shared, n, least, most):
        """No error of the size of Σ |a|: that of each unit is 2⁻²⁴ at most, and a little for their sum."""
        rng = np.random.default_rng(2)
        logits = rng.choice([-1, 1], (3, n)) * rng.uniform(least, most, (3, n))
        if not is_shared:
            logits = np.broadcast_to(logits, (4, 3, n))
        logits = logits.astype(np.float32)
        value = np.broadcast_to(logits > 0, (4, 3, n)).astype(np.float32)
        expected = np.sum(value * logits.astype(float) - np.logaddexp(0, logits.astype(float)), axis=-1)
        answer = jax.jit(log_bernoulli)(jnp.asarray(value), jnp.asarray(logits))
        np.testing.assert_allclose(answer, expected, atol=n * 2.0**-24 + 1e-5)

    def test_values_and_logits_of_different_width_are_refused(self):
        with pytest.raises(UsageError, match="got 20 and 1"):
            log_bernoulli_of_layers((jnp.ones((2, 20)),), (jnp.zeros((2, 1)),))

    @pytest.mark.parametrize("layers", [1, 3, 30])
    def test_layers_of_several_widths_are_summed(self, float64, layers):
        rng = np.random.default_rng(1)
        widths = [(200, 5, 200)[i % 3] for i in range(layers)]
        logits = tuple(jnp.asarray(rng.normal(size=(4, n) if i == 0 else (3, 4, n))) for i, n in enumerate(widths))
        values = tuple(jnp.asarray(rng.random((3, 4, n)) < 0.5, float) for n in widths)
        for dtype, tolerance in ((jnp.float64, 1e-12), (jnp.float32, 1e-6)):
            of_type = tuple(tuple(array.astype(dtype) for array in arrays) for arrays in (values, logits))
            expected = plain_log_bernoulli_of_layers(values, logits)
            np.testing.assert_allclose(log_bernoulli_of_layers(*of_type), expected, rtol=tolerance)
        answer = jax.grad(lambda a: jnp.sum(jnp.sin(log_bernoulli_of_layers(values, a))))(logits)
        expected = jax.grad(lambda a: jnp.sum(jnp.sin(plain_log_bernoulli_of_layers(values, a))))(logits)
        for gradient, exact in zip(answer, expected, strict=True):
            np.testing.assert_allclose(gradient, exact, rtol=1e-9, atol=1e-12)

    def test_product_of_many_factors_does_not_overflow(self):
        """80 layers of 32 units with logits 0: 160 factors of two in a product would be 2¹⁶⁰, and 2¹²⁸ is infinite."""
        zeros = tuple(jnp.zeros((2, 32)) for _ in range(80))
        np.testing.assert_allclose(log_bernoulli_of_layers(zeros, zeros), -2560 * np.log(2), rtol=1e-6)

    @pytest.mark.parametrize("n", [1, 15, 16, 17, 40, 100, 200, 392, 784])
    def test_slices_cover_every_unit_once(self, n):
        width, starts = _cover(n)
        assert [i for start, seen in starts for i in range(start + seen, start + width)] == list(range(n))
        assert len(starts) <= 8
        assert width == n or width % 16 == 0

    def test_extreme_logits_are_exact(self):
        value, logits = jnp.asarray([[0.0, 1.0], [1.0, 0.0]]), jnp.asarray([[-1e4, 1e4], [-1e4, 1e4]])
        np.testing.assert_array_equal(log_bernoulli(value, logits), [0.0, -2e4])
        gradient = jax.grad(lambda a: jnp.sum(log_bernoulli(value, a)))(logits)
        np.testing.assert_array_equal(gradient, [[0.0, 0.0], [1.0, -1.0]])


def test_layer_is_the_sum_of_its_products(float64):
    layer = BernoulliLayer(jax.random.key(2), (3, 2), 4)
    layer = eqx.tree_at(lambda m: m.bias, layer, jnp.arange(4.0))
    h, x = jax.random.normal(jax.random.key(3), (5, 6, 3)), jax.random.normal(jax.random.key(4), (6, 2))

    def plain(layer):
        return plain_affine(h, layer.weights[0], layer.bias) + plain_affine(x, layer.weights[1], jnp.zeros(4))

    np.testing.assert_allclose(layer(h, x), plain(layer), rtol=1e-13)
    gradients = [jax.grad(lambda m, f=f: jnp.sum(jnp.sin(f(m))))(layer) for f in (lambda m: m(h, x), plain)]
    for answer, expected in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-11)


def test_compiler_options_that_this_jaxlib_does_not_know_are_left_out(monkeypatch):
    assert compilation.compiler_options() == compilation.WANTED
    wanted = {**compilation.WANTED, "xla_cpu_of_another_version": 1}
    monkeypatch.setattr(compilation, "WANTED", wanted)
    compilation.compiler_options.cache_clear()
    try:
        with pytest.warns(UserWarning, match="does not know the compiler option xla_cpu_of_another_version: results"):
            known = compilation.compiler_options()
        assert known == {name: value for name, value in wanted.items() if name != "xla_cpu_of_another_version"}
        assert compilation.compiler_options() == known  # without another warning, which would be an error
        np.testing.assert_array_equal(compilation.compiled(lambda x: x + 1)(jnp.arange(3)), [1, 2, 3])
    finally:
        compilation.compiler_options.cache_clear()


@pytest.mark.parametrize("task", ["generative", "structured"])
def test_slices_of_samples_do_not_change_the_update(float64, task):
    """Training with many samples in little memory: the gradient is that of all samples at once."""
    batch = vimco.Batch(
        jnp.asarray([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]),
        jnp.asarray([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]),
    )
    key, mean = jax.random.key(7), jnp.full(3, 0.4)
    if task == "generative":
        whole, batch = vimco.generative_sbn(key, (4, 3), mean), vimco.Batch(batch.observation)
    else:
        whole = vimco.structured_sbn(key, (4, 3), mean, jnp.full(2, 0.6))

    def gradient(model):
        parameters, rest = partition(model)

        def surrogate(parameters):
            samples = eqx.combine(parameters, rest).importance_samples(key, batch, 50)
            return jnp.mean(vimco.VIMCO()(samples).surrogate)

        return jax.tree.leaves(jax.jit(jax.grad(surrogate))(parameters))

    expected = gradient(whole)
    for slice_size in (7, 25):  # 50 is 7 slices and a rest of one, or two slices
        sliced = gradient(dataclasses.replace(whole, slice_size=slice_size))
        for answer, exact in zip(sliced, expected, strict=True):
            np.testing.assert_allclose(answer, exact, atol=1e-12)


@pytest.mark.parametrize("batch_size", [7, 8])
def test_cipher_and_signal_are_computed_once(batch_size):
    """XLA repeats cheap producers in every consumer; the layers are written so that it does not treat these as cheap.

    The cipher shows in the compiled program by its rotations, 40 shifts a copy, and the signal by arithmetic on arrays
    of shape (K, B), of which the layers have none.
    """
    model = vimco.generative_sbn(jax.random.key(0), (40, 40, 40), jnp.full(64, 0.3))
    batch = vimco.Batch(jnp.ones((batch_size, 64)))
    parameters, rest = partition(model)

    def surrogate(parameters, key):
        samples = eqx.combine(parameters, rest).importance_samples(key, batch, 16)
        return jnp.mean(vimco.VIMCO()(samples).surrogate)

    compiled = jax.jit(jax.grad(surrogate), compiler_options=compiler_options())
    computations = re.split(r"\n}\n", compiled.lower(parameters, jax.random.key(1)).compile().as_text())
    ciphers = [
        computation
        for computation in computations
        if len(re.findall(r"u32\[[\d,]*\d,[\d,]*\](?:\{[\d,]*\})? shift-left\(", computation)) >= 20
    ]
    assert len(ciphers) == 3
    of_layers = [c for c in computations if re.search(r"ROOT \S+ = f32\[[\d,]*(?:40|64)\]", c)]
    assert of_layers
    arithmetic = rf"= f32\[16,{batch_size}\]\S* (?:add|subtract|multiply|select|negate)\("
    assert not [c for c in of_layers if re.search(arithmetic, c)]


@pytest.fixture(scope="module")
def training():
    """Return the arguments of the compiled loop: trainer, examples, order and number of updates; state."""
    config = vimco.RunConfig(data="synthetic", layers=(3, 2), num_samples=2, averaging=0.9)
    experiment = Experiment(config, load_dataset("synthetic"))
    examples = experiment.examples("train")
    fixed = (experiment.trainer, examples, experiment.trainer.epoch_order(examples, 0), jnp.asarray(3, jnp.int32))
    return fixed, experiment.initial_state()


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_updates_and_evaluations_are_lowered_for_accelerators(training, platform):
    """Lowering fails on operations that a platform does not have. Nothing is compiled or run, which needs a device."""
    fixed, state = training
    for function, arguments in (
        (loop.advance, (fixed, state)),
        (
            evaluation._statistics_of_slices,
            (None, state.model, fixed[1], jnp.arange(4), [jax.random.key(1)], 60, True),
        ),
    ):
        assert_lowered(function, arguments, platform)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize(
    "options",
    [
        {"task": "gaussian", "layers": (3,), "estimator": "dreg"},
        {"task": "structured", "layers": (3,), "proposal": "prior", "estimator": "tang"},
        {"task": "attention", "data": "translated-mnist", "task_options": ("glimpses=2", "units=3")},
    ],
)
def test_updates_of_the_other_tasks_are_lowered_for_accelerators(options, platform):
    config = vimco.RunConfig(**{"data": "synthetic", "num_samples": 2, **options})
    experiment = Experiment(config, load_dataset(config.data))
    examples, number = experiment.examples("train"), jnp.asarray(3, jnp.int32)
    fixed = (experiment.trainer, examples, experiment.trainer.epoch_order(examples, 0), number)
    assert_lowered(loop.advance, (fixed, eqx.filter_eval_shape(experiment.initial_state)), platform)


def assert_lowered(function, arguments, platform):
    """Assert that a platform has all that the function needs, and that all of its loop is lowered."""
    shapes, rest = eqx.partition(arguments, lambda leaf: eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct))
    jitted = jax.jit(lambda shapes: eqx.filter(function(*eqx.combine(shapes, rest)), eqx.is_array))
    text = jitted.trace(shapes).lower(lowering_platforms=(platform,)).as_text()
    assert "stablehlo.while" in text
    calls = set(re.findall(r"custom_call @(\w+)", text))
    assert not calls, f"{platform} would need {calls}"


def test_the_loop_needs_no_compiler_options(training, monkeypatch):
    """Other platforms than CPUs compile without them: the same training, to rounding."""
    fixed, state = training
    arrays, rest = eqx.partition(state, eqx.is_array)
    after = [
        jax.jit(
            lambda arrays: eqx.filter(loop.advance(fixed, eqx.combine(arrays, rest)), eqx.is_array),
            compiler_options=options,
        )(arrays)
        for options in (compiler_options(), {})
    ]
    for one, other in zip(*map(jax.tree.leaves, after), strict=True):
        if jnp.issubdtype(one.dtype, jnp.floating):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiler_options.__wrapped__() == {}
