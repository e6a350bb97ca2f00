"""VIMCO: a separate learning signal for every sample (Eqs. 9 and 10)."""

import warnings
from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, score_term, weight_term
from vimco.samples import AnyArray, Batch, Estimate, ImportanceSamples
from vimco.signals import (
    ScaledMean,
    arithmetic_mean_of_others,
    geometric_mean_of_others,
    left_out,
    multi_sample_bound,
    powers_of_weights,
    vimco_signal,
)


class VIMCO(Estimator):
    """Unbiased estimator of ∇L^K from per-sample learning signals (Eq. 10). Has no parameters.

    `estimate_of_f` maps log-weights to log f̂ of Eq. 9: `geometric_mean_of_others`, as in the paper,
    `arithmetic_mean_of_others`, `left_out`, or `ScaledMean(c)`, c times the arithmetic mean.
    """

    estimate_of_f: Callable = eqx.field(static=True, default=geometric_mean_of_others)

    def __check_init__(self) -> None:
        if not callable(self.estimate_of_f):
            raise UsageError(
                f"`estimate_of_f` is a function of log-weights, such as geometric_mean_of_others of vimco.signals; got "
                f"{self.estimate_of_f!r}."
            )

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; K ≥ 2."""
        K = samples.num_samples
        if K < 2:
            raise UsageError(
                f"VIMCO compares samples with each other, so it needs K >= 2; got K = {K}. "
                "Use NVIL (or VIMCO with a learned f(x)) for K = 1."
            )
        if self.estimate_of_f in (left_out, ScaledMean(0)):
            warn_of_leaving_out(samples)
        return vimco_estimate(samples, self.estimate_of_f)


def vimco_estimate(samples: ImportanceSamples, estimate_of_f: Callable, order: float | AnyArray = 0.0) -> Estimate:
    """Return VIMCO's estimate for the bound of Rényi order α; α = 0 is the multi-sample bound."""
    log_weights = held_constant(samples.log_weights)
    powers = powers_of_weights(log_weights, order)
    signal = vimco_signal(powers, estimate_of_f(powers))
    objective = None
    if powers is not log_weights:
        signal, objective = signal / (1 - order), multi_sample_bound(powers) / (1 - order)
    surrogate = score_term(signal, samples) + weight_term(powers, samples)
    return Estimate(surrogate, log_weights, signal, objective=objective)


def warn_of_leaving_out(samples: ImportanceSamples) -> None:
    """Warn where f̂ = 0 has far more variance than another choice."""
    if samples.proposal_is_prior:
        warnings.warn(
            "Leaving the sample out (f̂ = 0) suits a learned proposal; with the prior as proposal its variance is "
            "several times that of the arithmetic mean, which is the better choice here.",
            stacklevel=2,
        )


@ESTIMATORS.register("vimco", "VIMCO", line="-")
def _vimco(*_: Any) -> VIMCO:
    """A separate learning signal for each sample (Eq. 10), with the geometric mean of the other weights as f̂."""
    return VIMCO()


@ESTIMATORS.register("vimco-arithmetic", "VIMCO, arithmetic mean")
def _vimco_arithmetic(*_: Any) -> VIMCO:
    """VIMCO with the arithmetic mean of the other weights as f̂."""
    return VIMCO(arithmetic_mean_of_others)


@ESTIMATORS.register("vimco-leave-one-out", "VIMCO, f̂ = 0")
def _vimco_leave_one_out(*_: Any) -> VIMCO:
    """VIMCO with f̂ = 0: the baseline leaves the sample out."""
    return VIMCO(left_out)


@ESTIMATORS.register("vimco-scaled", "VIMCO, scaled mean")
def _vimco_scaled(
    *_: Any, scale: Annotated[float, "c; 0 leaves the sample out, 1 is the arithmetic mean."] = 0.5
) -> VIMCO:
    """VIMCO with c times the arithmetic mean of the other weights as f̂."""
    return VIMCO(ScaledMean(scale))
