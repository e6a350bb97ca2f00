"""VIMCO for PyTorch: multi-sample bounds of your own model, with gradients for discrete latents.

    log_joint, log_proposal = ...  # log P(x, h^k) and log Q(h^k | x), of shape (K, B): samples first
    loss = -vimco.torch.surrogate(log_joint, log_proposal).mean()

Signals and estimators are those of the core, which take PyTorch tensors as they are: float32 or float64, any device,
any shape behind the sample axis. A learned baseline has parameters, so it is a `torch.nn.Module` here.
"""

import dataclasses
from typing import Any

from jaxtyping import Float

try:
    import torch
    from torch import Tensor, nn
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'vimco.torch needs PyTorch, and {error.name} is not installed: pip install ".[torch]" in the repository',
        name=error.name,
    ) from None

from vimco.bridges import check_estimator
from vimco.errors import UsageError
from vimco.estimators import (
    OVIS,
    RLOO,
    RWS,
    STL,
    TVO,
    VIMCO,
    AsymptoticOVIS,
    DReG,
    Estimator,
    Naive,
    Pathwise,
    RenyiVIMCO,
    RWSDReG,
    SubsetAverage,
)
from vimco.estimators.baselines import moments_after
from vimco.estimators.learned_vimco import learned_estimate
from vimco.estimators.nvil import nvil_estimate
from vimco.samples import Estimate, ImportanceSamples, check_shapes
from vimco.signals import (
    ScaledMean,
    arithmetic_mean_of_others,
    effective_sample_size,
    geometric_mean_of_others,
    jackknife_bound,
    left_out,
    multi_sample_bound,
    naive_signal,
    normalized_weights,
    ovis_signal,
    renyi_bound,
    vimco_signal,
)

__all__ = [
    "NVIL",
    "OVIS",
    "RLOO",
    "RWS",
    "STL",
    "TVO",
    "VIMCO",
    "AsymptoticOVIS",
    "BaselineNetwork",
    "DReG",
    "LearnedVIMCO",
    "Naive",
    "Pathwise",
    "RWSDReG",
    "RenyiVIMCO",
    "RunningMoments",
    "ScaledMean",
    "SubsetAverage",
    "arithmetic_mean_of_others",
    "effective_sample_size",
    "estimate",
    "geometric_mean_of_others",
    "jackknife_bound",
    "left_out",
    "multi_sample_bound",
    "naive_signal",
    "normalized_weights",
    "ovis_signal",
    "renyi_bound",
    "surrogate",
    "vimco_signal",
]


def surrogate(
    log_joint: Tensor,
    log_proposal: Tensor,
    estimator: Estimator = VIMCO(),  # noqa: B008  an immutable record without state
    **fields: Any,
) -> Float[Tensor, "*B"]:
    """Return the surrogate, whose gradient estimates ∇L^K per example (Eq. 10 by default): maximise its mean.

    `log_joint` is log P(x, h^k) and `log_proposal` log Q(h^k | x), both of shape (K, *B); the surrogate has shape (*B).
    Gradients must flow through both log-probabilities into the parameters; draw discrete latents without a gradient.
    Where some latents are reparameterised, let the gradient flow through them, and let `log_score` be log Q of the
    others. The value of a surrogate means nothing: report the bound, `estimate(...).bound`. `fields` are those of
    `estimate`.
    """
    return estimate(log_joint, log_proposal, estimator, **fields).surrogate


def estimate(
    log_joint: Tensor,
    log_proposal: Tensor,
    estimator: Estimator = VIMCO(),  # noqa: B008  an immutable record without state
    *,
    log_score: Tensor | None = None,
    auxiliary_log_weights: Tensor | None = None,
    frozen_log_weights: Tensor | None = None,
    latents_attached: bool = False,
    proposal_is_prior: bool = False,
    shared_parameters: bool = False,
) -> Estimate:
    """Return surrogate, bound, learning signal and effective sample size, from the arguments of `surrogate`.

    Some estimators need more than log-probabilities: `auxiliary_log_weights` (S, *B), log f of S more draws, for
    OVIS; `latents_attached`, every latent is reparameterised, for `Pathwise`; `frozen_log_weights`, log f with
    its parameters detached, beside a `log_joint` of detached latents, for `DReG`, `STL` and `RWSDReG`. Say
    `proposal_is_prior` where the samples come from the model's own prior, and `shared_parameters` where P and Q have
    parameters in common, or f is not P / Q: RWS refuses these.
    """
    more: dict[str, Any] = {
        "auxiliary_log_weights": auxiliary_log_weights,
        "frozen_log_weights": frozen_log_weights,
        "latents_attached": latents_attached,
        "proposal_is_prior": proposal_is_prior,
        "shared_parameters": shared_parameters,
    }
    instead = (
        "in PyTorch a learned baseline is a module, vimco.torch.NVIL or LearnedVIMCO, and for a warm-up of the order "
        "make a new RenyiVIMCO(order)."
    )
    if latents_attached and log_score is not None:
        raise UsageError(
            "log_score is for latents that are not reparameterised, and latents_attached=True says that there are "
            "none: leave one of the two out."
        )
    for name, values in (("auxiliary_log_weights", auxiliary_log_weights), ("frozen_log_weights", frozen_log_weights)):
        free = 1 if values is auxiliary_log_weights else 0  # S is any number
        if values is not None and (values.ndim != log_joint.ndim or values.shape[free:] != log_joint.shape[free:]):
            raise UsageError(
                f"{name} has the shape of log_joint, {tuple(log_joint.shape)}"
                f"{', but for the number of samples' * free}; got {tuple(values.shape)}."
            )
    given = [name for name, value in more.items() if value is not None and value is not False]
    check_estimator(estimator, instead, given)
    return estimator(dataclasses.replace(_samples(log_joint, log_proposal, log_score), **more))


def _samples(log_joint: Tensor, log_proposal: Tensor, log_score: Tensor | None) -> ImportanceSamples:
    check_shapes("log_joint", log_joint, log_proposal=log_proposal, log_score=log_score)
    return ImportanceSamples(log_joint, log_proposal, log_score)


class BaselineNetwork(nn.Module):
    """b(x): one hidden layer of tanh units over the centred observation (supplement B). It starts as the constant 0."""

    mean: Tensor

    def __init__(self, mean: Float[Tensor, "D"], num_hidden: int = 100):
        super().__init__()
        self.register_buffer("mean", mean.detach().clone())
        self.hidden = nn.Linear(mean.shape[0], num_hidden, dtype=mean.dtype, device=mean.device)
        self.output = nn.Linear(num_hidden, 1, bias=False, dtype=mean.dtype, device=mean.device)
        nn.init.xavier_uniform_(self.hidden.weight)
        nn.init.zeros_(self.hidden.bias)
        nn.init.zeros_(self.output.weight)

    def forward(self, observation: Float[Tensor, "*B D"]) -> Float[Tensor, "*B"]:
        """Return b(x) for each example."""
        return self.output(torch.tanh(self.hidden(observation - self.mean)))[..., 0]


class RunningMoments(nn.Module):
    """Mean and variance of a stream of residuals: a plain average at first, exponential with `decay` later on."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, decay: float = 0.8):
        super().__init__()
        if not 0 <= decay <= 1:
            raise UsageError(f"The decay of running moments is between 0 and 1; got {decay}.")
        self.decay = decay
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("variance", torch.zeros(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def observe(self, residual: Float[Tensor, "..."]) -> None:
        """Update the moments by one more batch, as `vimco.estimators.RunningMoments.updated` does."""
        for buffer, value in zip((self.mean, self.variance, self.count), moments_after(self, residual), strict=True):
            buffer.copy_(value)


class _LearnedBaseline(nn.Module):
    """The part that NVIL and the learned f(x) share: a network of the data, and running moments of its residuals."""

    def __init__(self, network: nn.Module | None, decay: float):
        super().__init__()
        self.network = network
        self.moments = RunningMoments(decay)

    def _prediction(self, observation: Any, log_weights: Tensor) -> Tensor | None:
        if self.network is None:
            return None
        if observation is None:
            raise UsageError(
                "An input-dependent baseline looks at the data: pass the observation as well, or leave its network out."
            )
        prediction = self.network(observation)
        if prediction.shape != log_weights.shape[1:]:
            raise UsageError(
                f"The baseline's network must give one number per example, of shape {tuple(log_weights.shape[1:])}; it "
                f"gave {tuple(prediction.shape)}."
            )
        return prediction


class NVIL(_LearnedBaseline):
    """Eq. 8: L̂ − b(x) − b multiplies every score; then variance normalisation. Any K ≥ 1.

    `network` maps the observation to b(x), of shape (*B): a `BaselineNetwork`, or a module of your own; hand its
    parameters to the optimizer. The options, and which parameters the normaliser scales, are those of `vimco.NVIL`.
    Say `proposal_is_prior=True` where the samples come from the model's own prior, and `shared_parameters=True` where P
    and Q have parameters in common, or f is not P / Q.

    In training mode each call updates the running moments. The mean is used before it has seen the current samples,
    since a baseline that had seen them would add a bias. Call it once under `torch.no_grad()` before training;
    otherwise the first signals are as large as the bound.
    """

    def __init__(
        self,
        network: nn.Module | None = None,
        *,
        constant_baseline: bool = True,
        variance_normalisation: bool = True,
        scale_sees_batch: bool = True,
        centred_weights: bool = False,
        decay: float = 0.8,
    ):
        super().__init__(network, decay)
        self.constant_baseline = constant_baseline
        self.variance_normalisation = variance_normalisation
        self.scale_sees_batch = scale_sees_batch
        self.centred_weights = centred_weights

    def forward(
        self,
        log_joint: Tensor,
        log_proposal: Tensor,
        observation: Any = None,
        *,
        log_score: Tensor | None = None,
        proposal_is_prior: bool = False,
        shared_parameters: bool = False,
    ) -> Estimate:
        """Return the estimate; `observation` is needed with a network."""
        samples = dataclasses.replace(
            _samples(log_joint, log_proposal, log_score),
            proposal_is_prior=proposal_is_prior,
            shared_parameters=shared_parameters,
        )
        prediction = self._prediction(observation, samples.log_weights)
        estimate = nvil_estimate(self, samples, prediction)
        if self.training:
            self.moments.observe(estimate.residual)
        return estimate


class LearnedVIMCO(_LearnedBaseline):
    """Eq. 9 with f̂ = f(x), a mapping trained to predict f(x, h). Any K ≥ 1.

    log f(x) = c + b(x): `network` is b, which learns from mean_k (log f_k − log f(x))², and c is the running mean of
    log f_k − b(x). State and first call as for `NVIL`.
    """

    def __init__(self, network: nn.Module | None = None, *, decay: float = 0.8):
        super().__init__(network, decay)

    def forward(
        self,
        log_joint: Tensor,
        log_proposal: Tensor,
        observation: Any = None,
        *,
        log_score: Tensor | None = None,
    ) -> Estimate:
        """Return the estimate; `observation` is needed with a network."""
        samples = _samples(log_joint, log_proposal, log_score)
        estimate = learned_estimate(samples, self._prediction(observation, samples.log_weights), self.moments)
        if self.training:
            self.moments.observe(estimate.residual)
        return estimate
