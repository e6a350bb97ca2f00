"""VIMCO for bounds of Rényi order α, between the multi-sample bound and the ELBO (Li & Turner, 2016)."""

import warnings
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator
from vimco.estimators.vimco import vimco_estimate
from vimco.samples import Batch, Estimate, ImportanceSamples
from vimco.signals import ScaledMean, check_order, check_rounding


class RenyiVIMCO(Estimator):
    """Unbiased estimator of the gradient of 1/(1−α) E log 1/K Σ_k f_k^{1−α}, 0 ≤ α < 1. K ≥ 2.

    α = 0 is L^K, and as α → 1 the bound falls to the ELBO. The baseline replaces sample j by c times the arithmetic
    mean of the others' f^{1−α}. Any c = `scale` keeps the estimate unbiased; the default, α for a
    learned proposal and 1 for the prior as proposal, has the least variance to leading order in 1/K where scores and
    weights are unrelated (arXiv 2602.01412; `vimco.ScaledMean`).
    """

    ascends: ClassVar[str] = "L^K of Rényi order α"

    order: float = eqx.field(static=True, default=0.5)  # α
    scale: float | None = eqx.field(static=True, default=None)  # c

    def __check_init__(self) -> None:
        check_order(self.order)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; `objective` is the bound of order α, `bound` that of order 0."""
        best = 1.0 if samples.proposal_is_prior else self.order
        if self.scale == 0 and best > 0:
            warnings.warn(
                f"Leaving the sample out (scale 0) has many times the variance of the scale {best:g}, which is the "
                "better choice here.",
                stacklevel=2,
            )
        return vimco_estimate(samples, ScaledMean(best if self.scale is None else self.scale), self.order)


class RenyiWarmup(Estimator):
    """VIMCO whose Rényi order α falls to 0: 1 − α rises by equal factors from `start` to 1 over `updates` updates.

    The program makes an estimate before its first update, which counts.

    f̂ is c times the arithmetic mean of the others with c = α (1 where the prior is the proposal). The estimator starts
    close to RLOO on the ELBO and becomes VIMCO with f̂ = 0 (Liévin et al., 2020, with f̂ of arXiv 2602.01412). K ≥ 2.
    """

    ascends: ClassVar[str] = "L^K of a Rényi order α that falls to 0"

    updates: int = eqx.field(static=True)
    start: float = eqx.field(static=True)  # 1 − α of the first estimate
    count: Int[Array, ""]  # estimates seen; a training loop makes one before its first update

    def __init__(self, updates: int, start: float = 0.01):
        """Set the length of the warm-up, and 1 − α at its beginning."""
        if updates < 1:
            raise UsageError(f"A warm-up takes one or more updates; got {updates}.")
        if not 0 < start <= 1:
            raise UsageError(
                f"A warm-up starts at 1 − α above 0 and at most 1 (α = 1 would divide by zero); got {start}."
            )
        check_rounding(start, float(jnp.finfo(jnp.result_type(float)).eps))
        self.updates, self.start, self.count = updates, start, jnp.zeros((), jnp.int32)

    @property
    def order(self) -> Float[Array, ""]:
        """α of the next update."""
        return 1 - self.start ** jnp.maximum(1 - share_of_warmup(self.count, self.updates), 0.0)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; `objective` is the bound of order α, `bound` that of order 0."""
        return vimco_estimate(samples, ScaledMean(1.0 if samples.proposal_is_prior else self.order), self.order)

    def updated(self, estimate: Estimate) -> "RenyiWarmup":
        """Return the estimator one update later."""
        return eqx.tree_at(lambda e: e.count, self, self.count + 1)


def share_of_warmup(count: Int[Array, ""], updates: int) -> Float[Array, ""]:
    """Return the completed part of a warm-up, from 0 to 1, in the precision of the run."""
    return count.astype(jnp.result_type(float)) / updates


@ESTIMATORS.register("renyi", "VIMCO, Rényi order")
def _renyi(
    *_: Any,
    order: Annotated[float, "α, from 0 (the multi-sample bound) to below 1 (the ELBO)."] = 0.5,
    scale: Annotated[
        float | None, "c in f̂ = c times the mean of the others; none: α, or 1 with the prior as proposal."
    ] = None,
) -> RenyiVIMCO:
    """VIMCO for the bound of Rényi order α."""
    return RenyiVIMCO(order, scale)


@ESTIMATORS.register("renyi-warmup", "VIMCO, Rényi warm-up")
def _renyi_warmup(
    *_: Any,
    updates: Annotated[int, "Updates until the order is 0."] = 25_000,
    start: Annotated[float, "1 − α at first."] = 0.01,
) -> RenyiWarmup:
    """VIMCO whose objective goes from near the ELBO to the multi-sample bound."""
    return RenyiWarmup(updates, start)
