"""Bayesian phylogenetics by variational inference: which tree relates four species, and how long are its branches?

A latent is a tree topology τ (one of three, scored by VIMCO) with its five branch lengths b (reparameterised): mixed
latents, in the manner of VBPI (Zhang & Matsen, 2019). The likelihood is that of Jukes & Cantor (1969), and branch
lengths are exponential a priori. The likelihood is annealed at first; the bound of the model itself is reported.

The example has an exact answer. With x = exp(−4b/3) the likelihood of a site is linear in every x, and the density of x
is a power, so Gauss–Jacobi quadrature gives the evidence of every topology to rounding.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.stats import norm

import vimco

SPECIES = (
    "TCACATCGCGTGTATAGCAGCGCT",
    "TCACCTAACGTGTATAGCAGACCA",
    "TCACTTCACGGGATCAGCAGCGTA",
    "TCACGTCACTCGCTTAGCTGCGCC",
)
SITES = np.array([["ACGT".index(letter) for letter in row] for row in SPECIES])
TOPOLOGIES = np.array(
    [[0, 1, 2, 3], [0, 2, 1, 3], [0, 3, 1, 2]]
)  # the first two species share a node, the last two another
IS_STATE = np.eye(4)[SITES][TOPOLOGIES]  # (topology, place in the tree, site, nucleotide)
RATE = 10.0  # of the exponential prior


def along(x, values):
    """Return Σ_j P(i → j) values_j for every nucleotide i: along a branch, with x = exp(−4 length / 3)."""
    return (1 - x) / 4 * values.sum(axis=-1, keepdims=True) + x * values


def likelihood_of_sites(x, tips):
    """Return P(site | tree), (..., sites), from x of four outer branches and the inner one, and the tips' states."""
    x = x[..., None, None]
    tip = [along(x[..., i, :, :], tips[..., i, :, :]) for i in range(4)]
    return (tip[0] * tip[1] * along(x[..., 4, :, :], tip[2] * tip[3])).sum(axis=-1) / 4


def jacobi(number):
    """Return nodes in [0, 1] and weights of sum 1 for the density of x (Golub & Welsch, 1969)."""
    b = 3 * RATE / 4 - 1
    n = np.arange(number)
    diagonal = b**2 / ((2 * n + b) * (2 * n + b + 2))
    m = n[1:]
    squares = 4 * m**2 * (m + b) ** 2 / ((2 * m + b) ** 2 * (2 * m + b + 1) * (2 * m + b - 1))
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(squares**0.5, 1) + np.diag(squares**0.5, -1))
    return (nodes + 1) / 2, vectors[0] ** 2


def exact_log_evidence(number=13):
    """Return log P(Y | τ) of each topology: (sites + 1) / 2 nodes for every branch are exact."""
    nodes, weights = jacobi(number)
    of_pairs = np.outer(weights, weights).ravel()
    evidence = np.zeros(3)
    for topology in range(3):
        tip = along(nodes[:, None, None], IS_STATE[topology][:, None])  # (place, node, site, nucleotide)
        left, right = ((tip[i][:, None] * tip[i + 1]).reshape(number**2, -1, 4) for i in (0, 2))
        for x, weight in zip(nodes, weights, strict=True):
            sites = np.einsum("lsi,rsi->slr", left, along(x, right) / 4, optimize=True)
            evidence[topology] += weight * of_pairs @ np.prod(sites, axis=0) @ of_pairs
    return np.log(evidence)


def importance_samples(p, topologies, noise):
    """Return the record of K pairs (τ, b), with no example axis: one data set, one K-vector."""
    log_b = p["mean"][topologies] + jnp.exp(p["log_scale"])[topologies] * noise
    x = jnp.exp(-4 / 3 * jnp.exp(log_b))
    log_likelihood = jnp.log(likelihood_of_sites(x, jnp.asarray(IS_STATE)[topologies])).sum(axis=-1)
    log_prior = (jnp.log(RATE) - RATE * jnp.exp(log_b) + log_b).sum(axis=-1) - jnp.log(3)  # of log b, hence + log b
    log_score = jax.nn.log_softmax(p["logits"])[topologies]
    log_proposal = log_score + norm.logpdf(log_b, p["mean"][topologies], jnp.exp(p["log_scale"])[topologies]).sum(-1)
    return vimco.ImportanceSamples(log_likelihood + log_prior, log_proposal, log_score, log_likelihood=log_likelihood)


def draw(p, key, K):
    """Return K samples from the proposal."""
    key_of_topologies, key_of_branches = jax.random.split(key)
    topologies = jax.random.categorical(key_of_topologies, p["logits"], shape=(K,))
    return importance_samples(p, topologies, jax.random.normal(key_of_branches, (K, 5)))


def untrained():
    """Return the proposal Q(τ) Π Q(b | τ): 33 numbers."""
    return {"logits": jnp.zeros(3), "mean": jnp.full((3, 5), jnp.log(1 / RATE)), "log_scale": jnp.full((3, 5), -1.0)}


def trained(estimator, steps=4000, K=10, seed=0):
    """Return the proposal after training, and the last means of the bound and of the annealed objective."""
    optimizer = optax.adam(optax.linear_schedule(0.01, 0.0, steps))

    def update(carry, key):
        p, state, estimator = carry

        def objective(p):
            estimate = estimator(draw(p, key, K))
            return -estimate.surrogate, estimate  # optimizers minimise

        gradient, estimate = jax.grad(objective, has_aux=True)(p)
        changes, state = optimizer.update(gradient, state)
        return (optax.apply_updates(p, changes), state, estimator.updated(estimate)), (
            estimate.bound,
            estimate.objective,
        )

    def run(p):
        keys = jax.random.split(jax.random.key(seed), steps)
        (p, _, _), (bounds, objectives) = jax.lax.scan(update, (p, optimizer.init(p), estimator), keys)
        return p, bounds[-200:].mean(), objectives[-200:].mean()

    return jax.jit(run)(untrained())


if __name__ == "__main__":
    per_topology = exact_log_evidence()
    evidence = np.logaddexp.reduce(per_topology) - np.log(3)
    print(f"exact:    log P(Y) {evidence:.4f}, posterior of the topologies {np.exp(per_topology - evidence) / 3}")
    for name, power in (("trained: ", 1.0), ("annealed:", 0.001)):  # of the likelihood at first
        p, bound, _ = trained(vimco.Annealed(vimco.VIMCO(), updates=1000, start=power))
        print(f"{name} bound with K = 10 {bound:.3f}, Q of the topologies {np.asarray(jax.nn.softmax(p['logits']))}")
    bounds = jax.jit(jax.vmap(lambda key: vimco.multi_sample_bound(draw(p, key, 1000).log_weights)))(
        jax.random.split(jax.random.key(1), 50)
    )
    print(f"          bound with K = 1000 {bounds.mean():.4f} ± {bounds.std() / 50**0.5:.4f}")
