"""The paper's claim about variance as a deterministic test: exact variances on a fixed toy, by enumeration.

Eight configurations with a uniform proposal; the numbers below are sums over all 8^K sets of K samples.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import Toy, sbn_toy, table_toy
from scipy.special import gammaln, xlogy

from vimco import (
    NVIL,
    VIMCO,
    Estimator,
    Naive,
    ScaledMean,
    arithmetic_mean_of_others,
    left_out,
    normalized_weights,
    vimco_signal,
)
from vimco.estimators import RunningMoments

pytestmark = [
    pytest.mark.usefixtures("float64"),
    pytest.mark.filterwarnings("ignore:Leaving the sample out"),  # with the prior too, to show what it costs
]

LOG_JOINT = [-6.0, -5.2, -7.1, -4.0, -6.5, -5.0, -8.0, -4.6]


def toy() -> Toy:
    return table_toy(LOG_JOINT, [0.0] * 8)


def with_baseline(b: float) -> NVIL:
    """Return the estimator of Eq. 8 with a given constant baseline."""
    moments = eqx.tree_at(lambda m: m.mean, RunningMoments(), jnp.array(b))
    return NVIL(None, moments, variance_normalisation=False)


def ideal_baseline(toy: Toy, K: int) -> float:
    """Return the b of least variance. With g the naive gradient and s = Σ_j ∇ log Q(h^j): b = E[g·s] / E[s·s]."""
    gradients, probability = toy.gradients(Naive(), K), toy.probabilities(K)
    score = toy.gradient_of_log_proposal[toy.sets(K)].sum(axis=0)
    return (probability @ np.sum(gradients * score, axis=1)) / (probability @ np.sum(score**2, axis=1))


def variances(toy: Toy, K: int) -> dict[str, float]:
    estimators: dict[str, Estimator] = {"naive": Naive(), "nvil": with_baseline(ideal_baseline(toy, K))}
    if K > 1:
        estimators |= {
            "vimco": VIMCO(),
            "vimco-arithmetic": VIMCO(arithmetic_mean_of_others),
            "vimco-leave-one-out": VIMCO(left_out),
        }
    return {name: toy.variance(estimator, K) for name, estimator in estimators.items()}


def test_enumeration_itself():
    """The naive variance at K = 2 once more, with all gradients written down: ∇ log Q(h) = e_h − q, ∇ log P = e_h."""
    q, log_f, eye = 1 / 8, np.array(LOG_JOINT) + np.log(8), np.eye(8)
    gradients = []
    for i in range(8):
        for j in range(8):
            f = np.exp(log_f[[i, j]])
            bound, weights = np.log(f.mean()), f / f.sum()
            score = eye[[i, j]] - q
            of_proposal = bound * score.sum(axis=0) - weights @ score
            gradients.append(np.concatenate([weights @ eye[[i, j]], of_proposal]))
    expected = np.var(gradients, axis=0).sum()  # all sets are equally likely
    assert toy().variance(Naive(), 2) == pytest.approx(expected, rel=1e-12)


def test_ideal_baseline_is_the_best():
    b = ideal_baseline(toy(), 2)
    best, *others = (toy().variance(with_baseline(b + shift), 2) for shift in (0.0, -0.1, 0.1))
    assert best < min(others)


@pytest.mark.parametrize(
    ("K", "expected"),
    [
        (1, {"naive": 21.56759, "nvil": 2.06938}),
        (2, {"naive": 29.60839, "nvil": 2.32289, "vimco": 1.52854, "vimco-leave-one-out": 1.81601}),
        (3, {"naive": 37.13642, "nvil": 2.13011, "vimco": 0.77346, "vimco-leave-one-out": 0.78010}),
        (4, {"naive": 44.84756, "nvil": 1.92948, "vimco": 0.50915, "vimco-leave-one-out": 0.47269}),
    ],
)
def test_exact_variances(K, expected):
    actual = variances(toy(), K)
    for name, value in expected.items():
        assert actual[name] == pytest.approx(value, abs=1e-5), name
    if K > 1:
        assert actual["vimco"] < actual["nvil"] < actual["naive"]
        assert actual["vimco"] <= actual["vimco-arithmetic"] * (1 + 1e-12)


def test_how_variances_change_with_samples():
    """Sec. 2.5: more samples are more scores with the same signal, unless each has a separate signal."""
    by_K = {K: variances(toy(), K) for K in (2, 3, 4)}
    naive, nvil, vimco = ([by_K[K][name] for K in (2, 3, 4)] for name in ("naive", "nvil", "vimco"))
    assert naive[0] < naive[1] < naive[2]
    assert vimco[0] > vimco[1] > vimco[2]
    gap = np.array(nvil) / vimco
    assert gap[0] < gap[1] < gap[2]


@pytest.mark.parametrize("kind", ["generative", "structured-prior", "structured-learned"])
def test_vimco_beats_nvil_beats_naive_on_belief_networks(kind):
    """At K = 3, for all three kinds of model, with NVIL's baseline at its ideal value."""
    actual = variances(sbn_toy(kind), 3)
    assert actual["vimco"] < actual["nvil"] < actual["naive"]


def test_leaving_out_needs_a_proposal_that_explains_the_data():
    """f̂ = 0 is better with a good proposal and many samples, and worse with the prior."""
    good = table_toy(LOG_JOINT, [0.2, -0.4, -1.0, 0.9, -0.5, 0.3, -1.2, 0.6])
    assert good.variance(VIMCO(left_out), 4) < 0.6 * good.variance(VIMCO(), 4)
    prior = sbn_toy("structured-prior")
    assert prior.variance(VIMCO(left_out), 3) > 4 * prior.variance(VIMCO(), 3)


def best_scale(toy: Toy, K: int) -> float:
    """Return the c of least variance in f̂ = c times the arithmetic mean.

    The signal falls by b = log(1 + c/(K − 1)) for all samples alike, so the variance is a parabola in b.
    """
    scales = np.array([0.0, 0.5, 1.0])
    parabola = np.polyfit(np.log1p(scales / (K - 1)), [toy.variance(VIMCO(ScaledMean(c)), K) for c in scales], 2)
    return (K - 1) * np.expm1(-parabola[1] / (2 * parabola[0]))


@pytest.mark.parametrize(
    ("share", "weights", "order", "is_prior"),
    [
        (0.05, (10.0, 0.526), 0.0, True),
        (0.5, (1.5, 0.5), 0.0, True),
        (0.05, (10.0, 0.526), 0.5, False),
        (0.5, (3.0, 0.2), 0.5, False),
        (0.3, (3.0, 0.2), 0.0, False),
    ],
)
def test_best_scale_for_many_samples(share, weights, order, is_prior):
    """c = (1 − (1 − α) κ) (E[r ‖s‖²] − ‖E[r s]‖²) / E‖s‖² has the least variance to leading order in 1/K.

    Of K = 500 samples a binomial number n are the first of two configurations; s is the score of its log-odds. The
    signal falls by log(1 + c/(K − 1)) / (1 − α) for all alike, so that the best c is a regression on Σ_k s_k.
    """
    K, n = 500, np.arange(501)
    probability = np.exp(
        gammaln(K + 1) - gammaln(n + 1) - gammaln(K - n + 1) + xlogy(n, share) + xlogy(K - n, 1 - share)
    )
    is_first = np.arange(K)[:, None] < n  # (K, numbers)
    powers, score = np.array(weights) ** (1 - order), np.where(is_first, 1 - share, -share)
    log_powers = np.log(np.where(is_first, *powers))
    coefficients = vimco_signal(log_powers, left_out(log_powers)) / (1 - order)
    if not is_prior:
        coefficients = coefficients - normalized_weights(log_powers)
    gradient, total = np.sum(coefficients * score, axis=0), np.sum(score, axis=0)
    slope = probability @ ((gradient - probability @ gradient) * total) / (probability @ total**2)
    best = (K - 1) * np.expm1((1 - order) * slope)

    scores = np.array([1 - share, -share])
    shares = np.array([share, 1 - share])
    relative = powers / (shares @ powers)
    of_weights = (shares @ (relative * scores**2) - (shares @ (relative * scores)) ** 2) / (shares @ scores**2)
    assert best == pytest.approx((1 if is_prior else order) * of_weights, rel=0.03, abs=0.01)


def test_best_scale_of_the_mean():
    """To leading order 1 with the prior as proposal, 0 with a learned one.

    With the posterior itself w̃ = 1/K, and the coefficient −log(1 − w̃) − w̃ − b of every score can be made zero.
    """
    prior, learned = sbn_toy("structured-prior"), table_toy(LOG_JOINT, [0.2, -0.4, -1.0, 0.9, -0.5, 0.3, -1.2, 0.6])
    posterior = table_toy(LOG_JOINT, LOG_JOINT)
    for K in (2, 3, 4):
        assert best_scale(posterior, K) == pytest.approx((K - 1) * np.expm1(-np.log1p(-1 / K) - 1 / K), rel=1e-9)
        assert best_scale(prior, K) == pytest.approx(1.0, abs=0.2)
    assert 0.5 > best_scale(learned, 2) > best_scale(learned, 3) > best_scale(learned, 4) > 0
    for toy, scales in ((prior, (1.0, 0.5, 0.0)), (learned, (0.0, 0.5, 1.0))):
        best, middle, worst = (toy.variance(VIMCO(ScaledMean(c)), 3) for c in scales)
        assert best < middle < worst
