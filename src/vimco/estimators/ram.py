"""RAM, the recurrent attention model's own rule of learning (Mnih, Heess, Graves & Kavukcuoglu, 2014)."""

from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from vimco.errors import UsageError
from vimco.estimators.baselines import RunningMoments
from vimco.estimators.estimator import ESTIMATORS, Estimator, held_constant, score_term, weighted_sum
from vimco.samples import REWARDS, Batch, Estimate, ImportanceSamples, Need, required


class RAM(Estimator):
    """REINFORCE with a baseline for the policy, and the likelihood of the right label for all the rest. Any K ≥ 1.

    The policy ascends the probability of a right answer, by 1/K Σ_k (R_k − b) ∇ log P(a_k | image), where R_k is 1 if
    the most probable label of path k is the right one; b is the running mean of R, used before it has seen these
    samples. Classifier, core and glimpse network follow E ∇ log P(y | a, image), by 1/K Σ_k ∇ log P(y | a_k, image):
    the gradient of E log P(y | a, image) with the policy held constant.
    """

    ascends: ClassVar[str] = (
        "E log P(x|h) by the likelihood, with the policy fixed; the probability of a right label by the policy"
    )
    needs: ClassVar[tuple[Need, ...]] = (REWARDS,)

    baseline: RunningMoments = eqx.field(default_factory=RunningMoments)

    def __call__(self, samples: ImportanceSamples, batch: Batch | None = None) -> Estimate:
        """Return the estimate; the samples come from the policy, with their rewards."""
        if not samples.proposal_is_prior:
            raise UsageError(
                "RAM learns from what its own policy does, and these samples come from a learned proposal. "
                "Use --proposal prior, or RWS, which is WS-RAM's rule for a learned proposal. From Python, samples of "
                "the prior have proposal_is_prior=True."
            )
        reward = held_constant(required(samples, REWARDS))
        signal = held_constant(reward - self.baseline.mean) / samples.num_samples
        mean = jnp.full_like(signal, 1 / samples.num_samples)
        likelihood = weighted_sum(mean, samples.log_weights)
        surrogate = score_term(signal, samples) + likelihood
        return Estimate(surrogate, held_constant(samples.log_weights), signal, reward, held_constant(likelihood))

    def updated(self, estimate: Estimate) -> "RAM":
        """Return RAM whose baseline has seen these rewards."""
        assert estimate.residual is not None, "an estimate of this estimator's own"
        return eqx.tree_at(lambda e: e.baseline, self, self.baseline.updated(jnp.asarray(estimate.residual)))


@ESTIMATORS.register("ram", "RAM")
def _ram(*_: Any, decay: Annotated[float, "Decay of the running mean of rewards."] = 0.9) -> RAM:
    """REINFORCE on the rewards of an attention model, for --proposal prior (Mnih et al., 2014)."""
    return RAM(RunningMoments(decay))
