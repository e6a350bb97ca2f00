"""Backpropagation through binary units (Raiko, Berglund, Alain & Dinh, 2014)."""

from typing import Any, ClassVar

from vimco.estimators.estimator import ESTIMATORS, Estimator
from vimco.estimators.pathwise import pathwise_estimate
from vimco.samples import STRAIGHT_THROUGH_LATENTS, Batch, Estimate, ImportanceSamples, Need, required


class StraightThrough(Estimator):
    """Σ_j stop(w̃_j) log f(x, h^j), where a binary unit passes gradients on as if it were its mean σ(a). Any K ≥ 1.

    With the prior as proposal this is the estimator that the paper compares with (end of Sec. 5.2). It is exact for the
    parameters of P(x | h), and biased for those of the prior by an amount that does not vanish with K; its variance is
    small, and on small models its direction has a cosine above 0.99 with ∇L^K. With a learned proposal it is the
    straight-through estimator of Bengio, Léonard & Courville (2013): exact for the model, biased for the proposal.
    """

    ascends: ClassVar[str] = "L^K by the likelihood; about L^K by the layers that are sampled"
    needs: ClassVar[tuple[Need, ...]] = (STRAIGHT_THROUGH_LATENTS,)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; the latents must carry the gradient of their means."""
        required(samples, STRAIGHT_THROUGH_LATENTS)  # without gradients a proposal would stay untrained
        return pathwise_estimate(samples)


@ESTIMATORS.register("straight-through", "straight-through (Raiko et al.)")
def _straight_through(*_: Any) -> StraightThrough:
    """Backpropagation through binary units, biased for the layers that are sampled (Raiko et al., 2014)."""
    return StraightThrough()
