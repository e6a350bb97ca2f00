"""The pathwise gradient of the bound, for latents that arrive attached (IWAE; Burda, Grosse & Salakhutdinov, 2015)."""

from typing import Annotated, Any, ClassVar

import equinox as eqx

from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, weight_term
from vimco.samples import ATTACHED_LATENTS, Batch, Estimate, ImportanceSamples, Need, required
from vimco.signals import check_order, normalized_weights, powers_of_weights, renyi_bound


class Pathwise(Estimator):
    """Σ_j stop(w̃_j) log f(x, h^j), the second term of Eq. 10 alone: gradients flow through the latents.

    Unbiased for any K and any number of layers where every latent is reparameterised. With binary latents passed
    straight through it is the estimator of Raiko et al. (2014), biased for the parameters above the observation.
    `order` makes the objective the bound of Rényi order α.
    """

    needs: ClassVar[tuple[Need, ...]] = (ATTACHED_LATENTS,)

    order: float = eqx.field(static=True, default=0.0)  # α

    def __check_init__(self) -> None:
        check_order(self.order)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; the samples must say that their latents are attached."""
        required(samples, ATTACHED_LATENTS)  # a discrete proposal would stay untrained
        return pathwise_estimate(samples, self.order)


def pathwise_estimate(samples: ImportanceSamples, order: float = 0.0) -> Estimate:
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
