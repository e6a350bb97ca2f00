"""Signals: golden values, identities, weights of zero, extreme log-weights, precision, cost, kinds of array."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from array_api_compat import array_namespace
from hypothesis import given
from hypothesis import strategies as st

from vimco import (
    UsageError,
    arithmetic_mean_of_others,
    effective_sample_size,
    geometric_mean_of_others,
    left_out,
    multi_sample_bound,
    normalized_weights,
    vimco_signal,
)
from vimco.signals import (
    asymptotic_ovis_signal,
    jackknife_bound,
    naive_signal,
    ovis_signal,
    rloo_signal,
    thermodynamic_bound,
)

MEANS = {"geometric": geometric_mean_of_others, "arithmetic": arithmetic_mean_of_others, "left-out": left_out}
INF = math.inf


def signals_of(log_weights) -> dict:
    """Return the results of all functions of log-weights, by name."""
    xp = array_namespace(log_weights)
    values = {
        "bound": multi_sample_bound(log_weights),
        "weights": normalized_weights(log_weights),
        "effective": effective_sample_size(log_weights),
        "naive": naive_signal(log_weights),
        "learned": vimco_signal(log_weights, xp.full_like(log_weights[:1], -3.0)),
    }
    if log_weights.shape[0] > 1:
        values |= {name: vimco_signal(log_weights, mean(log_weights)) for name, mean in MEANS.items()}
    return values


compiled_signals = jax.jit(signals_of)
LIBRARIES = {"numpy": signals_of, "jax": lambda log_weights: compiled_signals(jnp.asarray(log_weights))}


def direct_signal(log_weights: np.ndarray, name: str, j: int) -> np.ndarray:
    """Return Eq. 9 for sample j by definition: the mean of the others replaces f_j, in float64."""
    log_weights = log_weights.astype(np.float64)
    others = np.delete(log_weights, j, axis=0)
    log_estimate = {
        "geometric": np.mean(others, axis=0),
        "arithmetic": np.logaddexp.reduce(others, axis=0) - np.log(len(others)),
        "left-out": np.full(others.shape[1:], -INF),
    }[name]
    swapped = np.concatenate([others, log_estimate[None]])
    return np.logaddexp.reduce(log_weights, axis=0) - np.logaddexp.reduce(swapped, axis=0)


class TestGoldenValues:
    """log f = (−83, −75, −80, −79): one dominant weight, as in a trained network.

    Relative to e^−75 the weights are e^−8, 1, e^−5, e^−4, of sum S = 1.02538904. So L̂ = −75 + log(S/4), and
    w̃ = (e^−8, 1, e^−5, e^−4)/S. For j = 2 the others are −83, −80, −79: geometric mean −80.6667, arithmetic mean
    log((e^−8 + e^−5 + e^−4)/3) − 75 = −79.7705; the signal is log S − log(e^−8 + e^−5 + e^−4 + f̂ e^75).
    """

    log_weights = np.array([-83.0, -75.0, -80.0, -79.0])

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("bound", -76.36122226),
            ("weights", [0.00032716, 0.97523959, 0.00657111, 0.01786214]),
            ("geometric", [-0.04710032, 3.57077195, -0.01122776, 0.00507622]),
            ("arithmetic", [-0.28735486, 3.41082739, -0.28108927, -0.26965848]),
            ("left-out", [0.00032721, 3.69850946, 0.0065928, 0.01802359]),
        ],
    )
    def test_values(self, name, expected):
        np.testing.assert_allclose(signals_of(self.log_weights)[name], expected, rtol=0, atol=6e-9)

    def test_what_the_surrogate_multiplies_the_score_with(self):
        """Signal − w̃: the second term of Eq. 10 contains −w̃ ∇ log Q."""
        values = signals_of(self.log_weights)
        expected = [-0.04742748, 2.59553236, -0.01779887, -0.01278592]
        np.testing.assert_allclose(values["geometric"] - values["weights"], expected, rtol=0, atol=6e-9)

    def test_derivation(self):
        f = [math.exp(-8), 1.0, math.exp(-5), math.exp(-4)]
        others = f[0] + f[2] + f[3]
        values = signals_of(self.log_weights)
        assert values["bound"] == pytest.approx(-75 + math.log(sum(f) / 4), abs=1e-12)
        assert values["geometric"][1] == pytest.approx(math.log(sum(f) / (others + math.exp(-17 / 3))), abs=1e-12)
        assert values["arithmetic"][1] == pytest.approx(math.log(sum(f) / (others + others / 3)), abs=1e-12)
        assert values["left-out"][1] == pytest.approx(math.log(sum(f) / others), abs=1e-12)

    def test_effective_sample_size(self):
        """Three equal weights and one of zero are worth three; a single one is worth one."""
        assert effective_sample_size(np.array([0.0, 0.0, 0.0, -INF])) == pytest.approx(3)
        squares = 0.00032716**2 + 0.97523959**2 + 0.00657111**2 + 0.01786214**2
        assert effective_sample_size(self.log_weights) == pytest.approx(1 / squares, abs=1e-7)


def test_geometric_mean_is_the_default():
    log_weights = np.random.default_rng(0).normal(size=(5, 3))
    expected = vimco_signal(log_weights, geometric_mean_of_others(log_weights))
    np.testing.assert_array_equal(vimco_signal(log_weights), expected)


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("K", [2, 3, 7])
def test_signal_is_the_definition(name, K):
    log_weights = np.random.default_rng(K).normal(-20, 4, size=(K, 2, 3))
    expected = np.stack([direct_signal(log_weights, name, j) for j in range(K)])
    np.testing.assert_allclose(signals_of(log_weights)[name], expected, rtol=0, atol=1e-12)


def test_leaving_out_is_minus_log_of_one_minus_the_weight():
    log_weights = np.random.default_rng(1).normal(size=(6, 4))
    expected = -np.log1p(-normalized_weights(log_weights))
    np.testing.assert_allclose(signals_of(log_weights)["left-out"], expected, rtol=0, atol=1e-12)


def test_learned_estimate_of_f_at_one_sample():
    """K = 1 leaves log f − log f(x): NVIL with log f(x) as its baseline (Sec. 2.5.3)."""
    log_weights, log_f = np.array([[-5.0, -100.0, 3.0]]), np.array([[-4.0, -80.0, 3.0]])
    np.testing.assert_allclose(vimco_signal(log_weights, log_f), log_weights - log_f, rtol=0, atol=1e-13)


@pytest.mark.parametrize("mean", [geometric_mean_of_others, arithmetic_mean_of_others, vimco_signal])
def test_one_sample_has_no_others(mean):
    with pytest.raises(UsageError, match=r"K >= 2; got K = 1.*for K = 1"):
        mean(np.zeros((1, 4)))


class TestWeightsOfZero:
    """log f = −inf is allowed; the module's docstring explains it."""

    def test_one_zero(self):
        """Impossible samples count in K. The geometric mean of others with a zero among them is zero: left out."""
        values = signals_of(np.array([-1.0, -2.0, -INF]))
        f = np.exp([-1.0, -2.0])
        assert values["bound"] == pytest.approx(math.log(f.sum() / 3))
        np.testing.assert_allclose(values["weights"], [*(f / f.sum()), 0])
        np.testing.assert_allclose(values["geometric"][:2], np.log(f.sum() / f[::-1]), atol=1e-12)
        assert values["geometric"][2] == pytest.approx(math.log(f.sum() / (f.sum() + math.exp(-1.5))))
        assert values["arithmetic"][2] == pytest.approx(math.log(f.sum() / (1.5 * f.sum())))
        assert values["left-out"][2] == 0

    @pytest.mark.parametrize("name", MEANS)
    def test_all_others_zero_leaves_the_bound_itself(self, name):
        """The only possible sample cannot be compared with others: its signal is L̂, without a cap."""
        values = signals_of(np.array([-INF, -70.0, -INF]))
        assert values["bound"] == pytest.approx(-70 - math.log(3))
        assert values[name][1] == values["bound"]
        assert np.all(np.isfinite(values[name]))
        assert values["effective"] == 1

    def test_a_learned_estimate_is_something_to_compare_with(self):
        values = signals_of(np.array([-INF, -70.0, -INF]))
        assert values["learned"][1] == pytest.approx(-70 - -3)

    def test_all_zero(self):
        values = signals_of(np.full((3, 2), -INF))
        assert np.all(values.pop("bound") == -INF)
        for name, value in values.items():
            assert np.all(value == 0), name

    def test_columns_do_not_touch_each_other(self):
        """A column of zeros beside a healthy one changes nothing in it."""
        healthy = np.array([-1.0, -2.0, -4.0])
        both = signals_of(np.stack([healthy, np.full(3, -INF)], axis=1))
        for name, value in signals_of(healthy).items():
            np.testing.assert_array_equal(both[name][..., 0], value, err_msg=name)


hostile = st.one_of(
    st.floats(-1000, 1000, width=32), st.sampled_from([-INF, -INF, -1e30, 1e30, 0.0, -1e4, -87.5, -745.5, 1e-30])
)
# Few shapes, because JAX compiles for each.
hostile_log_weights = st.sampled_from([1, 2, 4]).flatmap(
    lambda K: st.lists(hostile, min_size=2 * K, max_size=2 * K).map(lambda v: np.array(v).reshape(K, 2))
)


@given(hostile_log_weights)
def test_hostile_log_weights_never_make_a_nan(log_weights):
    """Values from −inf through ±1e30: NumPy and JAX, both precisions, one answer."""
    single = log_weights.astype(np.float32)
    answers = [signals_of(log_weights), signals_of(single), compiled_signals(jnp.asarray(single))]
    with jax.enable_x64(True):
        answers.append(compiled_signals(jnp.asarray(log_weights)))
    for answer in answers:
        for name, value in answer.items():
            assert not np.any(np.isnan(value)), name
            assert name == "bound" or np.all(np.isfinite(value)), name
        weights = np.asarray(answer["weights"])
        assert np.all((weights >= 0) & (weights <= 1))
        total = weights.sum(axis=0)
        np.testing.assert_allclose(total, np.where(np.asarray(answer["bound"]) > -INF, 1, 0), atol=1e-6)
        assert np.all(np.asarray(answer["effective"]) <= len(weights) * (1 + 1e-6))
    for name, value in answers[0].items():
        np.testing.assert_allclose(answers[3][name], value, rtol=1e-12, atol=1e-9, err_msg=name)
    for name, value in answers[1].items():
        np.testing.assert_allclose(answers[2][name], value, rtol=1e-5, atol=1e-3, err_msg=name)


moderate = st.one_of(st.floats(-50, 50), st.just(-INF))
moderate_log_weights = st.integers(2, 6).flatmap(
    lambda K: st.lists(moderate, min_size=K, max_size=K).map(lambda v: np.array(v))
)


@given(moderate_log_weights, st.floats(-1000, 1000))
def test_a_common_factor_moves_the_bound_and_no_signal(log_weights, shift):
    """f → e^c f: L̂ + c, and the same weights and signals, but for a sample without a baseline, whose signal is L̂."""
    before, after = signals_of(log_weights), signals_of(log_weights + shift)
    np.testing.assert_allclose(after["bound"], before["bound"] + shift, atol=1e-9)
    np.testing.assert_allclose(after["weights"], before["weights"], atol=1e-9)
    is_zero = log_weights == -INF
    no_baseline = (is_zero.sum() - is_zero == len(is_zero) - 1) & ~is_zero
    for name in MEANS:
        np.testing.assert_allclose(after[name], before[name] + np.where(no_baseline, shift, 0), atol=1e-7)


@given(moderate_log_weights, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(log_weights, random):
    order = list(range(len(log_weights)))
    random.shuffle(order)
    before, after = signals_of(log_weights), signals_of(log_weights[order])
    np.testing.assert_allclose(after["bound"], before["bound"], atol=1e-12)
    for name in ("weights", *MEANS):
        np.testing.assert_allclose(after[name], before[name][order], rtol=1e-9, atol=1e-9)


@given(st.integers(2, 6), st.floats(-500, 500))
def test_equal_weights_carry_no_signal(K, value):
    """Equal samples have signal zero; with f̂ = 0 each has −log(1 − 1/K)."""
    values = signals_of(np.full(K, value))
    np.testing.assert_allclose(values["geometric"], 0, atol=1e-12)
    np.testing.assert_allclose(values["arithmetic"], 0, atol=1e-12)
    np.testing.assert_allclose(values["left-out"], -math.log1p(-1 / K), atol=1e-12)
    assert values["effective"] == pytest.approx(K)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("mean", "deviation", "tolerance"), [(-100, 5, 1e-5), (-500, 50, 1e-4)])
@pytest.mark.parametrize("K", [2, 10, 200, 5000])
def test_float32_is_accurate_where_one_weight_dominates(library, mean, deviation, tolerance, K):
    """Leave-one-out by subtraction in log space would be off by 0.2 nats here."""
    rng = np.random.default_rng(K)
    log_weights = rng.normal(mean, deviation, size=(K, 8)).astype(np.float32)
    values = LIBRARIES[library](log_weights)
    chosen = {*log_weights.argmax(axis=0), *log_weights.argmin(axis=0), *rng.integers(0, K, size=8)}
    for name in MEANS:
        for j in chosen:
            error = np.asarray(values[name][j], np.float64) - direct_signal(log_weights, name, j)
            assert np.max(np.abs(error)) <= tolerance, name


@pytest.mark.parametrize("library", LIBRARIES)
def test_many_samples(library):
    """K = 20,000 at batch 64, where a K × K array per example would take 100 GB."""
    log_weights = np.random.default_rng(0).normal(-100, 5, size=(20_000, 64)).astype(np.float32)
    signal = np.asarray(LIBRARIES[library](log_weights)["geometric"])
    assert signal.shape == log_weights.shape
    for j in (*log_weights.argmax(axis=0)[:3], 0, 19_999):
        np.testing.assert_allclose(signal[j], direct_signal(log_weights, "geometric", j), atol=1e-5)


def test_memory_grows_with_samples_not_with_their_square():
    """No value in the whole computation is larger than the log-weights."""
    log_weights = jax.ShapeDtypeStruct((3000, 2), jnp.float32)

    def sizes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (variable.aval.size for variable in equation.outvars)
            for parameter in equation.params.values():
                if hasattr(parameter, "jaxpr"):
                    yield from sizes(parameter.jaxpr)

    assert max(sizes(jax.make_jaxpr(signals_of)(log_weights).jaxpr)) == 3000 * 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(4,), (4, 3, 2)])
@pytest.mark.parametrize("library", LIBRARIES)
def test_answers_in_kind(dtype, shape, library):
    """The result has the library and precision of the input; samples are axis 0, any shape behind."""
    log_weights = np.random.default_rng(0).normal(size=shape).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        for name, value in LIBRARIES[library](log_weights).items():
            assert isinstance(value, jax.Array if library == "jax" else np.ndarray | np.generic), name
            assert value.dtype == dtype, name
            assert value.shape == (shape[1:] if name in ("bound", "effective") else shape), name


def test_answers_without_compilation_too():
    """As when a user calls a function at the prompt."""
    log_weights = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    np.testing.assert_allclose(vimco_signal(jnp.asarray(log_weights)), vimco_signal(log_weights), atol=1e-6)


def test_a_weight_that_is_no_number_is_told_from_a_zero():
    """A broken model must not look like one with impossible samples, from which nothing is learned."""
    weights = jnp.array([[jnp.nan, 0.0], [0.0, -1.0], [-1.0, -2.0]])
    for function in (multi_sample_bound, normalized_weights, effective_sample_size, vimco_signal, jackknife_bound):
        value = np.asarray(function(weights))
        assert np.all(np.isnan(value[..., 0])), function
        assert np.all(np.isfinite(value[..., 1])), function


@pytest.mark.parametrize("other", [-1.0, -jnp.inf])
@pytest.mark.parametrize(
    "function",
    [
        rloo_signal,
        vimco_signal,
        lambda log_weights: asymptotic_ovis_signal(log_weights, 1.0),
        lambda log_weights: thermodynamic_bound(log_weights, (0.0, 0.5)),
    ],
    ids=["rloo", "vimco", "ovis", "thermodynamic"],
)
def test_a_weight_that_is_no_number_is_told_beside_a_zero_too(function, other):
    assert np.all(np.isnan(np.asarray(function(jnp.array([0.0, jnp.nan, other])))))


@pytest.mark.parametrize("K", [100, 5000])
@pytest.mark.parametrize(
    "signal",
    [
        vimco_signal,
        lambda log_weights: vimco_signal(log_weights, left_out(log_weights)),
        lambda log_weights: ovis_signal(log_weights, log_weights[:5] + 0.1),
    ],
    ids=["geometric", "left-out", "ovis"],
)
def test_signals_of_many_samples_have_digits_in_float32(signal, K):
    """Without f̂, and with OVIS, signal − w̃ is of size 1/K²: a difference of two logarithms of K would be noise."""
    log_weights = np.random.default_rng(0).normal(-90, 0.3, (K, 4)).astype("float32")
    exact = signal(log_weights.astype("float64"))
    error = np.sqrt(np.mean((signal(log_weights) - exact) ** 2))
    assert error < 0.02 * np.sqrt(np.mean((exact - normalized_weights(log_weights.astype("float64"))) ** 2))
