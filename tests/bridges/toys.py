"""Small models written out in PyTorch, for the tests of the PyTorch and the Pyro bridge: exact sums over every set."""

import itertools
import math

import torch
from torch.nn.functional import logsigmoid

BITS = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=torch.float64)
X = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)


def parameters(**values):
    """Return named leaves in double precision."""
    return {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in values.items()}


def toy_parameters():
    return parameters(prior=[0.3, -0.5, 0.8], proposal=[-0.4, 0.7, 0.2], slope=[1.5, -2.0, 1.0])


def bernoulli(value, logits):
    return value * logsigmoid(logits) + (1 - value) * logsigmoid(-logits)


def toy_logits(params, h):
    """Return the logits of the four pixels, (..., 4)."""
    return (h @ params["slope"])[..., None] + torch.arange(4) * h[..., :1] - 0.5


def toy_log_joint(params, h):
    return bernoulli(h, params["prior"]).sum(-1) + bernoulli(X, toy_logits(params, h)).sum(-1)


def toy_log_proposal(params, h):
    return bernoulli(h, params["proposal"]).sum(-1)


def sets_of_samples(configurations, K):
    """Return every set of K out of the configurations, as indices (K, number of sets)."""
    return torch.tensor(list(itertools.product(range(configurations), repeat=K))).T


def gradients(value, params):
    """Return the gradient of a scalar for each parameter, as one dictionary; 0 where it does not matter."""
    leaves = torch.autograd.grad(value, list(params.values()), allow_unused=True, retain_graph=True)
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(params.items(), leaves, strict=True)
    }


def exact_gradient(params, log_weights, log_q):
    """Return −∇L^K, the derivative of the sum over all sets (axis 1). `log_q` is that of the enumerated latents."""
    bound = torch.logsumexp(log_weights, dim=0) - torch.log(torch.tensor(float(len(log_weights))))
    return gradients(-(log_q.sum(0).exp() * bound).sum(), params)


def assert_close(actual, expected, atol=1e-12):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            actual[name], value, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


# --- a batch of two out of five examples, each with a latent of three categories

N = 5
DATA = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0], [1, 1, 0]], dtype=torch.float64)
ROWS = torch.tensor([3, 0])
CATEGORIES = torch.tensor(list(itertools.product(range(3), repeat=2)))  # of the two examples


def batch_parameters():
    return parameters(
        weights=[0.5, -0.2, 0.1],
        columns=[[1.0, -1.0, 0.5], [0.2, 0.9, -1.3], [-0.7, 0.1, 0.4]],
        encoder=[[0.3, -0.8, 0.2], [0.6, 0.1, -0.5], [-0.9, 0.4, 0.7]],
    )


def batch_terms(params, h):
    """Return log P(h), log P(x | h) and log Q(h | x) of shape (..., B)."""
    x = DATA[ROWS]
    log_prior = torch.log_softmax(params["weights"], 0)[h]
    log_likelihood = bernoulli(x, params["columns"][h]).sum(-1)
    log_q = torch.log_softmax(x @ params["encoder"], -1).expand(*h.shape, 3).gather(-1, h[..., None])[..., 0]
    return log_prior, log_likelihood, log_q


def batch_exact_gradient(params, h, scale=1.0):
    """Return −∇ of the scaled sum of both examples' L^K; h (K, number of sets, B) holds every set."""
    log_prior, log_likelihood, log_q = batch_terms(params, h)
    bound = torch.logsumexp(log_prior + log_likelihood - log_q, dim=0) - math.log(len(h))
    return gradients(-(log_q.sum((0, 2)).exp() * scale * bound.sum(-1)).sum(), params)
