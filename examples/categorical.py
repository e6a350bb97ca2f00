"""Categorical latents, trained by VIMCO: two hidden attributes of six values each behind sixteen binary features.

VIMCO asks for log-probabilities only, so categorical latents need nothing special: no relaxation, no temperature. The
36 pairs of values can be summed over here, so the exact log-likelihood of unseen data stands beside the bound.
"""

import jax
import jax.numpy as jnp
import optax

import vimco

VALUES, FEATURES, K = 6, 16, 8


def log_joint(p, h, x):
    """Return log P(x, h): each attribute adds to the logits of the features. h holds two numbers from 0 to 5."""
    log_prior = jnp.sum(jax.nn.log_softmax(p["prior"])[jnp.arange(2), h], axis=-1)
    logits = jnp.sum(p["effects"][jnp.arange(2), h], axis=-2) + p["offset"]
    return log_prior + jnp.sum(x * logits - jax.nn.softplus(logits), axis=-1)


def importance_samples(p, key, x):
    """Return K draws h ~ Q(h | x) for each example, and both log-probabilities, of shape (K, examples)."""
    hidden = jnp.tanh(x @ p["hidden"])
    logits = jnp.einsum("bi,ian->ban", hidden, p["output"])  # example, attribute, value
    h = jax.random.categorical(key, logits, shape=(K, *logits.shape[:-1]))
    log_proposal = jnp.take_along_axis(jax.nn.log_softmax(logits)[None], h[..., None], axis=-1)[..., 0]
    return vimco.ImportanceSamples(log_joint(p, h, x), jnp.sum(log_proposal, axis=-1))


@jax.jit
def scores(p, x):
    """Return the bound and the exact log-likelihood, per example."""
    bound = vimco.multi_sample_bound(importance_samples(p, jax.random.key(0), x).log_weights)
    every_h = jnp.indices((VALUES, VALUES)).reshape(2, -1).T[:, None]
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


# Data: attributes drawn uniformly, with strong effects.
keys = jax.random.split(jax.random.key(2), 6)
attributes = jax.random.randint(keys[0], (6000, 2), 0, VALUES)
effects = 3 * jax.random.normal(keys[1], (2, VALUES, FEATURES))
logits = jnp.sum(effects[jnp.arange(2), attributes], axis=1)
x = jax.random.bernoulli(keys[2], jax.nn.sigmoid(logits)).astype(float)

p = {"prior": jnp.zeros((2, VALUES)), "offset": jnp.zeros(FEATURES)}
p |= {"effects": jax.random.normal(keys[3], effects.shape), "hidden": 0.3 * jax.random.normal(keys[4], (FEATURES, 40))}
p |= {"output": 0.1 * jax.random.normal(keys[5], (40, 2, VALUES))}
print("before: bound {:.3f}, log-likelihood {:.3f}".format(*scores(p, x[4000:])))
print("after:  bound {:.3f}, log-likelihood {:.3f}".format(*scores(trained(p, x[:4000]), x[4000:])))
