"""Pure functions of log-weights: the bound, the weights, the learning signals.

`log_weights` holds log f(x, h^k): samples on axis 0, any shape behind it. Every function reduces axis 0 only, costs
O(K) time and memory, and is written against the array-API standard: JAX arrays (under `jit` too), NumPy arrays and
PyTorch tensors go in, and the same kind comes out.

A weight f = 0 is the log-weight −inf, and is a legal value everywhere:

- where all K weights are zero the bound is −inf, and weights and signals are 0, so that nothing is learned from them;
- where all weights *but that of sample j* are zero (and f̂ is zero with them) there is nothing to compare the sample
  with. Its signal is then L̂ itself, without a baseline. The choice looks at the other samples only, so the estimate
  stays exactly unbiased; a cap on the signal would not.

Nothing here is meant to be differentiated: estimators hold signals and weights constant.
"""

import math
from typing import Any

from array_api_compat import array_namespace, device
from jaxtyping import Float

from vimco.errors import UsageError

Array = Any  # a JAX, NumPy or PyTorch array


def multi_sample_bound(log_weights: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """The stochastic lower bound L̂ = log 1/K Σ_k f(x, h^k)  (Eq. 4).

    In expectation it never exceeds log P(x), and it grows with K.
    """
    return _log_sum(log_weights) - math.log(log_weights.shape[0])


def normalized_weights(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """The weights w̃_j = f_j / Σ_i f_i  (below Eq. 5): non-negative, of sum one; all 0 where every f is 0."""
    xp = array_namespace(log_weights)
    weights = xp.exp(log_weights - _finite_maximum(log_weights))
    total = _sum(weights)
    return weights / xp.where(total > 0, total, 1.0)


def effective_sample_size(log_weights: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """How many equal weights would be worth as much: (Σ f)² / Σ f², from 1 to K; 0 where every f is 0."""
    xp = array_namespace(log_weights)
    squares = _sum(normalized_weights(log_weights) ** 2)
    return xp.where(squares > 0, 1.0 / xp.where(squares > 0, squares, 1.0), 0.0)


def naive_signal(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """The learning signal of the naive estimator: L̂, the same for all K samples (Eq. 7); 0 where every f is 0."""
    xp = array_namespace(log_weights)
    bound = multi_sample_bound(log_weights)
    return xp.broadcast_to(xp.where(bound > -math.inf, bound, 0.0), log_weights.shape)


def vimco_signal(
    log_weights: Float[Array, "K *B"], log_estimate_of_f: Float[Array, "#K *#B"] | None = None
) -> Float[Array, "K *B"]:
    """The learning signal of each sample, L̂(h^j | h^-j) = L̂ − log 1/K (Σ_{i≠j} f_i + f̂_j)  (Eq. 9).

    `log_estimate_of_f` is log f̂_j, any quantity that does not look at sample j: `geometric_mean_of_others` (when
    nothing is given), `arithmetic_mean_of_others`, `left_out` (f̂ = 0), or a learned log f(x). The means need
    K ≥ 2. See the module's docstring for what weights of zero mean.
    """
    xp = array_namespace(log_weights)
    if log_estimate_of_f is None:
        log_estimate_of_f = geometric_mean_of_others(log_weights)
    # Scaling all weights alike does not change the signal; relative to the largest, float32 has digits to spare.
    maximum = _finite_maximum(log_weights)
    relative = log_weights - maximum
    log_sum = _log(_sum(xp.exp(relative)))
    log_baseline = xp.logaddexp(_relative_log_sum_of_others(relative), log_estimate_of_f - maximum)
    has_baseline = log_baseline > -math.inf
    signal = log_sum - xp.where(has_baseline, log_baseline, 0.0)
    bound = maximum + log_sum - math.log(log_weights.shape[0])
    return xp.where(log_sum > -math.inf, xp.where(has_baseline, signal, bound), 0.0)


def geometric_mean_of_others(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """log f̂_j = 1/(K−1) Σ_{i≠j} log f_i, the paper's choice: −inf as soon as one of the others is."""
    xp = array_namespace(log_weights)
    others = _number_of_others(log_weights)
    maximum = _finite_maximum(log_weights)
    is_zero = log_weights == -math.inf
    below = xp.where(is_zero, 0.0, maximum - xp.where(is_zero, maximum, log_weights))
    mean_below = _sum_of_others(below) / others
    zeros = xp.astype(is_zero, log_weights.dtype)
    return xp.where(_sum(zeros) - zeros > 0, -math.inf, maximum - mean_below)


def arithmetic_mean_of_others(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """log f̂_j = log 1/(K−1) Σ_{i≠j} f_i."""
    return _log_sum_of_others(log_weights) - math.log(_number_of_others(log_weights))


def left_out(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """log f̂_j = −inf: the baseline leaves sample j out, and the signal is −log(1 − w̃_j)."""
    return array_namespace(log_weights).full_like(log_weights, -math.inf)


def _number_of_others(log_weights: Float[Array, "K *B"]) -> int:
    """K − 1, which a mean of the others divides by."""
    K = log_weights.shape[0]
    if K < 2:
        raise UsageError(
            f"VIMCO compares each sample with a mean of the others, so it needs K >= 2; got K = {K}. "
            "Use NVIL, or VIMCO with a learned f(x), for K = 1."
        )
    return K - 1


def _finite_maximum(log_weights: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """The largest log-weight, or 0 where all are −inf, so that subtracting it is always safe."""
    xp = array_namespace(log_weights)
    maximum = xp.max(log_weights, axis=0)
    return xp.where(maximum > -math.inf, maximum, 0.0)


def _log(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """The logarithm, with log 0 = −inf and no warning about it."""
    xp = array_namespace(values)
    return xp.where(values > 0, xp.log(xp.where(values > 0, values, 1.0)), -math.inf)


def _sum(terms: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """Σ_k t_k, in halves: float32 loses a digit when thousands of rows are added one after the other."""
    K = terms.shape[0]
    if K <= 1024:
        return array_namespace(terms).sum(terms, axis=0)
    return _sum(terms[: K // 2]) + _sum(terms[K // 2 :])


def _log_sum(log_weights: Float[Array, "K *B"]) -> Float[Array, "*B"]:
    """log Σ_k f_k."""
    xp = array_namespace(log_weights)
    maximum = _finite_maximum(log_weights)
    return maximum + _log(_sum(xp.exp(log_weights - maximum)))


def _is_largest(values: Float[Array, "K *B"]) -> Any:
    """A mask that marks exactly one largest value along axis 0."""
    xp = array_namespace(values)
    K = values.shape[0]
    numbers = xp.reshape(xp.arange(K, device=device(values)), (K,) + (1,) * (values.ndim - 1))
    return numbers == xp.argmax(values, axis=0, keepdims=True)


def _sum_of_others(terms: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """Σ_{i≠j} t_i for terms t ≥ 0, without cancellation.

    Subtracting t_j from the total is accurate as long as the rest is at least as large as t_j, which fails for the
    largest term alone: there the others are summed anew.
    """
    xp = array_namespace(terms)
    largest = _is_largest(terms)
    others = xp.where(largest, 0.0, terms)
    return xp.where(largest, _sum(others), _sum(terms) - terms)


def _log_sum_of_others(log_weights: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """log Σ_{i≠j} f_i."""
    maximum = _finite_maximum(log_weights)
    return maximum + _relative_log_sum_of_others(log_weights - maximum)


def _relative_log_sum_of_others(relative: Float[Array, "K *B"]) -> Float[Array, "K *B"]:
    """log Σ_{i≠j} f_i for weights whose largest is one, without cancellation.

    As in `_sum_of_others`; but the others of the largest weight are summed on a scale of their own. That it dominates
    is the normal case, and on its scale they would vanish.
    """
    xp = array_namespace(relative)
    largest = _is_largest(relative)
    weights = xp.exp(relative)
    of_largest = _log_sum(xp.where(largest, -math.inf, relative))
    return xp.where(largest, of_largest, _log(_sum(weights) - xp.where(largest, 0.0, weights)))
