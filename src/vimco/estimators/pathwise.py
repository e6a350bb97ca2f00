"""The gradient of the bound through latents that arrive attached.

They are reparameterised (IWAE; Burda, Grosse & Salakhutdinov, 2015), or binary and passed straight through (Raiko,
Berglund, Alain & Dinh, 2014).
"""

from typing import Annotated, Any, ClassVar

import equinox as eqx

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, weight_term
from vimco.samples import AttachedLatents, Batch, Estimate, ImportanceSamples, Need, StraightThroughLatents
from vimco.signals import check_order, normalized_weights, powers_of_weights, renyi_bound


class Pathwise(Estimator):
    """Σ_j stop(w̃_j) log f(x, h^j), the second term of Eq. 10 alone: gradients flow through the latents.

    Unbiased for any K and any number of layers where every latent is reparameterised. With binary latents passed
    straight through it is the estimator of Raiko et al. (2014), biased for the parameters above the observation.
    `order` makes the objective the bound of Rényi order α.
    """

    needs: ClassVar[tuple[Need, ...]] = (AttachedLatents(),)

    order: float = eqx.field(static=True, default=0.0)  # α

    def __check_init__(self) -> None:
        check_order(self.order)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; the samples must say that their latents are attached."""
        del batch
        if not samples.latents_attached:
            raise UsageError(
                "The pathwise estimator sends gradients through the latents, and would leave a discrete proposal "
                "untrained: set `latents_attached` where every latent is reparameterised, or use VIMCO."
            )
        return _pathwise_estimate(samples, self.order)


class StraightThrough(Estimator):
    """Σ_j stop(w̃_j) log f(x, h^j), where a binary unit passes gradients on as if it were its mean σ(a). Any K ≥ 1.

    With the prior as proposal this is the estimator that the paper compares with (end of Sec. 5.2). It is exact for the
    parameters of P(x | h), and biased for those of the prior by an amount that does not vanish with K; its variance is
    small, and on small models its direction has a cosine above 0.99 with ∇L^K. With a learned proposal it is the
    straight-through estimator of Bengio, Léonard & Courville (2013), and biased for all parameters.
    """

    ascends: ClassVar[str] = "L^K by the likelihood; about L^K by the layers that are sampled"
    needs: ClassVar[tuple[Need, ...]] = (StraightThroughLatents(),)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; the latents must carry the gradient of their means."""
        del batch
        if not samples.latents_attached:
            raise UsageError(
                "The straight-through estimator sends gradients through the latents, and would leave a proposal whose "
                "samples carry none untrained: draw them with the model's `straight_through_samples`, or use VIMCO."
            )
        return _pathwise_estimate(samples)


def _pathwise_estimate(samples: ImportanceSamples, order: float = 0.0) -> Estimate:
    """Return the estimate that differentiates the bound of Rényi order α through the latents."""
    log_weights = held_constant(samples.log_weights)
    powers = powers_of_weights(log_weights, order)
    return Estimate(
        weight_term(powers, samples),
        log_weights,
        normalized_weights(powers),
        objective=None if order == 0 else renyi_bound(log_weights, order),
    )


@ESTIMATORS.register("pathwise", "pathwise (IWAE)")
def _pathwise(*_: Any, order: Annotated[float, "Rényi order of the bound."] = 0.0) -> Pathwise:
    """Gradients through reparameterised latents alone."""
    return Pathwise(order)


@ESTIMATORS.register("straight-through", "straight-through (Raiko et al.)")
def _straight_through(*_: Any) -> StraightThrough:
    """Backpropagation through binary units, biased for the layers that are sampled (Raiko et al., 2014)."""
    return StraightThrough()
