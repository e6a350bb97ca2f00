"""A mixture in Pyro: the same model, guide and bound, trained by RenyiELBO and by VIMCO.

    pip install ".[pyro]"
    python examples/pyro_discrete.py

Points in the plane come from five clusters. The guide is a small network that names a point's cluster; for RenyiELBO it
never learns, because its gradient is exactly zero. Five clusters are few enough to sum over, so log P(x) is exact.
"""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, RenyiELBO
from torch import nn

import vimco
from vimco.pyro import MonteCarloObjective

torch.set_num_threads(1)  # matrices this small are faster so

N, B, CLUSTERS, K = 500, 50, 5, 5
CENTRES = torch.tensor([[3.0, 0.0], [0.9, 2.9], [-2.4, 1.8], [-2.4, -1.8], [0.9, -2.9]])


def made_up_data():
    return CENTRES[torch.arange(N) % CLUSTERS] + 0.6 * torch.randn(N, 2)


def model(data, encoder):
    del encoder  # the guide's
    logits = pyro.param("logits", torch.zeros(CLUSTERS))
    means = pyro.param("means", lambda: torch.randn(CLUSTERS, 2))
    with pyro.plate("points", N, subsample_size=B) as rows:
        cluster = pyro.sample("cluster", dist.Categorical(logits=logits))
        pyro.sample("x", dist.Normal(means[cluster], 0.6).to_event(1), obs=data[rows])


def guide(data, encoder):
    pyro.module("encoder", encoder)
    with pyro.plate("points", N, subsample_size=B) as rows:
        pyro.sample("cluster", dist.Categorical(logits=encoder(data[rows])))


@torch.no_grad()
def log_likelihood(data):
    """Return the mean of log P(x): a sum over the clusters."""
    mixture = torch.log_softmax(pyro.param("logits"), 0)
    parts = dist.Normal(pyro.param("means"), 0.6).log_prob(data[:, None]).sum(-1)
    return torch.logsumexp(mixture + parts, dim=1).mean().item()


def trained(objective, num_updates):
    """Return the exact log P(x) and the bound of the last updates, in nats per point."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    data = made_up_data()
    encoder = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, CLUSTERS))
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 1e-2}), loss=objective)
    losses = [svi.step(data, encoder) for _ in range(num_updates)]
    tail = losses[-max(1, num_updates // 10) :]
    return log_likelihood(data), -sum(tail) / len(tail) / N


def main(num_updates=800):
    at_once = {"vectorize_particles": True, "max_plate_nesting": 1}
    objectives = {
        "RenyiELBO(alpha=0)": RenyiELBO(alpha=0, num_particles=K, **at_once),
        "vimco": MonteCarloObjective(vimco.VIMCO(), num_samples=K, plate="points", **at_once),
    }
    print(f"{'trained by':<20} {'log P(x)':>9} {'bound':>9} {'gap':>9}   nats per point, K = {K}")
    bounds = {}
    for name, objective in objectives.items():
        likelihood, bounds[name] = trained(objective, num_updates)
        print(f"{name:<20} {likelihood:9.2f} {bounds[name]:9.2f} {likelihood - bounds[name]:9.2f}")
    return bounds


if __name__ == "__main__":
    main()
