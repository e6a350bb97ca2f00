"""OVIS: optimal control variates for the multi-sample bound (Liévin, Dittadi, Christensen & Winther, 2020)."""

from typing import Annotated, Any, ClassVar

import equinox as eqx

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator, estimate_from_signal, held_constant
from vimco.estimators.vimco import warn_of_leaving_out
from vimco.samples import Auxiliary, Batch, Estimate, ImportanceSamples, Need, required
from vimco.signals import asymptotic_ovis_signal, check_gamma, ovis_signal


class OVIS(Estimator):
    """Unbiased estimator of ∇L^K whose baselines are estimated from S auxiliary samples. K ≥ 2.

    They cost S more evaluations of the model, without a gradient, and are used in the baseline only: the bound keeps
    its K samples.
    """

    auxiliary: int = eqx.field(static=True, default=1)  # S

    def __check_init__(self) -> None:
        if not isinstance(self.auxiliary, int) or self.auxiliary < 1:
            raise UsageError(f"OVIS needs one or more auxiliary samples; got S = {self.auxiliary!r}.")

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; the samples must carry `auxiliary_log_weights`."""
        auxiliary = held_constant(required(samples, Auxiliary(self.auxiliary)))
        if auxiliary.shape[0] != self.auxiliary:
            raise UsageError(
                f"OVIS({self.auxiliary}) takes S = {self.auxiliary} auxiliary samples, and there are "
                f"{auxiliary.shape[0]}: use OVIS({auxiliary.shape[0]}), or draw as many."
            )
        log_weights = held_constant(samples.log_weights)
        signal = ovis_signal(log_weights, auxiliary, proposal_is_prior=samples.proposal_is_prior)
        return estimate_from_signal(signal, log_weights, samples)

    @property
    def needs(self) -> tuple[Need, ...]:
        """S more log-weights."""
        return (Auxiliary(self.auxiliary),)


class AsymptoticOVIS(Estimator):
    """OVIS~: the limit of OVIS's baseline for large K, which needs no auxiliary samples. K ≥ 2.

    γ = 0 is VIMCO with f̂ = 0, and unbiased. γ = 1 tends to the centred wake update of RWS as K grows: its mean is not
    ∇L^K, and at K = 5 it is several times as long. For a learned proposal alone.
    """

    ascends: ClassVar[str] = "L^K at gamma = 0; towards −KL(P(h|x) ‖ Q(h|x)) by the proposal at gamma = 1"

    gamma: float = eqx.field(static=True, default=0.0)

    def __check_init__(self) -> None:
        check_gamma(self.gamma)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate."""
        if samples.proposal_is_prior and self.gamma > 0:
            raise UsageError(
                "OVIS~ with gamma > 0 assumes that log f contains −log Q of a learned proposal: with the prior as "
                "proposal use VIMCO with the arithmetic mean."
            )
        if self.gamma == 0:
            warn_of_leaving_out(samples)
        log_weights = held_constant(samples.log_weights)
        signal = asymptotic_ovis_signal(log_weights, self.gamma)
        return estimate_from_signal(signal, log_weights, samples)


@ESTIMATORS.register("ovis", "OVIS")
def _ovis(*_: Any, auxiliary: Annotated[int, "S, the number of auxiliary samples.", 2**20] = 5) -> OVIS:
    """VIMCO's objective with baselines from S auxiliary samples; each costs a forward pass."""
    return OVIS(auxiliary)


@ESTIMATORS.register("ovis-asymptotic", "OVIS~")
def _ovis_asymptotic(
    *_: Any,
    gamma: Annotated[float, "0 is VIMCO with f̂ = 0, and unbiased; 1 tends to the wake update of RWS."] = 0.0,
) -> AsymptoticOVIS:
    """The limit of OVIS for many samples, for a learned proposal."""
    return AsymptoticOVIS(gamma)
