"""RLOO, the leave-one-out baseline for the variational bound (ELBO); the same vector as VarGrad."""

from typing import Any, ClassVar

from array_api_compat import array_namespace

from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, score_term, weighted_sum
from vimco.samples import Batch, Estimate, ImportanceSamples
from vimco.signals import rloo_signal


class RLOO(Estimator):
    """Unbiased estimator of the gradient of the ELBO, E log f, averaged over K ≥ 2 samples. Not VIMCO: its objective
    does not grow with K (Kool, van Hoof & Welling, 2019).

    For a learned proposal the coefficient of ∇ log Q(h^j) is (log f_j − mean log f) / (K − 1), which is VarGrad,
    −∇ ½ Var_k log f_k (Richter et al., 2020), sample by sample.
    """

    ascends: ClassVar[str] = "the ELBO"

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate. Its bound is L̂ with K samples; its `objective`, the mean of log f, is ascended."""
        log_weights = held_constant(samples.log_weights)
        xp = array_namespace(log_weights)
        signal = rloo_signal(log_weights)
        is_possible = xp.all(log_weights > -xp.inf, axis=0)
        share = xp.where(is_possible, xp.full_like(log_weights, 1 / samples.num_samples), 0.0)
        # The mean of log f contains −1/K of every score of a learned proposal: noise of mean zero, removed here.
        score = signal if samples.proposal_is_prior else signal + share
        surrogate = score_term(score, samples) + weighted_sum(share, samples.log_weights)
        objective = xp.mean(log_weights, axis=0)
        return Estimate(surrogate, log_weights, signal, objective=objective)


@ESTIMATORS.register("rloo", "RLOO (ELBO)")
def _rloo(*_: Any) -> RLOO:
    """The ELBO, not the multi-sample bound, with each sample compared with the mean of the others; also VarGrad."""
    return RLOO()
