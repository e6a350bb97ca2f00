"""Mixed latents, trained by VIMCO: which of two lines a point lies on (discrete) and where on it (continuous).

The continuous latent is reparameterised, z = mean + scale · noise, so gradients flow through it; the discrete one
cannot be, and gets VIMCO's learning signal. One surrogate does both: tell it log Q of the discrete part as `log_score`.
Given the line, a point is Gaussian, so the exact log-likelihood stands beside the bound.
"""

import jax
import jax.numpy as jnp
import optax
from jax.scipy.stats import multivariate_normal, norm

import vimco

NOISE, K = 0.2, 8


def log_bernoulli(b, logits):
    return b * logits - jax.nn.softplus(logits)


def log_joint(p, b, z, x):
    """Return log P(x, b, z): a line, a place z ~ N(0, 1) on it, and a little noise around it."""
    at = p["start"][b] + p["direction"][b] * z[..., None]
    return log_bernoulli(b, p["prior"]) + norm.logpdf(z) + jnp.sum(norm.logpdf(x, at, NOISE), axis=-1)


def importance_samples(p, key, x):
    """Return K draws (b, z) ~ Q(b | x) Q(z | b, x) for each point, and the log-probabilities, of shape (K, points)."""
    key_of_b, key_of_z = jax.random.split(key)
    logits = jnp.tanh(x @ p["hidden"] + p["bias"]) @ p["output"]
    b = jax.random.bernoulli(key_of_b, jax.nn.sigmoid(logits), (K, *logits.shape)).astype(int)
    mean, scale = jnp.sum(p["slope"][b] * x, axis=-1) + p["shift"][b], jnp.exp(p["log_scale"])[b]
    z = mean + scale * jax.random.normal(key_of_z, b.shape)
    log_score = log_bernoulli(b, logits)
    return vimco.ImportanceSamples(log_joint(p, b, z, x), log_score + norm.logpdf(z, mean, scale), log_score)


@jax.jit
def scores(p, x):
    """Return the bound and the exact log-likelihood, per point."""
    bound = vimco.multi_sample_bound(importance_samples(p, jax.random.key(0), x).log_weights)
    covariance = jnp.einsum("bi,bj->bij", p["direction"], p["direction"]) + NOISE**2 * jnp.eye(2)
    lines = [log_bernoulli(b, p["prior"]) + multivariate_normal.logpdf(x, p["start"][b], covariance[b]) for b in (0, 1)]
    return jnp.mean(bound), jnp.mean(jnp.logaddexp(*lines))


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


# Data: two lines that cross.
keys = jax.random.split(jax.random.key(2), 5)
line = jax.random.bernoulli(keys[0], 0.4, (6000,)).astype(int)
start, direction = jnp.array([[0.5, 0.0], [-0.5, 0.5]]), jnp.array([[1.5, 1.0], [-1.0, 1.5]])
x = (
    start[line]
    + direction[line] * jax.random.normal(keys[1], (6000, 1))
    + NOISE * jax.random.normal(keys[2], (6000, 2))
)

p = {"prior": jnp.zeros(()), "start": jnp.zeros((2, 2)), "direction": jnp.array([[1.0, 0.3], [0.3, 1.0]])}
p |= {"slope": jnp.zeros((2, 2)), "shift": jnp.zeros(2), "log_scale": jnp.zeros(2), "bias": jnp.zeros(30)}
p |= {"hidden": jax.random.normal(keys[3], (2, 30)), "output": 0.1 * jax.random.normal(keys[4], (30,))}
print("before: bound {:.3f}, log-likelihood {:.3f}".format(*scores(p, x[4000:])))
print("after:  bound {:.3f}, log-likelihood {:.3f}".format(*scores(trained(p, x[:4000]), x[4000:])))
