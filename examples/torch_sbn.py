"""A sigmoid belief network in plain PyTorch, trained by VIMCO and, for comparison, by the naive estimator.

    pip install ".[torch]"
    python examples/torch_sbn.py

The data are 4 × 4 images of bars: each row and column is on or off. The model has two layers of binary units, the
proposal runs the other way. All that VIMCO needs of them is log P(x, h) and log Q(h | x) of K samples per image.
"""

import torch
from torch import nn

import vimco
import vimco.torch

torch.set_num_threads(1)  # matrices this small are faster so

SIDE, UPPER, LOWER, K, BATCH = 4, 6, 12, 5, 50


def bars(number, generator):
    """Return images (number, 16): the union of some rows and some columns."""
    rows = torch.rand(number, SIDE, 1, generator=generator) < 0.25
    columns = torch.rand(number, 1, SIDE, generator=generator) < 0.25
    return (rows | columns).flatten(1).float()


def log_bernoulli(value, logits):
    return -nn.functional.binary_cross_entropy_with_logits(logits, value, reduction="none").sum(-1)


class Network(nn.Module):
    """P(h2) P(h1 | h2) P(x | h1), and the proposal Q(h1 | x) Q(h2 | h1)."""

    def __init__(self):
        super().__init__()
        self.prior = nn.Parameter(torch.zeros(UPPER))
        self.to_lower, self.to_image = nn.Linear(UPPER, LOWER), nn.Linear(LOWER, SIDE**2)
        self.from_image, self.from_lower = nn.Linear(SIDE**2, LOWER), nn.Linear(LOWER, UPPER)

    def samples(self, x, num_samples):
        """Return log P(x, h) and log Q(h | x) of K samples from the proposal, both of shape (K, B)."""
        x = x.expand(num_samples, *x.shape)
        lower_logits = self.from_image(x - 0.5)
        lower = torch.bernoulli(torch.sigmoid(lower_logits).detach())
        upper_logits = self.from_lower(lower)
        upper = torch.bernoulli(torch.sigmoid(upper_logits).detach())
        log_proposal = log_bernoulli(lower, lower_logits) + log_bernoulli(upper, upper_logits)
        log_joint = (
            log_bernoulli(upper, self.prior.expand_as(upper))
            + log_bernoulli(lower, self.to_lower(upper))
            + log_bernoulli(x, self.to_image(lower))
        )
        return log_joint, log_proposal


@torch.no_grad()
def log_likelihood(network, x):
    """Return the mean of log P(x), by the bound with 2000 samples."""
    log_joint, log_proposal = network.samples(x, 2000)
    return vimco.torch.multi_sample_bound(log_joint - log_proposal).mean().item()


def trained(estimator, num_updates):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for _ in range(num_updates):
        log_joint, log_proposal = network.samples(bars(BATCH, generator), K)
        loss = -vimco.torch.surrogate(log_joint, log_proposal, estimator).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def main(num_updates=2500):
    test = bars(200, torch.Generator().manual_seed(1))
    results = {
        "untrained": log_likelihood(trained(vimco.VIMCO(), 0), test),
        "naive estimator": log_likelihood(trained(vimco.Naive(), num_updates), test),
        "vimco": log_likelihood(trained(vimco.VIMCO(), num_updates), test),
    }
    print(f"log P(x) of test images, in nats, after {num_updates} updates with K = {K}")
    for name, nats in results.items():
        print(f"  {name:<16} {nats:7.2f}")
    return results


if __name__ == "__main__":
    main()
