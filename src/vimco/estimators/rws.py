"""Reweighted wake-sleep (Bornschein & Bengio, 2015): Eqs. 11 and 12 for the proposal, Eq. 6 for the model."""

import math
from typing import Annotated, Any, ClassVar

import equinox as eqx
from array_api_compat import array_namespace
from jaxtyping import Float

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, weighted_sum
from vimco.samples import LOG_LIKELIHOOD, AnyArray, Batch, Dreams, Estimate, ImportanceSamples, Need, required
from vimco.signals import normalized_weights, wake_weights


class RWS(Estimator):
    """The model follows Eq. 6; the proposal `wake` times the wake update (Eq. 11) plus `sleep` times that of Eq. 12.

    The proposal's update is not an estimate of ∇L^K: wake is a biased estimate of −∇KL(P(h|x) ‖ Q(h|x)), whose bias
    falls with K. `RWS(wake=False, sleep=True)` with K = 1 is the plain wake-sleep algorithm, and
    `RWS(wake=λ, sleep=1 − λ)` a mixture.

    `centred` subtracts a baseline of 1/K from the weights of the wake update: the same mean, and a smaller variance.

    `prior_control` subtracts P(h^k | c) / (K Q(h^k | x)) from the weight w̃_k before ∇ log P(h^k | c), the policy's
    control variate in WS-RAM (Ba et al., 2015). Under P a score has mean zero, so the mean stays exactly; normalised
    over the samples it would not. Samples with P(x | h) = 0 are left out of it, which does not keep the mean. It
    lowers the variance where Q is near the prior, and may raise it elsewhere.
    """

    ascends: ClassVar[str] = (
        "L^K by the model; by the proposal −KL(P(h|x) ‖ Q(h|x)): for x of the data and many samples by wake, for x "
        "of the model itself by sleep"
    )

    wake: bool | float = eqx.field(static=True, default=True)
    sleep: bool | float = eqx.field(static=True, default=False)
    centred: bool = eqx.field(static=True, default=False)
    prior_control: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if not (self.wake or self.sleep):
            raise UsageError("RWS without wake and sleep would never train the proposal: switch one of them on.")
        if not (0 <= self.wake < float("inf") and 0 <= self.sleep < float("inf")):
            raise UsageError(
                f"The shares of wake and sleep must not be negative or infinite; got {self.wake} and {self.sleep}."
            )

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; wake alone needs K ≥ 2, sleep needs dreams."""
        self._check(samples)
        log_weights = held_constant(samples.log_weights)
        surrogate = weighted_sum(normalized_weights(log_weights), samples.log_joint)
        if self.prior_control:
            surrogate = surrogate - self._prior_control(samples)
        signal = self.wake * wake_weights(log_weights, self.centred)
        surrogate = surrogate + weighted_sum(signal, samples.log_proposal)
        if self.sleep:
            surrogate = surrogate + self.sleep * required(samples, Dreams())
        return Estimate(surrogate, log_weights, signal)

    @property
    def needs(self) -> tuple[Need, ...]:
        """Dreams, for the sleep update; log P(x | h) by itself, for the prior's control variate."""
        return (*((LOG_LIKELIHOOD,) if self.prior_control else ()), *((Dreams(),) if self.sleep else ()))

    def _check(self, samples: ImportanceSamples) -> None:
        if samples.proposal_is_prior:
            raise UsageError(
                "RWS updates model and proposal by different rules, so it cannot train a prior that is its own "
                "proposal: use VIMCO or NVIL, or a learned proposal."
            )
        if samples.shared_parameters:
            raise UsageError(
                "RWS updates model and proposal by different rules, so they may not share parameters, and f must be "
                "P / Q with both log-probabilities given: use VIMCO or NVIL."
            )
        if samples.has_attached_latents:
            raise UsageError(
                "RWS holds its samples constant, so it cannot pass gradients through reparameterised latents: "
                "use VIMCO for mixed latents."
            )
        if self.wake and not self.sleep and samples.num_samples < 2:
            raise UsageError(
                "The wake update of RWS has mean zero at K = 1 and would teach the proposal nothing: "
                "use K >= 2, or the sleep update."
            )

    def _prior_control(self, samples: ImportanceSamples) -> Float[AnyArray, "*B"]:
        log_likelihood = required(samples, LOG_LIKELIHOOD)
        xp = array_namespace(log_likelihood)
        # Where P(x | h) = 0, log P(h) is not known from these two, and the sample is left out.
        is_known = held_constant(log_likelihood) > -math.inf
        log_prior = xp.where(is_known, samples.log_joint, 0.0) - xp.where(is_known, log_likelihood, 0.0)
        ratio = xp.where(is_known, xp.exp(held_constant(log_prior - samples.log_proposal)), 0.0)
        return weighted_sum(ratio / samples.num_samples, log_prior)


@ESTIMATORS.register("rws", "RWS (wake)", line=":", short_title="RWS")
def _rws(
    *_: Any,
    centred: Annotated[bool, "Use w - 1/K instead of the normalized weight w: the same mean, less variance."] = False,
    prior_control: Annotated[bool, "Use w - P(h) / (K Q(h)) before the prior's score, as in WS-RAM."] = False,
) -> RWS:
    """Reweighted wake-sleep: the proposal follows the wake update (Eq. 11)."""
    return RWS(centred=centred, prior_control=prior_control)


@ESTIMATORS.register("rws-sleep", "RWS (sleep)")
def _rws_sleep(*_: Any) -> RWS:
    """Reweighted wake-sleep: the proposal follows the sleep update (Eq. 12)."""
    return RWS(wake=False, sleep=True)


@ESTIMATORS.register("rws-both", "RWS (wake and sleep)")
def _rws_both(*_: Any) -> RWS:
    """Reweighted wake-sleep: the proposal follows the sum of both updates."""
    return RWS(sleep=True)


@ESTIMATORS.register("rws-mixture", "RWS (mixture)")
def _rws_mixture(
    *_: Any,
    share: Annotated[float, "λ, the share of the wake update; 1 − λ is that of the sleep update."] = 0.5,
    centred: Annotated[bool, "Use w - 1/K instead of w in the wake update."] = False,
) -> RWS:
    """Reweighted wake-sleep: the proposal follows λ times the wake and 1 − λ times the sleep update."""
    if not 0 <= share <= 1:
        raise UsageError(f"The share of the wake update must lie between 0 and 1; got {share}.")
    return RWS(share, 1 - share, centred)
