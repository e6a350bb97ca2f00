"""Gaussian models (Burda et al., 2015): densities by hand, gradients by quadrature."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm

from vimco import VIMCO, Batch, Examples, UsageError, evaluate
from vimco.estimators import DReG, Pathwise
from vimco.models.gaussian import gaussian_model
from vimco.parameters import partition
from vimco.training.optimizer import stages

pytestmark = pytest.mark.usefixtures("float64")

MEAN = np.array([0.3, 0.6])


@eqx.filter_jit
def tiny(layers, hidden=2, scale=1.0):
    """Return a model whose parameters are far from zero, and one example. A smaller `scale` makes it smoother."""
    model = gaussian_model(jax.random.key(1), layers, jnp.asarray(MEAN), hidden=(hidden,) * len(layers))
    parameters, rest = partition(model)
    flat, unravel = ravel_pytree(parameters)
    moved = unravel(scale * (flat + 0.4 * jax.random.normal(jax.random.key(2), flat.shape)))
    return eqx.combine(moved, rest), Batch(jnp.array([[1.0, 0.0]]))


def network(net, x):
    """Return the outputs by definition: two tanh layers, then linear outputs."""
    for layer in net.hidden:
        x = jnp.tanh(x @ layer.weight + layer.bias)
    return [x @ output.weight + output.bias for output in net.outputs]


def log_normal(z, mean, log_scale):
    return jnp.sum(norm.logpdf(z, mean, jnp.exp(log_scale)), axis=-1)


def densities(model, latents, x):
    """Return log P(x, z) and log Q(z | x) as the paper writes them. Latents are (..., n), deepest first."""
    deepest, below = latents[0], latents[-1]
    log_p = jnp.sum(norm.logpdf(deepest), axis=-1)
    for net, parent, z in zip(model.prior, latents, latents[1:], strict=False):
        log_p = log_p + log_normal(z, *network(net, parent))
    logits = network(model.likelihood, below)[0]
    log_p = log_p + jnp.sum(x * jax.nn.log_sigmoid(logits) + (1 - x) * jax.nn.log_sigmoid(-logits), axis=-1)
    log_q, parent = 0.0, x - MEAN
    for net, z in zip(model.proposal, latents[::-1], strict=True):
        log_q = log_q + log_normal(z, *network(net, parent))
        parent = z
    return log_p, log_q


def test_log_probabilities_are_the_definitions():
    model, batch = tiny((2, 3))

    @eqx.filter_jit
    def answers(key, numbers):
        noise = model.noise(key, numbers, batch)
        latents, log_proposal = model.proposal_sample(key, numbers, batch)
        records = model.weighted(noise, batch), model.frozen_weighted(noise, batch)
        expected = densities(model, latents, batch.observation)
        return latents, expected, *records, (log_proposal, model.log_proposal(latents, batch))

    latents, expected, record, frozen, of_latents = answers(jax.random.key(0), jnp.arange(4))
    assert [z.shape for z in latents] == [(4, 1, 2), (4, 1, 3)]
    np.testing.assert_allclose(record.log_joint, expected[0], rtol=1e-12)
    for log_proposal in (record.log_proposal, *of_latents):
        np.testing.assert_allclose(log_proposal, expected[1], rtol=1e-12)
    np.testing.assert_allclose(frozen.log_weights, record.log_weights, rtol=1e-12)
    np.testing.assert_allclose(frozen.frozen_log_weights, record.log_weights, rtol=1e-12)


def gradient(model, function):
    parameters, rest = partition(model)
    return np.asarray(ravel_pytree(jax.jit(jax.grad(lambda p: function(eqx.combine(p, rest))))(parameters))[0])


def exact_gradient(layers, K, points):
    """Return ∇L^K without reparameterisation: an integral over z, on a grid, with Q(z | x) in the integrand."""
    model, batch = tiny(layers)
    grid = np.linspace(-9.0, 9.0, points)
    numbers = np.indices((points,) * (K * len(layers))).reshape(len(layers), K, -1)
    latents = tuple(jnp.asarray(grid[n])[..., None] for n in numbers)

    def bound(model):
        log_p, log_q = densities(model, latents, batch.observation[0])
        values = jax.nn.logsumexp(log_p - log_q, axis=0) - jnp.log(K)
        return jnp.sum(jnp.exp(jnp.sum(log_q, axis=0)) * values) * (grid[1] - grid[0]) ** (K * len(layers))

    return gradient(model, bound)


def expected_gradient(layers, K, estimator, record, points, scale=1.0):
    """Return the mean of an estimate over ε, on a separate grid."""
    model, batch = tiny(layers, scale=scale)
    values = np.linspace(-7.5, 7.5, points)
    weights = np.exp(-(values**2) / 2)
    numbers = np.indices((points,) * (K * len(layers))).reshape(len(layers), K, -1)
    probability = np.prod((weights / weights.sum())[numbers], axis=(0, 1))
    noise = tuple(jnp.asarray(values[n])[..., None] for n in numbers)
    many = Batch(jnp.repeat(batch.observation, len(probability), axis=0))
    return gradient(model, lambda m: probability @ estimator(getattr(m, record)(noise, many), many).surrogate)


@pytest.mark.parametrize(("layers", "K"), [((1,), 1), ((1,), 2), ((1, 1), 1)])
def test_pathwise_gradient_is_that_of_the_bound(layers, K):
    """The trapezoidal rule is spectrally accurate for smooth integrands that have died out at both ends."""
    expected = expected_gradient(layers, K, Pathwise(), "weighted", 201)
    exact = exact_gradient(layers, K, 201)
    np.testing.assert_allclose(expected, exact, rtol=0, atol=1e-8)
    assert np.linalg.norm(exact) > 0.1


@pytest.mark.parametrize(("layers", "points", "tolerance"), [((1,), 101, 1e-8), ((1, 1), 17, 1e-4)])
def test_dreg_has_the_same_mean_with_one_and_two_layers(layers, points, tolerance):
    """The parameters are held constant, not the mean and the scale of each layer: those are 7 % off or more."""
    pathwise = expected_gradient(layers, 2, Pathwise(), "weighted", points, 0.4)
    dreg = expected_gradient(layers, 2, DReG(), "frozen_weighted", points, 0.4)
    assert np.linalg.norm(dreg - pathwise) < tolerance * np.linalg.norm(pathwise)


def test_any_signal_is_pathwise_where_nothing_is_scored():
    """The record says that no latent is scored, so that VIMCO does not count one twice."""
    model, batch = tiny((2,))
    noise = model.noise(jax.random.key(0), jnp.arange(3), batch)
    pathwise, vimco = (
        gradient(model, lambda m, e=e: jnp.sum(e(m.weighted(noise, batch), batch).surrogate))
        for e in (Pathwise(), VIMCO())
    )
    np.testing.assert_allclose(vimco, pathwise, atol=1e-13)


def test_samples_depend_on_their_numbers_and_not_on_slices():
    model, batch = tiny((2, 3))
    for draw in ("importance_samples", "frozen_samples"):
        whole = eqx.filter_jit(getattr(model, draw))(jax.random.key(3), batch, 5)
        in_slices = dataclasses.replace(model, slice_size=2)
        sliced = eqx.filter_jit(getattr(in_slices, draw))(jax.random.key(3), batch, 5)
        np.testing.assert_allclose(sliced.log_weights, whole.log_weights, rtol=1e-12)
        assert whole.latents_attached


def test_dreams_have_the_moments_of_the_prior():
    """20,000 draws of a deepest layer N(0, I), and of z_1 given it."""
    model, _ = tiny((1, 2))
    latents, observation = eqx.filter_jit(model.sample)(jax.random.key(0), jnp.zeros((20_000, 0)))
    deepest, below = (np.asarray(z[0]) for z in latents)
    assert observation.shape == (1, 20_000, 2)
    assert abs(deepest.mean()) < 5 / 20_000**0.5
    assert abs(deepest.var() - 1) < 5 * (2 / 20_000) ** 0.5
    mean, log_scale = network(model.prior[0], jnp.asarray(deepest))
    standard = (below - mean) * np.exp(-np.asarray(log_scale))
    assert np.all(np.abs(standard.mean(axis=0)) < 5 / 20_000**0.5)
    assert np.all(np.abs(standard.var(axis=0) - 1) < 5 * (2 / 20_000) ** 0.5)


def test_sizes_of_the_paper():
    """One layer: x–200–200–50 and back. Two: 100 units next to x, 50 above with 100–100 between."""

    def size(layers):
        model = eqx.filter_eval_shape(lambda k: gaussian_model(k, layers, jnp.zeros(784)), jax.random.key(0))
        parts = (model.prior, model.likelihood, model.proposal)
        return sum(leaf.size for leaf in jax.tree.leaves(parts) if isinstance(leaf, jax.ShapeDtypeStruct))

    def dense(*widths):
        return sum(a * b + b for a, b in itertools.pairwise(widths))

    one = dense(784, 200, 200, 50) + dense(200, 50) + dense(50, 200, 200, 784)
    assert size((50,)) == one
    near = dense(784, 200, 200, 100) + dense(200, 100) + dense(100, 200, 200, 784)
    far = dense(100, 100, 100, 50) + dense(100, 50) + dense(50, 100, 100, 100) + dense(100, 100)
    assert size((50, 100)) == near + far
    with pytest.raises(UsageError, match="as many hidden widths"):
        gaussian_model(jax.random.key(0), (5, 4), jnp.asarray(MEAN), hidden=(3,))
    with pytest.raises(UsageError, match="one unit or more"):
        gaussian_model(jax.random.key(0), (5,), jnp.asarray(MEAN), hidden=(0,))


def test_active_units_vary_with_the_data():
    """The second unit of each of two layers does not depend on the data: its mean has no weights."""
    model, _ = tiny((2, 2))
    for layer in (0, 1):
        model = eqx.tree_at(
            lambda m, i=layer: m.proposal[i].outputs[0].weight, model, replace_fn=lambda w: (9 * w).at[:, 1].set(0)
        )
    examples = Examples(jnp.asarray(np.indices((2, 2)).reshape(2, -1).T.repeat(3, axis=0), jnp.uint8))
    evaluation = evaluate(model, examples, jax.random.key(0), num_samples=4)
    assert evaluation.active_units == (1, 1)
    assert evaluation.to_json()["active_units"] == [1, 1]


def test_noise_of_draws_makes_no_unit_active():
    """Q(z_1 | x) does not depend on x, so no mean of z_2 does; over one set of 50 draws it varies by 0.15 > 0.01."""
    model, _ = tiny((2, 2))
    model = eqx.tree_at(lambda m: m.proposal[0].outputs, model, replace_fn=lambda o: jax.tree.map(jnp.zeros_like, o))
    model = eqx.tree_at(lambda m: m.proposal[1].outputs[0].weight, model, replace_fn=lambda w: 4 * jnp.ones_like(w))
    images = np.indices((2, 2)).reshape(2, -1).T.repeat(100, axis=0)
    assert evaluate(model, Examples(jnp.asarray(images, jnp.uint8)), jax.random.key(0), 4).active_units == (0, 0)


def test_stages_of_the_published_recipe():
    """Rates 1e-3 · 10^(−i/7) for 3^i passes each, i = 0, ..., 7: here a pass is ten updates."""
    rate = stages(1e-3, 32_800)
    expected = np.concatenate([np.full(10 * 3**i, 1e-3 * 10 ** (-i / 7)) for i in range(8)])
    np.testing.assert_allclose(jax.vmap(rate)(jnp.arange(32_800)), expected, rtol=1e-12)
    assert rate(jnp.asarray(40_000)) == pytest.approx(1e-4)
