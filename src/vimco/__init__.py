"""Variational inference for Monte Carlo objectives (Mnih & Rezende, ICML 2016).

Train latent-variable models, especially discrete ones, by maximising log 1/K Σ_k f(x, h^k).

Axes. Samples are axis 0, examples axis 1, features last. Functions here reduce axis 0 only; the mean over examples is
taken once, in the training loop.

Sign. Everything is a lower bound to be maximised. The single minus sign is in the training loop.

Your own model, in one line:

    estimate = vimco.VIMCO()(vimco.ImportanceSamples(log_joint, log_proposal))

with both log-probabilities of shape (K, B). Maximise the mean of `estimate.surrogate`, report that of `estimate.bound`.
"""

from vimco import estimators, runs
from vimco.errors import UsageError
from vimco.estimators import *  # noqa: F403
from vimco.models import (
    AttentionModel,
    GaussianModel,
    SigmoidBeliefNetwork,
    attention_model,
    gaussian_model,
    generative_sbn,
    structured_sbn,
)
from vimco.runs import *  # noqa: F403
from vimco.samples import Batch, Estimate, Examples, ImportanceSamples
from vimco.signals import (
    ScaledMean,
    arithmetic_mean_of_others,
    effective_sample_size,
    geometric_mean_of_others,
    jackknife_bound,
    left_out,
    log_spaced_partition,
    multi_sample_bound,
    normalized_weights,
    ovis_signal,
    renyi_bound,
    vimco_signal,
)
from vimco.training import Evaluation, GradientStatistics, evaluate, gradient_statistics, paired_comparison

__version__ = "0.1.0"

__all__ = [
    "AttentionModel",
    "Batch",
    "Estimate",
    "Evaluation",
    "Examples",
    "GaussianModel",
    "GradientStatistics",
    "ImportanceSamples",
    "ScaledMean",
    "SigmoidBeliefNetwork",
    "UsageError",
    "arithmetic_mean_of_others",
    "attention_model",
    "effective_sample_size",
    "evaluate",
    "gaussian_model",
    "generative_sbn",
    "geometric_mean_of_others",
    "gradient_statistics",
    "jackknife_bound",
    "left_out",
    "log_spaced_partition",
    "multi_sample_bound",
    "normalized_weights",
    "ovis_signal",
    "paired_comparison",
    "renyi_bound",
    "structured_sbn",
    "vimco_signal",
]
__all__ += estimators.__all__
__all__ += runs.__all__
