"""Models that make importance samples: sigmoid belief networks, generative and for structured prediction."""

from vimco.models.generative import generative_sbn
from vimco.models.kernels.bernoulli import log_bernoulli, sample_bernoulli
from vimco.models.layers import BernoulliLayer
from vimco.models.sbn import Chain, SigmoidBeliefNetwork
from vimco.models.structured import structured_sbn

__all__ = [
    "BernoulliLayer",
    "Chain",
    "SigmoidBeliefNetwork",
    "generative_sbn",
    "log_bernoulli",
    "sample_bernoulli",
    "structured_sbn",
]
