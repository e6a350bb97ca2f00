"""A model of your own, trained by VIMCO: six hidden causes, twelve symptoms, a noisy-or between them.

All you write is log P(x, h) and log Q(h | x). The 2^6 causes can be summed over here, so the exact log-likelihood of
unseen patients stands beside the bound.
"""

import jax
import jax.numpy as jnp
import optax

import vimco

CAUSES, SYMPTOMS, K = 6, 12, 10


def log_bernoulli(h, logits):
    return jnp.sum(h * logits - jax.nn.softplus(logits), axis=-1)


def log_joint(p, h, x):
    """Return log P(x, h): a symptom is absent if no present cause triggers it."""
    log_absent = -jax.nn.softplus(p["leak"]) - h @ jax.nn.softplus(p["links"])
    log_present = jnp.log(-jnp.expm1(log_absent))
    return log_bernoulli(h, p["prior"]) + jnp.sum(x * log_present + (1 - x) * log_absent, axis=-1)


def importance_samples(p, key, x):
    """Return K draws h ~ Q(h | x) for each patient, and both log-probabilities, of shape (K, patients)."""
    logits = x @ p["weights"] + p["bias"]
    h = jax.random.bernoulli(key, jax.nn.sigmoid(logits), (K, *logits.shape)).astype(x.dtype)
    return vimco.ImportanceSamples(log_joint(p, h, x), log_bernoulli(h, logits))


@jax.jit
def scores(p, x):
    """Return the bound and the exact log-likelihood, per patient."""
    bound = vimco.multi_sample_bound(importance_samples(p, jax.random.key(0), x).log_weights)
    every_h = jnp.indices((2,) * CAUSES).reshape(CAUSES, -1).T[:, None].astype(x.dtype)
    return jnp.mean(bound), jnp.mean(jax.nn.logsumexp(log_joint(p, every_h, x), axis=0))


@jax.jit
def trained(p, x):
    optimizer, estimator = optax.adam(0.02), vimco.VIMCO()

    def update(carry, key):
        p, state = carry
        key_of_rows, key_of_latents = jax.random.split(key)
        rows = jax.random.randint(key_of_rows, (64,), 0, len(x))

        def objective(p):  # optimizers minimise
            return -jnp.mean(estimator(importance_samples(p, key_of_latents, x[rows])).surrogate)

        changes, state = optimizer.update(jax.grad(objective)(p), state)
        return (optax.apply_updates(p, changes), state), None

    keys = jax.random.split(jax.random.key(1), 1000)
    return jax.lax.scan(update, (p, optimizer.init(p)), keys)[0][0]


# Patients: a cause in four is present, and each has three symptoms of which it shares one with the next cause.
keys = jax.random.split(jax.random.key(2), 3)
links = jnp.array([[4.0 if (s - 2 * c) % SYMPTOMS < 3 else 0.0 for s in range(SYMPTOMS)] for c in range(CAUSES)])
present = jax.random.bernoulli(keys[0], 0.25, (6000, CAUSES)).astype(float)
x = jax.random.bernoulli(keys[1], 1 - jnp.exp(-0.05 - present @ links)).astype(float)

p = {"prior": -jnp.ones(CAUSES), "leak": -3 * jnp.ones(SYMPTOMS), "bias": -jnp.ones(CAUSES)}
p |= {"links": jax.random.normal(keys[2], links.shape) - 1, "weights": jnp.zeros((SYMPTOMS, CAUSES))}
print("before: bound {:.3f}, log-likelihood {:.3f}".format(*scores(p, x[4000:])))
print("after:  bound {:.3f}, log-likelihood {:.3f}".format(*scores(trained(p, x[:4000]), x[4000:])))
