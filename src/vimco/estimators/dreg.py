"""Pathwise estimators without the score of Q: STL, DReG and RWS-DReG.

The model evaluates log f once more with its parameters held constant and the latents attached, l^f. What multiplies
its gradient in l^f of sample k, with v the normalised weights:

    STL        v_k                                  Roeder, Wu & Duvenaud, 2017; unbiased at K = 1 alone
    DReG       v_k², or α v_k + (1−α) v_k² at order α     Tucker et al., 2019; unbiased
    RWS-DReG   v_k − v_k²                           the mean of the wake update of RWS (Eq. 11)

The model's own parameters follow Σ_k v_k ∇ log P(x, h^k) with the latents held constant. This holds for any number of
layers if the parameters of Q are held constant and a latent stays attached where it conditions the next layer. If the
mean and the scale of each layer are held constant instead, DReG is biased.
"""

from typing import Annotated, Any, ClassVar

import equinox as eqx
from jaxtyping import Float

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, weighted_sum
from vimco.samples import FROZEN_LOG_WEIGHTS, AnyArray, Batch, Estimate, ImportanceSamples, Need, required
from vimco.signals import check_order, normalized_weights, powers_of_weights, renyi_bound


class DReG(Estimator):
    """The doubly reparameterised gradient of the bound of order α (0: L^K): unbiased, any K. Needs frozen weights."""

    needs: ClassVar[tuple[Need, ...]] = (FROZEN_LOG_WEIGHTS,)

    order: float = eqx.field(static=True, default=0.0)  # α

    def __check_init__(self) -> None:
        check_order(self.order)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate."""
        weights = normalized_weights(powers_of_weights(held_constant(samples.log_weights), self.order))
        return _frozen_estimate(samples, weights, self.order * weights + (1 - self.order) * weights**2, self.order)


class STL(Estimator):
    """The path derivative, "sticking the landing": unbiased for the ELBO at K = 1.

    For K > 1 it is biased for L^K and refused unless `biased` is set: on small models of one and two layers by .76 and
    .91 of the gradient's length at K = 2.
    """

    ascends: ClassVar[str] = "the ELBO, at K = 1"
    needs: ClassVar[tuple[Need, ...]] = (FROZEN_LOG_WEIGHTS,)

    biased: bool = eqx.field(static=True, default=False)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate."""
        if samples.num_samples > 1 and not self.biased:
            raise UsageError(
                f"STL is unbiased at K = 1 alone, and K is {samples.num_samples}: use DReG, or say biased=True."
            )
        weights = normalized_weights(held_constant(samples.log_weights))
        return _frozen_estimate(samples, weights, weights)


class RWSDReG(Estimator):
    """Reweighted wake-sleep with a doubly reparameterised wake update: the mean of Eq. 11, and less variance. K ≥ 2."""

    ascends: ClassVar[str] = "L^K by the model; −KL(P(h|x) ‖ Q(h|x)) by the proposal, for many samples"
    needs: ClassVar[tuple[Need, ...]] = (FROZEN_LOG_WEIGHTS,)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate."""
        if samples.num_samples < 2:
            raise UsageError("The wake update has mean zero at K = 1 and would teach the proposal nothing: use K >= 2.")
        if samples.proposal_is_prior or samples.shared_parameters:
            raise UsageError(
                "RWS-DReG updates model and proposal by different rules, so they may not share parameters, as with the "
                "prior as proposal: use DReG."
            )
        weights = normalized_weights(held_constant(samples.log_weights))
        return _frozen_estimate(samples, weights, weights - weights**2)


def _frozen_estimate(
    samples: ImportanceSamples, of_model: Float[AnyArray, "K *B"], of_latents: Float[AnyArray, "K *B"], order: float = 0
) -> Estimate:
    """Return the estimate whose parameters of P have the coefficients `of_model`, and the latents `of_latents`."""
    if samples.log_score is not None and not samples.latents_attached:
        raise UsageError(
            "STL, DReG and RWS-DReG follow reparameterised latents alone, and would leave the proposal of the others "
            "untrained: use VIMCO for mixed latents."
        )
    log_weights = held_constant(samples.log_weights)
    return Estimate(
        weighted_sum(of_model, samples.log_joint) + weighted_sum(of_latents, required(samples, FROZEN_LOG_WEIGHTS)),
        log_weights,
        of_latents,
        objective=None if order == 0 else renyi_bound(log_weights, order),
    )


@ESTIMATORS.register("dreg", "DReG")
def _dreg(*_: Any, order: Annotated[float, "Rényi order of the bound."] = 0.0) -> DReG:
    """The pathwise gradient without the score of Q, doubly reparameterised: unbiased."""
    return DReG(order)


@ESTIMATORS.register("stl", "STL")
def _stl(*_: Any, biased: Annotated[bool, "Allow K > 1, where it is biased."] = False) -> STL:
    """The pathwise gradient without the score of Q: unbiased at K = 1."""
    return STL(biased)


@ESTIMATORS.register("rws-dreg", "RWS-DReG")
def _rws_dreg(*_: Any) -> RWSDReG:
    """Reweighted wake-sleep with a doubly reparameterised wake update."""
    return RWSDReG()
