"""Binary factors in NumPyro: the same model, guide and bound, trained by RenyiELBO and by VIMCO.

    pip install ".[numpyro]"
    python examples/numpyro_discrete.py

Each row of the data is a sum of some of six patterns, plus noise; which patterns is what the guide must infer. Six bits
are few enough to sum over, so log P(x) is exact, and the gap shows how far the bound stays below it.
"""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, RenyiELBO

import vimco
from vimco.numpyro import MonteCarloObjective

N, B, PIXELS, FACTORS, K = 1000, 50, 20, 6, 5


def model(data):
    frequency = numpyro.param("frequency", jnp.zeros(FACTORS))
    patterns = numpyro.param("patterns", lambda key: 0.1 * jax.random.normal(key, (FACTORS, PIXELS)))
    with numpyro.plate("rows", N, subsample_size=B) as rows:
        h = numpyro.sample("h", dist.Bernoulli(logits=frequency).to_event(1))
        numpyro.sample("x", dist.Normal(h @ patterns, 0.5).to_event(1), obs=data[rows])


def guide(data):
    weights = numpyro.param("weights", lambda key: 0.1 * jax.random.normal(key, (PIXELS, FACTORS)))
    bias = numpyro.param("bias", jnp.zeros(FACTORS))
    with numpyro.plate("rows", N, subsample_size=B) as rows:
        numpyro.sample("h", dist.Bernoulli(logits=data[rows] @ weights + bias).to_event(1))


@jax.jit
def made_up_data(key):
    which_key, pattern_key, noise_key = jax.random.split(key, 3)
    which = jax.random.bernoulli(which_key, 0.4, (N, FACTORS))
    patterns = jax.random.normal(pattern_key, (FACTORS, PIXELS))
    return which @ patterns + 0.5 * jax.random.normal(noise_key, (N, PIXELS))


@jax.jit
def log_likelihood(params, data):
    """Return the mean of log P(x) over the rows: a sum over all 2^6 sets of factors."""
    h = jnp.asarray(list(itertools.product([0.0, 1.0], repeat=FACTORS)))
    log_prior = dist.Bernoulli(logits=params["frequency"]).log_prob(h).sum(-1)
    log_likelihood = dist.Normal(h @ params["patterns"], 0.5).log_prob(data[:, None]).sum(-1)
    return jax.nn.logsumexp(log_prior + log_likelihood, axis=-1).mean()


def main(num_updates=3000):
    data = made_up_data(jax.random.key(0))
    objectives = {
        "RenyiELBO(alpha=0)": RenyiELBO(alpha=0, num_particles=K),
        "vimco": MonteCarloObjective(vimco.VIMCO(), num_samples=K, plate="rows"),
    }
    bounds = {}
    print(f"{'trained by':<20} {'log P(x)':>9} {'bound':>9} {'gap':>9}   nats per row, K = {K}")
    for name, objective in objectives.items():
        svi = SVI(model, guide, optax.adam(3e-3), loss=objective)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not support models with discrete latent variables")
            result = svi.run(jax.random.key(1), num_updates, data, progress_bar=False)
        likelihood = float(log_likelihood(result.params, data))
        bounds[name] = -float(result.losses[-300:].mean()) / N
        print(f"{name:<20} {likelihood:9.2f} {bounds[name]:9.2f} {likelihood - bounds[name]:9.2f}")
    return bounds


if __name__ == "__main__":
    main()
