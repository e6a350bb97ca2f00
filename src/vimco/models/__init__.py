"""Models: sigmoid belief networks, Gaussian models, and hard attention.

Every file of this folder is imported, and registers its families, the values of `--task`, in `MODELS`.
"""

from vimco.models.attention import AttentionModel, attention_model
from vimco.models.family import MODELS, ModelFamily
from vimco.models.gaussian import GaussianModel, gaussian_model
from vimco.models.generative import generative_sbn
from vimco.models.kernels.bernoulli import log_bernoulli, sample_bernoulli
from vimco.models.layers import BernoulliLayer
from vimco.models.sbn import Chain, SigmoidBeliefNetwork
from vimco.models.structured import structured_sbn
from vimco.registry import import_modules

__all__ = [
    "MODELS",
    "AttentionModel",
    "BernoulliLayer",
    "Chain",
    "GaussianModel",
    "ModelFamily",
    "SigmoidBeliefNetwork",
    "attention_model",
    "gaussian_model",
    "generative_sbn",
    "log_bernoulli",
    "sample_bernoulli",
    "structured_sbn",
]

import_modules(__name__)
