"""Pure functions of log-weights: the bound, the weights, the learning signals.

`log_weights` holds log f(x, h^k): samples on axis 0, any shape behind it. Every function reduces axis 0 only, costs
O(K) time and memory, and is written against the array-API standard: it takes JAX arrays (also under `jit`), NumPy
arrays or PyTorch tensors, and returns the same kind.

A weight f = 0 has the log-weight −inf, which is allowed everywhere:

- where all K weights are zero, the bound is −inf, and weights and signals are 0, so nothing is learned from them;
- where all weights *except that of sample j* are zero (and so is f̂), the sample cannot be compared with others. Its
  signal is then L̂ itself, without a baseline. This choice depends on the other samples only, so the estimate stays
  exactly unbiased; a cap on the signal would add a bias.

A log-weight that is NaN makes bound and signals of its set NaN.

So an unbiased estimator ascends E[L̂; some f > 0], in which a set of impossible samples counts as L̂ = 0. Where log f is
usually negative and such sets are not rare, that is better than a possible set, and the proposal learns to make them.
Add a constant to log P(x, h) that makes log f positive: it changes nothing else.

Do not differentiate these functions: estimators hold signals and weights constant.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace, device
from jaxtyping import Bool, Float

from vimco.errors import UsageError

Array = Any  # a JAX, NumPy or PyTorch array


def multi_sample_bound(log_weights: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """Return the stochastic lower bound L̂ = log 1/K Σ_k f(x, h^k)  (Eq. 4).

    In expectation it never exceeds log P(x), and it grows with K.
    """
    return _log_sum(log_weights) - math.log(log_weights.shape[0])


def normalized_weights(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """Return the weights w̃_j = f_j / Σ_i f_i  (below Eq. 5): non-negative, of sum one; all 0 where every f is 0."""
    xp = array_namespace(log_weights)
    weights = xp.exp(log_weights - _finite_maximum(log_weights))
    total = _sum(weights)
    return weights / xp.where(total == 0, 1.0, total)


def effective_sample_size(log_weights: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """Return (Σ f)² / Σ f², the equivalent number of equal weights, from 1 to K; 0 where every f is 0."""
    xp = array_namespace(log_weights)
    squares = _sum(normalized_weights(log_weights) ** 2)
    return xp.where(squares == 0, 0.0, 1.0 / xp.where(squares == 0, 1.0, squares))


def naive_signal(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """Return the learning signal of the naive estimator: L̂ for all K samples (Eq. 7); 0 where every f is 0."""
    xp = array_namespace(log_weights)
    bound = multi_sample_bound(log_weights)
    return xp.broadcast_to(xp.where(bound == -math.inf, 0.0, bound), log_weights.shape)


def vimco_signal(
    log_weights: Float[Array, "K *B"], log_estimate_of_f: Float[Array, "#K *#B"] | None = None
) -> Float[Array, "K *B"]:
    """Return the learning signal of each sample, L̂(h^j | h^-j) = L̂ − log 1/K (Σ_{i≠j} f_i + f̂_j)  (Eq. 9).

    `log_estimate_of_f` is log f̂_j, any quantity that does not depend on sample j: `geometric_mean_of_others` (the
    default), `arithmetic_mean_of_others`, `left_out` (f̂ = 0), or a learned log f(x). The means need K ≥ 2. The
    module's docstring explains weights of zero.
    """
    xp = array_namespace(log_weights)
    if log_estimate_of_f is None:
        log_estimate_of_f = geometric_mean_of_others(log_weights)
    # A common scale of all weights does not change the signal.
    maximum = _finite_maximum(log_weights)
    relative, log_estimate = log_weights - maximum, log_estimate_of_f - maximum
    log_sum = _log(_sum(xp.exp(relative)))
    log_baseline = xp.logaddexp(_relative_log_sum_of_others(relative), log_estimate)
    has_baseline = log_baseline > -math.inf
    signal = -_log_change(relative, log_estimate, xp.where(has_baseline, log_baseline, 0.0) - log_sum)
    bound = maximum + log_sum - math.log(log_weights.shape[0])
    return xp.where(log_sum == -math.inf, 0.0, xp.where(has_baseline, signal, bound))


def geometric_mean_of_others(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """Return log f̂_j = 1/(K−1) Σ_{i≠j} log f_i, the paper's choice; −inf where one of the others is."""
    xp = array_namespace(log_weights)
    others = _number_of_others(log_weights)
    maximum = _finite_maximum(log_weights)
    is_zero = log_weights == -math.inf
    below = xp.where(is_zero, 0.0, maximum - xp.where(is_zero, maximum, log_weights))
    mean_below = sum_of_others(below) / others
    zeros = xp.astype(is_zero, log_weights.dtype)
    return xp.where(_sum(zeros) - zeros > 0, -math.inf, maximum - mean_below)


def arithmetic_mean_of_others(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """Return log f̂_j = log 1/(K−1) Σ_{i≠j} f_i."""
    maximum = _finite_maximum(log_weights)
    log_sum_of_others = maximum + _relative_log_sum_of_others(log_weights - maximum)
    return log_sum_of_others - math.log(_number_of_others(log_weights))


def left_out(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """Return log f̂_j = −inf: the baseline leaves sample j out, and the signal is −log(1 − w̃_j)."""
    return array_namespace(log_weights).full_like(log_weights, -math.inf)


@dataclass(frozen=True)
class ScaledMean:
    """log f̂_j = log c/(K−1) Σ_{i≠j} f_i: c = 1 is the arithmetic mean, c = 0 leaves the sample out.

    Any c ≥ 0 keeps the estimate unbiased. To leading order in 1/K the variance is smallest at c = 0 for a learned
    proposal (Daudel et al., 2026, arXiv 2602.01412). Where the prior is the proposal it is smallest at
    (E[r ‖s‖²] − ‖E[r s]‖²) / E‖s‖², with r = f / E f and s = ∇ log Q: near 1 where scores and weights are unrelated.
    """

    scale: float | Array  # c

    def __call__(self, log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
        """Return log f̂ of each sample."""
        mean = arithmetic_mean_of_others(log_weights)
        if not isinstance(self.scale, int | float):
            return mean + _log(self.scale)
        if not 0 <= self.scale < math.inf:
            raise UsageError(f"The scale c of a mean must be zero or a positive, finite number; got {self.scale}.")
        return mean + math.log(self.scale) if self.scale > 0 else left_out(log_weights)


def check_order(order: float) -> None:
    """Refuse a Rényi order outside [0, 1)."""
    if not 0 <= order < 1:
        raise UsageError(
            f"The Rényi order must be at least 0 (the multi-sample bound) and below 1; got {order}. At 1 the bound is "
            "the variational bound (ELBO), which has an estimator of its own, RLOO."
        )


def check_rounding(power: float, epsilon: float) -> None:
    """Refuse a power 1 − α so small that f^(1−α) differs from 1 by little more than rounding errors."""
    if power < 100 * epsilon:
        raise UsageError(
            f"At the Rényi order {1 - power!r} the weights to the power 1 − α differ by little more than rounding "
            "errors in this precision: use an order further from 1, or RLOO, the estimator of the ELBO."
        )


def powers_of_weights(log_weights: Float[Array, "K *B"], order: float | Array) -> Float[Array, "K *B"]:
    """Return (1 − α) log f_k, which replaces the log-weights in the bound of Rényi order α."""
    if isinstance(order, int | float):
        check_order(order)
        if order == 0:
            return log_weights
        check_rounding(1 - order, float(array_namespace(log_weights).finfo(log_weights.dtype).eps))
    # Computed this way, the largest value does not depend on how a compiler rounds; later steps subtract it again.
    maximum = _finite_maximum(log_weights)
    return (1 - order) * (log_weights - maximum) + (1 - order) * maximum


def renyi_bound(log_weights: Float[Array, "K *B"], order: float | Array) -> Float[Array, "*B"]:
    """Return L̂^α = 1/(1−α) log 1/K Σ_k f_k^{1−α}, 0 ≤ α < 1 (Li & Turner, 2016). α = 0 is the multi-sample bound.

    As α → 1 it tends to the mean of log f, the ELBO's estimate.
    """
    return multi_sample_bound(powers_of_weights(log_weights, order)) / (1 - order)


def jackknife_bound(log_weights: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """Return K L̂_K − (K−1) mean_j L̂_{K−1} without j: log P(x) with a bias of order 1/K², not a bound. K ≥ 2.

    For evaluation alone. −inf where fewer than two weights are positive, since leaving one out then leaves none.
    """
    xp = array_namespace(log_weights)
    others = _number_of_others(log_weights, "The jackknife leaves out one sample after the other")
    relative = log_weights - _finite_maximum(log_weights)
    log_sum_of_others = _relative_log_sum_of_others(relative)
    is_undefined = xp.any(log_sum_of_others == -math.inf, axis=0)
    # The formula above is a difference of numbers of size K. It equals L̂ − (K−1) (mean_j log(1 − w̃_j) − log(1 − 1/K)).
    weights = normalized_weights(log_weights)
    of_small = xp.log1p(-xp.where(weights < 0.5, weights, 0.0))
    log_sum = _log(_sum(xp.exp(relative)))
    of_large = xp.where(is_undefined, 0.0, log_sum_of_others) - xp.where(is_undefined, 0.0, log_sum)
    left = xp.mean(xp.where(weights < 0.5, of_small, of_large), axis=0)
    value = multi_sample_bound(log_weights) - others * (left - math.log1p(-1 / (1 + others)))
    return xp.where(is_undefined, -math.inf, value)


def ovis_signal(
    log_weights: Float[Array, "K *B"],
    auxiliary_log_weights: Float[Array, "S *B"],
    *,
    proposal_is_prior: bool = False,
) -> Float[Array, "K *B"]:
    """Return the learning signal of OVIS with S auxiliary samples (Liévin et al., 2020), O(K S):

        signal_j = L̂ − 1/S Σ_s (log F_j^s/K − f^s/F_j^s),   F_j^s = Σ_{i≠j} f_i + f^s.

    The auxiliary samples come from the same proposal and replace sample j in the baseline only, an estimate of
    E[L̂ − w̃_j | h^-j]; it is unbiased for every S. With the prior as proposal log f does not contain log Q, and the
    baseline is the mean of log F_j^s/K. K ≥ 2. Where all others are zero the signal is L̂ itself.
    """
    xp = array_namespace(log_weights)
    _number_of_others(log_weights, "OVIS replaces a sample beside the others")
    S = auxiliary_log_weights.shape[0]
    if S < 1:
        raise UsageError("OVIS estimates its baseline from auxiliary samples: give one or more, S >= 1.")
    maximum = _finite_maximum(log_weights)
    relative = log_weights - maximum
    log_sum = _log(_sum(xp.exp(relative)))
    others = _relative_log_sum_of_others(relative)
    has_others = others > -math.inf
    # These entries are not used; they are finite because −inf − (−inf) would be NaN.
    others = xp.where(has_others, others, 0.0)
    auxiliary = auxiliary_log_weights - maximum
    swapped = xp.logaddexp(others[:, None], auxiliary[None])  # (K, S, *B)
    baseline = _log_change(relative[:, None], auxiliary[None], swapped - log_sum)  # relative to log_sum
    if not proposal_is_prior:
        baseline = baseline - xp.exp(auxiliary[None] - swapped)
    signal = -xp.mean(baseline, axis=1)
    bound = maximum + log_sum - math.log(log_weights.shape[0])
    return xp.where(log_sum == -math.inf, 0.0, xp.where(has_others, signal, bound))


def check_gamma(gamma: float) -> None:
    """Refuse a γ of OVIS~ outside [0, 1]."""
    if not 0 <= gamma <= 1:
        raise UsageError(f"gamma of OVIS~ lies between 0 (unbiased) and 1 (tends to the wake update); got {gamma}.")


def asymptotic_ovis_signal(log_weights: Float[Array, "K *B"], gamma: float) -> Float[Array, "K *B"]:
    """Return the learning signal of OVIS~, −log(1 − w̃_j) + γ (w̃_j + log(1 − 1/K)), 0 ≤ γ ≤ 1 (Liévin et al., 2020).

    γ = 0 is VIMCO with f̂ = 0 (`left_out`), unbiased. With γ = 1 the whole coefficient of ∇ log Q(h^j) tends to
    w̃_j − 1/K as K grows: the wake update of RWS, centred, and not ∇L^K. K ≥ 2.
    """
    xp = array_namespace(log_weights)
    check_gamma(gamma)
    K = 1 + _number_of_others(log_weights, "OVIS compares each sample with the others")
    signal = vimco_signal(log_weights, left_out(log_weights))
    if gamma == 0:
        return signal
    shift = gamma * (normalized_weights(log_weights) + math.log1p(-1 / K))
    return xp.where(xp.all(log_weights == -math.inf, axis=0), 0.0, signal + shift)


def rloo_signal(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """Return (log f_j − mean of the others' log f) / K = (log f_j − mean log f) / (K − 1): RLOO for the ELBO. K ≥ 2.

    Where a weight is zero the ELBO is −inf: nothing is learned from such a set, and its signals are 0.
    """
    xp = array_namespace(log_weights)
    others = _number_of_others(log_weights, "RLOO compares each sample with the mean of the others")
    is_zero = log_weights == -math.inf
    relative = xp.where(is_zero, 0.0, log_weights - _finite_maximum(log_weights))
    return xp.where(_has_zero(log_weights), 0.0, (relative - xp.mean(relative, axis=0)) / others)


def _has_zero(log_weights: Float[Array, "K *B"]) -> Bool[Array, "*B"]:
    """Return whether a weight of a set is zero, and none is NaN, which makes all of its set NaN."""
    xp = array_namespace(log_weights)
    return xp.any(log_weights == -math.inf, axis=0) & ~xp.any(xp.isnan(log_weights), axis=0)


def wake_weights(log_weights: Float[Array, "K *B"], centred: bool = False) -> Float[Array, "K *B"]:
    """Return w̃_j, the coefficient of ∇ log Q(h^j) in the wake update (Eq. 11); or w̃_j − 1/K, of the same mean.

    1/K is a baseline: a score has mean zero, so the mean stays and the variance falls. Where all others are zero the
    baseline is left out, which keeps the mean exactly.
    """
    weights = normalized_weights(log_weights)
    if not centred:
        return weights
    return weights - has_others(log_weights) / log_weights.shape[0]


def check_partition(partition: Sequence[float]) -> None:
    """Refuse points that are not a partition of [0, 1]: left ends that rise strictly from 0 and stay below 1."""
    points = tuple(partition)
    if not points:
        raise UsageError("The partition of the thermodynamic objective is empty: give its points, such as (0, 0.05).")
    rises = all(a < b for a, b in zip(points, (*points[1:], 1.0), strict=True))
    if points[0] != 0 or not rises:
        raise UsageError(
            "The partition of the thermodynamic objective must rise strictly, from 0, to points below 1; got "
            f"{', '.join(f'{point:g}' for point in points)}."
        )


def log_spaced_partition(num_points: int, smallest: float) -> tuple[float, ...]:
    """Return 0, then `num_points` − 1 points that rise by equal factors from `smallest`; the next would be 1."""
    if num_points < 1 or not 0 < smallest < 1:
        raise UsageError(
            "A log-spaced partition needs one or more points, and a smallest one between 0 and 1; got "
            f"{num_points} and {smallest}."
        )
    return (0.0, *(smallest ** (1 - i / (num_points - 1)) for i in range(num_points - 1)))


def moment_partition(log_weights: Float[Array, "K *B"], num_points: int) -> Float[Array, "P"]:
    """Return points β_i at which E_{π_β} log f has risen by i/P of the way from β = 0 to 1 (Brekelmans et al., 2020).

    The expectations are self-normalised and averaged over the examples; samples of weight zero take no part. To
    24 binary digits.
    """
    xp = array_namespace(log_weights)
    if num_points < 1:
        raise UsageError(f"A partition needs one or more points; got {num_points}.")
    K = log_weights.shape[0]
    log_weights = xp.reshape(log_weights, (K, 1, -1))
    is_zero = log_weights == -math.inf
    # Relative to the largest weight: differences of means would be lost in float32 where all weights are far from 1.
    finite = xp.where(is_zero, 0.0, log_weights - _finite_maximum(log_weights))

    def mean(betas: Float[Array, "P"]) -> Float[Array, "P"]:
        weights = normalized_weights(xp.where(is_zero, -math.inf, xp.reshape(betas, (1, -1, 1)) * finite))
        return xp.mean(xp.sum(weights * finite, axis=0), axis=-1)

    dtype, place = log_weights.dtype, device(log_weights)
    places = xp.arange(num_points, dtype=dtype, device=place) / num_points
    ends = mean(xp.asarray([0.0, 1.0], dtype=dtype, device=place))
    targets = ends[0] + places * (ends[1] - ends[0])
    points, eighths = xp.zeros_like(places), xp.arange(1, 8, dtype=dtype, device=place)
    for digit in range(1, 9):  # eight octal digits, one after the other
        trials = points[:, None] + eighths / 8**digit
        is_below = xp.reshape(mean(xp.reshape(trials, (-1,))), trials.shape) < targets[:, None]
        points = points + xp.sum(xp.astype(is_below, dtype), axis=1) / 8**digit
    return xp.where(places > 0, points, 0.0)  # the first point is 0, whatever is lost by rounding


def thermodynamic_bound(log_weights: Float[Array, "K *B"], partition: Sequence[float] | Array) -> Float[Array, "*B"]:
    """Return the left Riemann sum Σ_i (β_{i+1} − β_i) E_{π_{β_i}} log f of log P(x) = ∫ E_{π_β} log f dβ.

    It is estimated from K samples; π_β ∝ P(x, h)^β Q(h | x)^{1−β}. It is −inf where a weight is zero, since the first
    term is the ELBO's estimate.
    """
    xp = array_namespace(log_weights)
    total = _finite_maximum(log_weights)
    for _, step, weights, relative in _thermodynamic_terms(log_weights, partition):
        total = total + step * xp.sum(weights * relative, axis=0)
    return xp.where(_has_zero(log_weights), -math.inf, total)


def thermodynamic_coefficients(
    log_weights: Float[Array, "K *B"], partition: Sequence[float] | Array, *, centred: bool = True
) -> tuple[Float[Array, "K *B"], Float[Array, "K *B"]]:
    """Return the coefficients of ∇ log P(x, h^j) and ∇ log Q(h^j | x) in the gradient of the thermodynamic objective.

    That of TVO (Masrani et al., 2019), from K ≥ 2 samples, O(K P). With v = softmax(β log f) and l̄ = Σ_k v_k log f_k,
    each point β of the partition gives

        ∇ E_{π_β} log f ≈ Σ_k v_k ∇ log f_k + K/(K−1) Σ_k v_k (log f_k − l̄) (β ∇ log P_k + (1−β) ∇ log Q_k).

    It is self-normalised: biased by O(1/K), except at β = 0, which is RLOO on the ELBO. `centred` subtracts 1/K from
    the v_k that multiplies −∇ log Q_k: a score has mean zero, so the mean stays. Leave it out where the prior is the
    proposal.
    """
    xp = array_namespace(log_weights)
    K = 1 + _number_of_others(log_weights, "The thermodynamic objective needs a covariance over samples")
    baseline = has_others(log_weights) / K if centred else 0.0
    of_joint, of_proposal = xp.zeros_like(log_weights), xp.zeros_like(log_weights)
    for beta, step, weights, relative in _thermodynamic_terms(log_weights, partition):
        covariance = K / (K - 1) * weights * (relative - xp.sum(weights * relative, axis=0))
        # All weights are 0 where a sample is impossible: the ELBO is −inf, and nothing is learned from the set.
        has_weights = _sum(weights) > 0
        of_joint = of_joint + step * (weights + beta * covariance)
        of_proposal = of_proposal + xp.where(has_weights, step * ((1 - beta) * covariance - weights + baseline), 0.0)
    return of_joint, of_proposal


def _thermodynamic_terms(log_weights: Float[Array, "K *B"], partition: Sequence[float] | Array) -> Iterator[tuple]:
    """Yield β, its step, softmax(β log f) and log f relative to the largest, for each point of the partition.

    At β = 0, the first point, the weights are all 0 where one of the samples is impossible: the ELBO is then −inf.
    """
    xp = array_namespace(log_weights)
    if isinstance(partition, Sequence):
        check_partition(partition)
    is_zero = log_weights == -math.inf
    relative = xp.where(is_zero, 0.0, log_weights - _finite_maximum(log_weights))
    equal = xp.where(xp.any(is_zero, axis=0), 0.0, xp.full_like(log_weights, 1 / log_weights.shape[0]))
    P = len(partition)
    for i in range(P):
        beta = partition[i]
        step = (partition[i + 1] if i + 1 < P else 1.0) - beta
        yield beta, step, normalized_weights(xp.where(is_zero, -math.inf, beta * relative)) if i else equal, relative


def _number_of_others(
    log_weights: Float[Array, "K *B"], why: str = "VIMCO compares each sample with a mean of the others"
) -> int:
    """Return K − 1, the number that a mean of the others divides by; refuse K = 1."""
    K = log_weights.shape[0]
    if K < 2:
        raise UsageError(f"{why}, so it needs K >= 2; got K = {K}. Use NVIL, or VIMCO with a learned f(x), for K = 1.")
    return K - 1


def has_others(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """Return 1 where a weight other than that of sample j is positive, else 0."""
    xp = array_namespace(log_weights)
    is_positive = xp.astype(log_weights > -math.inf, log_weights.dtype)
    return xp.astype(_sum(is_positive) - is_positive > 0, log_weights.dtype)


def _finite_maximum(log_weights: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """Return the largest log-weight, or 0 where all are −inf, so that subtracting it is always safe."""
    xp = array_namespace(log_weights)
    maximum = xp.max(log_weights, axis=0)
    return xp.where(maximum == -math.inf, 0.0, maximum)


def _log(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the logarithm, with log 0 = −inf and without a warning."""
    xp = array_namespace(values)
    is_zero = values <= 0  # a little below by rounding
    return xp.where(is_zero, -math.inf, xp.log(xp.where(is_zero, 1.0, values)))


def _sum(terms: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """Return Σ_k t_k, summed in halves: float32 loses a digit when thousands of rows are added one by one."""
    K = terms.shape[0]
    if K <= 1024:
        return array_namespace(terms).sum(terms, axis=0)
    return _sum(terms[: K // 2]) + _sum(terms[K // 2 :])


def _log_sum(log_weights: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """Return log Σ_k f_k."""
    xp = array_namespace(log_weights)
    maximum = _finite_maximum(log_weights)
    return maximum + _log(_sum(xp.exp(log_weights - maximum)))


def _is_largest(values: Float[Array, "K *B"]) -> Any:
    """Return a mask that marks exactly one largest value along axis 0."""
    xp = array_namespace(values)
    K = values.shape[0]
    numbers = xp.reshape(xp.arange(K, device=device(values)), (K,) + (1,) * (values.ndim - 1))
    return numbers == xp.argmax(values, axis=0, keepdims=True)


def sum_of_others(terms: Float[Array, "K *B"], sizes: Float[Array, "K *B"] | None = None) -> Float[Array, "K *B"]:
    """Return Σ_{i≠j} t_i for terms t ≥ 0, or of these `sizes`, without cancellation.

    Subtracting t_j from the total is accurate if the rest is at least as large as t_j. That fails only for the largest
    term, so its others are summed again.
    """
    xp = array_namespace(terms)
    largest = _is_largest(terms if sizes is None else sizes)
    others = xp.where(largest, 0.0, terms)
    return xp.where(largest, _sum(others), _sum(terms) - terms)


def _log_change(
    relative: Float[Array, "K ..."], log_replacement: Float[Array, "..."], plain: Float[Array, "K ..."]
) -> Float[Array, "K ..."]:
    """Return log((Σ_i f_i − f_j + f̂_j) / Σ_i f_i), which is `plain` up to rounding, from log-weights and log f̂.

    `plain` is a difference of logarithms of size log K. With many samples a change is small, of size 1/K or 1/K², and
    then it is computed from the weights: in float32 the rounding of `plain` would be as large.
    """
    xp = array_namespace(relative)
    weights = xp.exp(relative)
    total = _sum(weights)
    replacement = xp.exp(xp.where(log_replacement > 80, 80.0, log_replacement))  # far from small, and no overflow
    change = (replacement - weights) / xp.where(total == 0, 1.0, total)
    is_small = xp.abs(change) < 0.5
    return xp.where(is_small, xp.log1p(xp.where(is_small, change, 0.0)), plain)


def _relative_log_sum_of_others(relative: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """Return log Σ_{i≠j} f_i for weights whose largest is one, without cancellation.

    As in `sum_of_others`, but the others of the largest weight are summed on a scale of their own: the largest weight
    usually dominates, and on its scale they would vanish.
    """
    xp = array_namespace(relative)
    largest = _is_largest(relative)
    weights = xp.exp(relative)
    of_largest = _log_sum(xp.where(largest, -math.inf, relative))
    return xp.where(largest, of_largest, _log(_sum(weights) - xp.where(largest, 0.0, weights)))
