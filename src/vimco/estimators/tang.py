"""Importance-sampled EM from the prior (Tang & Salakhutdinov, 2013)."""

from typing import Annotated, Any, ClassVar

import equinox as eqx

from vimco.errors import UsageError
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, weight_term, weighted_sum
from vimco.samples import Batch, Estimate, ImportanceSamples
from vimco.signals import wake_weights


class ImportanceSampledEM(Estimator):
    """A gradient step on Σ_k stop(w̃_k) log P(x, h^k | c), with h^k ~ P(h | c) and w̃_k ∝ P(x | h^k, c). K ≥ 2.

    The prior's parameters follow Σ_k w̃_k ∇ log P(h^k | c), as published, or with `centred` weights w̃_k − 1/K: the
    mean is the same, since a score has mean zero, and the variance smaller. The likelihood's update is exactly that of
    L^K. The prior's mean is not ∇L^K but an estimate of ∇ log P(x | c), whose bias falls as 1/K.
    """

    ascends: ClassVar[str] = "L^K by the likelihood; log P(x|c) by the prior, for many samples"

    centred: bool = eqx.field(static=True, default=False)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; the samples come from the model's prior."""
        if not samples.proposal_is_prior:
            raise UsageError(
                "Importance-sampled EM draws its samples from the model's prior; these come from another proposal. "
                "Use --proposal prior, or RWS, which does the same for a learned proposal. From Python, samples of the "
                "prior have proposal_is_prior=True."
            )
        if samples.has_attached_latents:
            raise UsageError(
                "Importance-sampled EM holds its samples constant, so it cannot pass gradients through reparameterised "
                "latents: use VIMCO for mixed latents."
            )
        if samples.num_samples < 2:
            raise UsageError(
                "At K = 1 every weight is 1, and the prior's update in importance-sampled EM has mean zero: "
                "use K >= 2, or NVIL."
            )
        log_weights = held_constant(samples.log_weights)
        signal = wake_weights(log_weights, self.centred)
        surrogate = weighted_sum(signal, samples.log_proposal) + weight_term(log_weights, samples)
        return Estimate(surrogate, log_weights, signal)


@ESTIMATORS.register("tang", "importance-sampled EM (Tang & Salakhutdinov)")
def _tang(
    *_: Any, centred: Annotated[bool, "Use w - 1/K instead of the weight w before a score."] = False
) -> ImportanceSampledEM:
    """EM by weighted samples from the prior, for --proposal prior (Tang & Salakhutdinov, 2013)."""
    return ImportanceSampledEM(centred)
