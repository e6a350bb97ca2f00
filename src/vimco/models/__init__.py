"""Models: sigmoid belief networks and Gaussian models.

Every file of this folder is imported, and registers its families, the values of `--task`, in `MODELS`.
"""

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
    "BernoulliLayer",
    "Chain",
    "GaussianModel",
    "ModelFamily",
    "SigmoidBeliefNetwork",
    "gaussian_model",
    "generative_sbn",
    "log_bernoulli",
    "sample_bernoulli",
    "structured_sbn",
]

import_modules(__name__)
