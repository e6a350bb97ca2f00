"""VIMCO inside NumPyro: exact gradients where NumPyro's own objective is wrong, and messages of refusals.

No test here averages over draws. NumPyro's `vectorize_particles` hook lets a test replace the sampler by every set of K
samples, so expectations are sums.
"""

import copy
import itertools
import runpy
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

numpyro = pytest.importorskip("numpyro", reason='NumPyro is not installed: pip install ".[numpyro]"')

import numpyro.distributions as dist  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402
from numpyro.contrib.module import eqx_module  # noqa: E402
from numpyro.handlers import mask, scale, substitute  # noqa: E402
from numpyro.infer import SVI, RenyiELBO, Trace_ELBO  # noqa: E402
from numpyro.infer.autoguide import AutoDiagonalNormal, AutoNormal  # noqa: E402
from numpyro.infer.util import log_density  # noqa: E402
from numpyro.primitives import mutable  # noqa: E402

import vimco  # noqa: E402
from vimco.numpyro import MonteCarloObjective  # noqa: E402

UNBIASED = {"naive": vimco.Naive(), "vimco": vimco.VIMCO(), "vimco-leave-one-out": vimco.VIMCO(vimco.left_out)}
KEY = jax.random.key(0)


def drawing(objective, latents):
    """Return the objective whose K samples are `latents`, a dictionary of arrays with K rows."""

    def vectorize(one_sample, keys):
        def forced(key, values):
            with substitute(data=values):
                return one_sample(key)

        return jax.vmap(forced)(keys, latents)

    objective = copy.copy(objective)
    objective.vectorize_particles_fn = vectorize
    return objective


def sets_of_samples(configurations, K):
    """Return every set of K out of the configurations, as indices (number of sets, K)."""
    return jnp.asarray(list(itertools.product(range(configurations), repeat=K)))


def log_weights_and_proposal(params, latents, model, guide, *args):
    """Return log f and log Q of one sample, by NumPyro's own `log_density`."""
    values = {**params, **latents}
    log_joint, _ = log_density(model, args, {}, values)
    log_proposal, _ = log_density(guide, args, {}, values)
    return log_joint - log_proposal, log_proposal


def exact_gradient(params, latents, sets, model, guide, *args):
    """Return −∇L^K, the derivative of the sum over all sets. `latents(params, one_set)` has K rows."""

    def objective(params):
        def of_set(one_set):
            log_f, log_q = jax.vmap(lambda h: log_weights_and_proposal(params, h, model, guide, *args))(
                latents(params, one_set)
            )
            return -jnp.exp(jnp.sum(log_q)) * (jax.nn.logsumexp(log_f) - jnp.log(len(log_f)))

        return jnp.sum(jax.vmap(of_set)(sets))

    return jax.jit(jax.grad(objective))(params)


def expected_gradient(objective, params, latents, sets, probability, model, guide, *args):
    """Return the gradient that the objective gives, summed over all sets under their probability."""

    def of_set(one_set):
        def minus_bound(params):
            return drawing(objective, latents(params, one_set)).loss(KEY, params, model, guide, *args)

        return jax.grad(minus_bound)(params)

    gradients = jax.jit(jax.vmap(of_set))(sets)
    return jax.tree.map(lambda g: jnp.tensordot(probability, g, axes=1), gradients)


def value(objective, params, model, guide, *args):
    return jax.jit(lambda params: objective.loss(KEY, params, model, guide, *args))(params)


def traced(objective, params, model, guide, *args):
    """Trace the objective, which raises refusals, without compiling it."""
    jax.eval_shape(lambda: objective.loss(KEY, params, model, guide, *args))


def value_and_gradient(objective, params, model, guide, *args):
    return jax.jit(jax.value_and_grad(lambda params: objective.loss(KEY, params, model, guide, *args)))(params)


def assert_close(actual, expected, atol=1e-12):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=0, atol=atol, err_msg=name)


# --- three Bernoulli latents

BITS = np.asarray(list(itertools.product([0, 1], repeat=3)))
TOY_PARAMS = {"prior": [0.3, -0.5, 0.8], "proposal": [-0.4, 0.7, 0.2], "slope": [1.5, -2.0, 1.0]}
X = np.asarray([1.0, 0.0, 1.0, 1.0])


def toy_model(x):
    prior = numpyro.param("prior", jnp.zeros(3))
    slope = numpyro.param("slope", jnp.zeros(3))
    h = numpyro.sample("h", dist.Bernoulli(logits=prior).to_event(1))
    numpyro.sample("x", dist.Bernoulli(logits=slope @ h + jnp.arange(4) * h[0] - 0.5).to_event(1), obs=x)


def toy_guide(x):
    numpyro.sample("h", dist.Bernoulli(logits=numpyro.param("proposal", jnp.zeros(3))).to_event(1))


def toy_params():
    return {name: jnp.asarray(value) for name, value in TOY_PARAMS.items()}


def toy_latents(params, one_set):
    return {"h": jnp.asarray(BITS)[one_set]}


def toy_probability(params, sets):
    bits = jnp.asarray(BITS)
    log_q = jnp.sum(dist.Bernoulli(logits=params["proposal"]).log_prob(bits), axis=-1)
    return jnp.exp(jnp.sum(log_q[sets], axis=1))


@pytest.mark.parametrize(("name", "K"), [("naive", 1), ("naive", 2), ("vimco", 3), ("vimco-leave-one-out", 2)])
def test_the_expected_gradient_is_exact(float64, name, K):
    params, sets = toy_params(), sets_of_samples(len(BITS), K)
    objective = MonteCarloObjective(UNBIASED[name], num_samples=K)
    probability = toy_probability(params, sets)
    expected = expected_gradient(objective, params, toy_latents, sets, probability, toy_model, toy_guide, X)
    assert_close(expected, exact_gradient(params, toy_latents, sets, toy_model, toy_guide, X))


def test_numpyros_own_objective_points_the_wrong_way(float64):
    """`RenyiELBO(alpha=0)` has the same value and, on the discrete guide, an expected gradient of the wrong sign."""
    params, sets = toy_params(), sets_of_samples(len(BITS), 2)
    probability = toy_probability(params, sets)
    exact = exact_gradient(params, toy_latents, sets, toy_model, toy_guide, X)
    theirs = RenyiELBO(alpha=0, num_particles=2)
    wrong = expected_gradient(theirs, params, toy_latents, sets, probability, toy_model, toy_guide, X)
    np.testing.assert_allclose(wrong["slope"], exact["slope"], atol=1e-12)  # the model's gradient is right
    cosine = jnp.vdot(wrong["proposal"], exact["proposal"]) / (
        jnp.linalg.norm(wrong["proposal"]) * jnp.linalg.norm(exact["proposal"])
    )
    assert cosine < -0.5
    assert jnp.linalg.norm(wrong["proposal"]) > 0.1 * jnp.linalg.norm(exact["proposal"])

    for one_set in sets[5::29]:
        latents = toy_latents(params, one_set)
        ours = MonteCarloObjective(vimco.VIMCO(), num_samples=2)
        values = [value(drawing(o, latents), params, toy_model, toy_guide, X) for o in (ours, theirs)]
        np.testing.assert_allclose(*values, rtol=1e-12)


def test_rws_follows_its_own_rule(float64):
    """Eq. 11: the proposal's gradient is −Σ_j w̃_j ∇ log Q(h^j), and the value is still minus the bound."""
    params, one_set = toy_params(), jnp.asarray([1, 6, 4])
    latents = toy_latents(params, one_set)
    objective = drawing(MonteCarloObjective(vimco.RWS(), num_samples=3), latents)
    minus_bound, gradient = value_and_gradient(objective, params, toy_model, toy_guide, X)
    of_sample = jax.vmap(lambda h: log_weights_and_proposal(params, h, toy_model, toy_guide, X))
    log_f, _ = jax.jit(of_sample)(latents)
    weights = jax.nn.softmax(log_f)
    score = latents["h"] - jax.nn.sigmoid(params["proposal"])
    np.testing.assert_allclose(minus_bound, -(jax.nn.logsumexp(log_f) - jnp.log(3)), rtol=1e-12)
    np.testing.assert_allclose(gradient["proposal"], -weights @ score, atol=1e-12)


def test_samples_one_by_one_are_the_same_samples(float64):
    objectives = (
        MonteCarloObjective(vimco.VIMCO(), num_samples=4, vectorize_particles=together) for together in (True, False)
    )
    first, second = (value_and_gradient(o, toy_params(), toy_model, toy_guide, X) for o in objectives)
    np.testing.assert_allclose(first[0], second[0], rtol=1e-12)
    assert_close(first[1], second[1])


def test_without_a_guide_the_prior_is_the_proposal(float64):
    """Eq. 1: f = P(x | h), and the prior's parameters learn through both terms."""
    params, sets = toy_params(), sets_of_samples(len(BITS), 2)

    def prior(params):
        return jnp.sum(dist.Bernoulli(logits=params["prior"]).log_prob(jnp.asarray(BITS)), axis=-1)

    def exact(params):
        def log_f(number):
            values = {**params, "h": jnp.asarray(BITS)[number]}
            return log_density(toy_model, (X,), {}, values)[0] - prior(params)[number]

        f = jax.vmap(jax.vmap(log_f))(sets)
        return -jnp.exp(jnp.sum(prior(params)[sets], axis=1)) @ (jax.nn.logsumexp(f, axis=1) - jnp.log(2))

    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=2)
    probability = jnp.exp(jnp.sum(prior(params)[sets], axis=1))
    expected = expected_gradient(objective, params, toy_latents, sets, probability, toy_model, lambda x: None, X)
    assert_close(expected, jax.jit(jax.grad(exact))(params))
    with pytest.raises(vimco.UsageError, match="its own proposal"):
        traced(MonteCarloObjective(vimco.RWS(), num_samples=2), params, toy_model, lambda x: None, X)


def test_svi_learns_the_posterior(float64):
    """Through the real entry point, compiled, and without the warning that NumPyro has for discrete latents."""
    svi = SVI(toy_model, toy_guide, optax.adam(0.05), loss=MonteCarloObjective(vimco.VIMCO(), num_samples=5))
    result = svi.run(KEY, 300, X, init_params=toy_params(), progress_bar=False)
    assert result.losses[-50:].mean() < result.losses[:10].mean() - 0.5
    assert np.isfinite(jax.jit(svi.evaluate)(result.state, X))


def test_networks_of_equinox_learn(float64):
    """A module's parameters arrive as one tree; gradients must reach it in the model and in the guide."""

    def model(x):
        network = eqx_module("decoder", eqx.nn.Linear(2, 3, key=KEY))
        with numpyro.plate("data", len(x)):
            h = numpyro.sample("h", dist.Bernoulli(logits=jnp.zeros(2)).to_event(1))
            numpyro.sample("x", dist.Bernoulli(logits=jax.vmap(network)(h * 1.0)).to_event(1), obs=x)

    def guide(x):
        network = eqx_module("encoder", eqx.nn.Linear(3, 2, key=KEY))
        with numpyro.plate("data", len(x)):
            numpyro.sample("h", dist.Bernoulli(logits=jax.vmap(network)(x)).to_event(1))

    x = jnp.asarray(BITS, float)
    svi = SVI(model, guide, optax.sgd(0.1), MonteCarloObjective(vimco.VIMCO(), num_samples=3, plate="data"))
    state = svi.init(KEY, x)
    before = svi.get_params(state)
    after = svi.get_params(jax.jit(svi.update)(state, x)[0])
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert np.all(np.isfinite(new))
        assert np.any(old != new)


# --- Gaussian and Bernoulli latents together


def mixed_model(x):
    z = numpyro.sample("z", dist.Normal(numpyro.param("prior", jnp.zeros(())), 1.0))
    h = numpyro.sample("h", dist.Bernoulli(logits=0.5 * z))
    numpyro.sample("x", dist.Normal(z + 2.0 * h, numpyro.param("noise", jnp.ones(()))), obs=x)


def mixed_guide(x):
    z = numpyro.sample("z", dist.Normal(numpyro.param("mean", jnp.zeros(())), numpyro.param("width", jnp.ones(()))))
    numpyro.sample("h", dist.Bernoulli(logits=numpyro.param("slope", jnp.zeros(())) * z + x))


@pytest.mark.parametrize("name", ["naive", "vimco"])
def test_gaussian_and_bernoulli_latents_mix(float64, name):
    """With the Gaussian noise ε held fixed, the sum over the Bernoulli latents alone is already exact.

    z = mean + width ε carries its gradient through f and through Q(h | z); only h needs a score.
    """
    params = {
        name: jnp.asarray(v)
        for name, v in {"prior": 0.2, "noise": 0.8, "mean": -0.3, "width": 0.6, "slope": 0.9}.items()
    }
    noise = jnp.asarray([0.7, -1.1, 0.2])
    sets = sets_of_samples(2, 3)

    def latents(params, one_set):
        return {"z": params["mean"] + params["width"] * noise, "h": one_set}

    def probability(params):
        z = latents(params, sets)["z"]
        return jnp.exp(jnp.sum(dist.Bernoulli(logits=params["slope"] * z + 1.2).log_prob(sets), axis=1))

    def exact(params):
        def bound(one_set):
            log_f, _ = jax.vmap(lambda h: log_weights_and_proposal(params, h, mixed_model, mixed_guide, 1.2))(
                latents(params, one_set)
            )
            return jax.nn.logsumexp(log_f) - jnp.log(3)

        return -probability(params) @ jax.vmap(bound)(sets)

    objective = MonteCarloObjective(UNBIASED[name], num_samples=3)
    expected = expected_gradient(objective, params, latents, sets, probability(params), mixed_model, mixed_guide, 1.2)
    assert_close(expected, jax.jit(jax.grad(exact))(params))


def test_rws_refuses_reparameterised_latents():
    params = {"prior": 0.2, "noise": 0.8, "mean": -0.3, "width": 0.6, "slope": 0.9}
    with pytest.raises(vimco.UsageError, match="use VIMCO for mixed latents"):
        traced(MonteCarloObjective(vimco.RWS(), num_samples=3), params, mixed_model, mixed_guide, 1.2)


def test_a_reparameterised_guide_serves_a_prior_that_is_not(float64):
    """Only how the guide draws matters: a prior without a reparameterised sampler must not cut the gradient off."""

    def model():
        numpyro.sample("z", dist.VonMises(0.3, 2.0))

    def guide():
        numpyro.sample("z", dist.Normal(numpyro.param("mean", jnp.zeros(())), 1.0))

    assert not dist.VonMises(0.3, 2.0).has_rsample

    def log_f(mean):  # z = mean + noise, so log Q is constant
        z = latents(mean)["z"]
        return dist.VonMises(0.3, 2.0).log_prob(z)

    def latents(mean):
        return {"z": mean + jnp.asarray([0.4])}

    objective = MonteCarloObjective(vimco.Naive(), num_samples=1)
    gradient = jax.jit(jax.grad(lambda m: drawing(objective, latents(m)).loss(KEY, {"mean": m}, model, guide)))(0.1)
    np.testing.assert_allclose(gradient, -jax.grad(lambda m: log_f(m)[0])(0.1), rtol=1e-12)


def test_no_gradient_passes_through_a_draw_that_is_not_reparameterised(float64):
    """JAX could differentiate this sampler, but NumPyro does not declare it reparameterised: only the score counts."""
    drawn = []

    def model():
        drawn.append(numpyro.sample("z", dist.Normal(0.5, 1.0)))

    def guide():
        numpyro.sample("z", dist.VonMises(numpyro.param("mean", jnp.zeros(())), 2.0))

    def without_vmap(one_sample, keys):
        return jax.tree.map(lambda values: jnp.asarray(values)[None], one_sample(keys[0]))

    objective = MonteCarloObjective(vimco.Naive(), num_samples=1, vectorize_particles=without_vmap)
    objective.loss(KEY, {"mean": 0.1}, model, guide)
    z = drawn[0]

    def by_hand(mean):
        log_q = dist.VonMises(mean, 2.0).log_prob(z)
        log_f = dist.Normal(0.5, 1.0).log_prob(z) - log_q
        return -(jax.lax.stop_gradient(log_f) * log_q + log_f)

    gradient = jax.grad(lambda mean: objective.loss(KEY, {"mean": mean}, model, guide))(0.1)
    np.testing.assert_allclose(gradient, jax.grad(by_hand)(0.1), rtol=1e-12)


@pytest.mark.parametrize("auto", [AutoNormal, AutoDiagonalNormal])
def test_automatic_guides_have_the_density_that_numpyro_gives_them(float64, auto):
    """At K = 1 the bound is the ELBO; auxiliary sites and changes of variable are counted alike."""

    def model(x):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        with numpyro.plate("data", 3):
            numpyro.sample("x", dist.Poisson(rate), obs=x)

    x = jnp.asarray([1, 4, 2])
    guide = auto(model)
    svi = SVI(model, guide, optax.adam(0.1), loss=MonteCarloObjective(vimco.Naive(), num_samples=1))
    state = svi.init(KEY, x)
    params = svi.get_params(state)
    key_of_the_sample = jax.random.split(jax.random.split(KEY)[1], 1)[0]
    theirs = jax.jit(lambda params: Trace_ELBO().loss(key_of_the_sample, params, model, guide, x))(params)
    np.testing.assert_allclose(value(svi.loss, params, model, guide, x), theirs, rtol=1e-12)


# --- mini-batches: a plate of N = 5 examples, of which B = 2 are in use, each with a categorical latent

N, COLUMNS = 5, 3
DATA = np.asarray([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0], [1, 1, 0]], float)
ROWS = np.asarray([3, 0])
CATEGORIES = np.asarray(list(itertools.product(range(3), repeat=2)))  # of the two examples


def batch_params():
    return {
        "weights": jnp.asarray([0.5, -0.2, 0.1]),
        "columns": jnp.asarray([[1.0, -1.0, 0.5], [0.2, 0.9, -1.3], [-0.7, 0.1, 0.4]]),
        "encoder": jnp.asarray([[0.3, -0.8, 0.2], [0.6, 0.1, -0.5], [-0.9, 0.4, 0.7]]),
    }


def batch_model(data):
    weights, columns = numpyro.param("weights", jnp.zeros(3)), numpyro.param("columns", jnp.zeros((3, COLUMNS)))
    with numpyro.plate("data", N, subsample_size=2) as rows:
        h = numpyro.sample("h", dist.Categorical(logits=weights))
        with numpyro.plate("pixels", COLUMNS, dim=-2):
            numpyro.sample("x", dist.Bernoulli(logits=columns[h].T), obs=jnp.asarray(data)[rows].T)


def batch_guide(data):
    encoder = numpyro.param("encoder", jnp.zeros((COLUMNS, 3)))
    with numpyro.plate("data", N, subsample_size=2) as rows:
        numpyro.sample("h", dist.Categorical(logits=jnp.asarray(data)[rows] @ encoder))


def batch_latents(params, one_set):
    K = one_set.shape[0]
    return {"h": jnp.asarray(CATEGORIES)[one_set], "data": jnp.broadcast_to(jnp.asarray(ROWS), (K, 2))}


def batch_log_weights(params, h):
    """Return log f and log Q of shape (K, B), written out without NumPyro."""
    x = jnp.asarray(DATA)[ROWS]
    log_prior = jax.nn.log_softmax(params["weights"])[h]
    logits = params["columns"][h]
    log_likelihood = jnp.sum(x * jax.nn.log_sigmoid(logits) + (1 - x) * jax.nn.log_sigmoid(-logits), axis=-1)
    log_q = jnp.take_along_axis(jax.nn.log_softmax(x @ params["encoder"])[None], h[..., None], axis=-1)[..., 0]
    return log_prior + log_likelihood - log_q, log_q


def test_a_plate_is_normalised_per_example_and_n_over_b_scales_the_bound(float64):
    params, sets = batch_params(), sets_of_samples(len(CATEGORIES), 2)

    def bound(params, one_set):
        log_f, log_q = batch_log_weights(params, batch_latents(params, one_set)["h"])
        return N / 2 * jnp.sum(jax.nn.logsumexp(log_f, axis=0) - jnp.log(2)), jnp.exp(jnp.sum(log_q))

    def exact(params):
        bounds, probability = jax.vmap(lambda one_set: bound(params, one_set))(sets)
        return -probability @ bounds

    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=2, plate="data")
    latents = batch_latents(params, sets[37])
    of_one_set = value(drawing(objective, latents), params, batch_model, batch_guide, DATA)
    np.testing.assert_allclose(of_one_set, -bound(params, sets[37])[0], rtol=1e-12)

    probability = jax.jit(jax.vmap(lambda one_set: bound(params, one_set)[1]))(sets)
    np.testing.assert_allclose(jnp.sum(probability), 1, rtol=1e-12)
    expected = expected_gradient(objective, params, batch_latents, sets, probability, batch_model, batch_guide, DATA)
    assert_close(expected, jax.jit(jax.grad(exact))(params))


def test_weights_over_the_whole_batch_would_be_another_bound(float64):
    """The mistake that naming the plate avoids: one weight for all examples makes another bound, looser on average."""
    params, x = batch_params(), DATA[ROWS]

    def model():
        with numpyro.plate("data", 2):
            h = numpyro.sample("h", dist.Categorical(logits=params["weights"]))
            numpyro.sample("x", dist.Bernoulli(logits=params["columns"][h]).to_event(1), obs=x)

    def guide():
        with numpyro.plate("data", 2):
            numpyro.sample("h", dist.Categorical(logits=x @ params["encoder"]))

    latents = {"h": jnp.asarray([[0, 2], [1, 0]])}
    log_f, _ = batch_log_weights(params, latents["h"])
    per_example = MonteCarloObjective(vimco.VIMCO(), num_samples=2, plate="data")
    whole = MonteCarloObjective(vimco.VIMCO(), num_samples=2)
    of_examples, of_trace = (value(drawing(o, latents), {}, model, guide) for o in (per_example, whole))
    np.testing.assert_allclose(of_examples, -jnp.sum(jax.nn.logsumexp(log_f, axis=0) - jnp.log(2)), rtol=1e-12)
    np.testing.assert_allclose(of_trace, -(jax.nn.logsumexp(jnp.sum(log_f, axis=1)) - jnp.log(2)), rtol=1e-12)
    assert abs(of_trace - of_examples) > 0.1


def test_all_samples_see_the_same_subsample():
    """The latent is irrelevant here, so the bound is log P of one row exactly if all K samples saw that row."""
    data = jnp.linspace(-3, 3, 40)

    def model():
        with numpyro.plate("data", 40, subsample_size=1) as rows:
            numpyro.sample("h", dist.Bernoulli(0.5))
            numpyro.sample("x", dist.Normal(0.0, 1.0), obs=jnp.asarray(data)[rows])

    def guide():
        with numpyro.plate("data", 40, subsample_size=1):
            numpyro.sample("h", dist.Bernoulli(0.5))

    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=6, plate="data")
    rows = dist.Normal(0.0, 1.0).log_prob(data)
    bounds = jax.jit(jax.vmap(lambda key: -objective.loss(key, {}, model, guide) / 40))(jax.random.split(KEY, 8))
    assert len(set(np.round(bounds, 4).tolist())) > 1
    for bound in bounds:
        assert jnp.min(jnp.abs(rows - bound)) < 1e-5


# --- loops: a hidden Markov chain of three steps


def chain_model(x):
    logits = numpyro.param("transition", jnp.zeros(()))

    def step(previous, x):
        h = numpyro.sample("h", dist.Bernoulli(logits=logits * previous - 0.5))
        numpyro.sample("x", dist.Normal(1.0 * h, 0.7), obs=x)
        return h, None

    scan(step, 0, x)


def chain_guide(x):
    slope = numpyro.param("slope", jnp.zeros(()))

    def step(previous, x):
        return numpyro.sample("h", dist.Bernoulli(logits=slope * x + 0.3 * previous)), None

    scan(step, 0, x)


def test_latents_in_a_scan_learn(float64):
    params, x = {"transition": jnp.asarray(1.1), "slope": jnp.asarray(0.4)}, jnp.asarray([0.9, -0.2, 1.3])
    sets = sets_of_samples(len(BITS), 2)

    def latents(params, one_set):
        return {"h": jnp.asarray(BITS)[one_set]}

    log_q = jax.vmap(lambda h: log_density(chain_guide, (x,), {}, {**params, "h": h})[0])
    probability = jnp.exp(jnp.sum(jax.jit(log_q)(jnp.asarray(BITS))[sets], axis=1))
    np.testing.assert_allclose(jnp.sum(probability), 1, rtol=1e-12)
    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=2)
    expected = expected_gradient(objective, params, latents, sets, probability, chain_model, chain_guide, x)
    assert_close(expected, exact_gradient(params, latents, sets, chain_model, chain_guide, x))


def in_scan(sample):
    def program():
        scan(lambda carry, _: (carry, sample()), 0, jnp.zeros(2))

    return program


# --- weights of zero, scales and masks


def impossible_model(impossible):
    h = numpyro.sample("h", dist.Bernoulli(logits=numpyro.param("prior", 0.2)))
    numpyro.factor("x", jnp.where(h == impossible, -jnp.inf, -1.0))


def impossible_guide(impossible):
    numpyro.sample("h", dist.Bernoulli(logits=numpyro.param("proposal", -0.3)))


@pytest.mark.parametrize("name", ["naive", "vimco"])
def test_impossible_samples_take_no_part(float64, name):
    params = {"prior": jnp.asarray(0.2), "proposal": jnp.asarray(-0.3)}
    latents = {"h": jnp.asarray([0, 1, 1])}
    objective = drawing(MonteCarloObjective(UNBIASED[name], num_samples=3), latents)
    minus_bound, gradient = value_and_gradient(objective, params, impossible_model, impossible_guide, 0)
    log_f = jax.nn.log_sigmoid(0.2) - 1.0 - jax.nn.log_sigmoid(-0.3)
    np.testing.assert_allclose(minus_bound, -(log_f + jnp.log(2 / 3)), rtol=1e-12)
    np.testing.assert_allclose(gradient["prior"], -jax.nn.sigmoid(-0.2), rtol=1e-12)
    assert np.isfinite(gradient["proposal"])


def test_nothing_is_learned_where_every_sample_is_impossible():
    params = {"prior": jnp.asarray(0.2), "proposal": jnp.asarray(-0.3)}
    objective = drawing(MonteCarloObjective(vimco.VIMCO(), num_samples=2), {"h": jnp.asarray([1, 1])})
    minus_bound, gradient = value_and_gradient(objective, params, impossible_model, impossible_guide, 1)
    assert minus_bound == jnp.inf
    assert gradient == {"prior": 0.0, "proposal": 0.0}


def test_a_scale_in_the_model_is_a_power_of_its_factor(float64):
    """An inverse temperature on the likelihood, inside a subsampled plate whose N/B must not reach the weights."""

    def model(data):
        with numpyro.plate("data", N, subsample_size=2) as rows:
            h = numpyro.sample("h", dist.Categorical(logits=batch_params()["weights"]))
            with scale(scale=0.25):
                numpyro.sample(
                    "x", dist.Bernoulli(logits=batch_params()["columns"][h]).to_event(1), obs=jnp.asarray(data)[rows]
                )

    params = batch_params()
    latents = batch_latents(params, jnp.asarray([1, 7]))
    full, log_q = batch_log_weights(params, latents["h"])
    log_prior = jax.nn.log_softmax(params["weights"])[latents["h"]]
    log_f = 0.25 * (full + log_q - log_prior) + log_prior - log_q
    objective = drawing(MonteCarloObjective(vimco.VIMCO(), num_samples=2, plate="data"), latents)
    annealed = value(objective, {"encoder": params["encoder"]}, model, batch_guide, DATA)
    np.testing.assert_allclose(annealed, -N / 2 * jnp.sum(jax.nn.logsumexp(log_f, axis=0) - jnp.log(2)), rtol=1e-12)


def test_masks_leave_observations_and_whole_examples_out(float64):
    """Row 1 of three is padding, and one pixel of row 2 is missing."""
    pixels = jnp.asarray([[True, True, True], [True, True, True], [True, False, True]])
    rows = jnp.asarray([True, False, True])
    params = batch_params()
    x = jnp.asarray(DATA)[:3]

    def model():
        with numpyro.plate("data", 3), mask(mask=rows):
            h = numpyro.sample("h", dist.Categorical(logits=numpyro.param("weights")))
            logits = numpyro.param("columns")[h]
            with numpyro.plate("pixels", 3, dim=-2), mask(mask=pixels.T):
                numpyro.sample("x", dist.Bernoulli(logits=logits.T), obs=x.T)

    def guide():
        with mask(mask=rows), numpyro.plate("data", 3):
            numpyro.sample("h", dist.Categorical(logits=x @ numpyro.param("encoder")))

    h = jnp.asarray([[0, 1, 2], [2, 0, 1]])

    def by_hand(params):
        log_prior = jax.nn.log_softmax(params["weights"])[h]
        logits = params["columns"][h]
        terms = x * jax.nn.log_sigmoid(logits) + (1 - x) * jax.nn.log_sigmoid(-logits)
        log_q = jnp.take_along_axis(jax.nn.log_softmax(x @ params["encoder"])[None], h[..., None], axis=-1)[..., 0]
        samples = vimco.ImportanceSamples(log_prior + jnp.sum(terms * pixels, axis=-1), log_q)
        estimate = vimco.VIMCO()(jax.tree.map(lambda v: v[:, np.asarray([0, 2])], samples))
        return -jnp.sum(estimate.surrogate), -jnp.sum(estimate.bound)

    objective = drawing(MonteCarloObjective(vimco.VIMCO(), num_samples=2, plate="data"), {"h": h})
    minus_bound, gradient = value_and_gradient(objective, params, model, guide)
    expected, bound = jax.jit(jax.grad(by_hand, has_aux=True))(params)
    np.testing.assert_allclose(minus_bound, bound, rtol=1e-12)
    assert_close(gradient, expected)


# --- refusals


def latent(name="h", **kwargs):
    return numpyro.sample(name, dist.Bernoulli(0.5), **kwargs)


def in_plate(*names, size=3, subsample_size=None, plate="data"):
    def program():
        with numpyro.plate(plate, size, subsample_size=subsample_size):
            for name in names:
                latent(name)

    return program


def outside(*names, observed=False):
    def program():
        for name in names:
            latent(name, obs=1 if observed else None)
        in_plate("h")()

    return program


def masked():
    with mask(mask=jnp.asarray(True)):
        latent()


def rows_masked(*values):
    rows = jnp.stack(list(map(jnp.asarray, values)))

    def program():
        with numpyro.plate("data", 2), mask(mask=rows):
            latent()

    return program


def enumerated():
    latent(infer={"enumerate": "parallel"})


def observing():
    latent()
    numpyro.factor("correction", 0.3)


def scaled():
    with scale(scale=0.1):
        latent()


def angle():
    return numpyro.sample("h", dist.VonMises(0.0, 1.0))


def wide():
    numpyro.sample("h", dist.Bernoulli(0.5).expand([4]))


@pytest.mark.parametrize(
    ("model", "guide", "plate", "sentence"),
    [
        (enumerated, lambda: None, None, "'h' is marked for enumeration"),
        (latent, enumerated, None, "'h' of the guide is marked for enumeration"),
        (outside("g"), outside("g"), "data", "Latent 'g' lies outside plate 'data'"),
        (outside("g"), in_plate("h"), "data", "Latent 'g' lies outside plate 'data'"),
        (in_plate("h"), latent, "data", "batch shape .* make plates"),
        (outside("x", observed=True), in_plate("h"), "data", "Site 'x' lies outside plate 'data'"),
        (in_plate("h"), in_plate("h"), "rows", "There is no plate 'rows' in the model; it has 'data'"),
        (in_plate("h", subsample_size=2), in_plate("h", subsample_size=2), None, "subsamples 2 of 3.*plate='data'"),
        (latent, observing, None, "The guide observes site 'correction'"),
        (latent, scaled, None, "'h' of the guide is scaled"),
        (latent, masked, None, "'h' is masked in the guide alone"),
        (masked, latent, None, "'h' is masked in the model alone"),
        (
            rows_masked(True, False),
            rows_masked(True, True),
            None,
            "'h' is masked otherwise in the guide than in the model",
        ),
        (latent, lambda: (latent(), latent("u")), None, "The guide draws 'u', which the model does not have"),
        (lambda: latent(obs=1.0), latent, None, "The guide draws 'h', which the model observes"),
        (wide, latent, None, r"batch shape \(\) in the guide and \(4,\) in the model"),
        (lambda: None, lambda: None, None, "The model has no sample site"),
        (in_scan(angle), in_scan(angle), None, "'h' is continuous and not reparameterised, and inside `scan`"),
        (in_scan(in_plate("h", subsample_size=2)), lambda: None, "data", "plate 'data' inside `scan` hides"),
    ],
)
def test_what_cannot_be_right_is_refused(model, guide, plate, sentence):
    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=2, plate=plate)
    with pytest.raises(vimco.UsageError, match=f"(?s){sentence}"):
        traced(objective, {}, model, guide)


def test_the_same_mask_is_no_other_and_an_unknown_one_is_the_user_s():
    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=2)
    traced(objective, {}, rows_masked(True, False), rows_masked(True, False))
    jax.eval_shape(lambda a: traced(objective, {}, rows_masked(a, True), rows_masked(True, a)), jnp.asarray(True))


@pytest.mark.parametrize("estimator", [vimco.RWS(), vimco.VIMCO()])
def test_a_parameter_in_model_and_guide(estimator):
    """RWS has a rule for each of the two; VIMCO follows the gradient of one bound."""

    def program():
        return numpyro.sample("h", dist.Bernoulli(logits=numpyro.param("shared", jnp.array(0.3))))

    def model():
        numpyro.sample("x", dist.Bernoulli(0.2 + 0.5 * program()), obs=1.0)

    objective = MonteCarloObjective(estimator, num_samples=2)
    if isinstance(estimator, vimco.VIMCO):
        assert jnp.isfinite(objective.loss(jax.random.key(0), {}, model, program))
        return
    with pytest.raises(vimco.UsageError, match="they may not share parameters"):
        objective.loss(jax.random.key(0), {}, model, program)


@pytest.mark.parametrize(
    ("estimator", "K", "sentence"),
    [
        (vimco.NVIL(), 2, r"NVIL carries state \(a learned baseline, .*TraceGraph_ELBO"),
        (vimco.LearnedVIMCO(), 2, "LearnedVIMCO carries state"),
        (vimco.RWS(sleep=True), 2, "an observed program cannot dream"),
        (vimco.OVIS(), 2, "OVIS needs auxiliary samples, which a program here does not offer"),
        (vimco.DReG(), 2, "DReG needs reparameterised latents, and log f with its parameters held constant"),
        (vimco.RenyiWarmup(10), 2, "RenyiWarmup carries state"),
        (vimco.Annealed(vimco.VIMCO(), 10), 2, "Annealed carries state"),
        (vimco.VIMCO(), 0, "at least one sample"),
    ],
)
def test_estimators_that_need_more_than_one_set_of_samples_are_refused(estimator, K, sentence):
    with pytest.raises(vimco.UsageError, match=sentence):
        MonteCarloObjective(estimator, num_samples=K)


def test_pathwise_takes_a_guide_whose_latents_are_all_reparameterised():
    """One normal latent: the gradient is VIMCO's, which has no score to give; a discrete latent is refused."""

    def model():
        numpyro.sample("x", dist.Normal(numpyro.sample("z", dist.Normal(0.0, 1.0)), 1.0), obs=0.7)

    def guide():
        numpyro.sample("z", dist.Normal(numpyro.param("mean", jnp.zeros(())), 1.0))

    pathwise, plain = (MonteCarloObjective(estimator, num_samples=2) for estimator in (vimco.Pathwise(), vimco.VIMCO()))
    params = {"mean": jnp.array(0.2)}
    ours, theirs = (value_and_gradient(objective, params, model, guide) for objective in (pathwise, plain))
    assert_close(ours[1], theirs[1], atol=1e-6)
    assert abs(float(ours[1]["mean"])) > 1e-3
    with pytest.raises(vimco.UsageError, match="needs latents through which gradients flow"):
        traced(pathwise, {}, latent, latent)


def test_vimco_with_one_sample_is_refused_in_the_words_of_the_core():
    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=1)
    with pytest.raises(vimco.UsageError, match="needs K >= 2; got K = 1"):
        traced(objective, {}, latent, latent)


def test_importance_sampled_em_refuses_a_guide_even_of_one_latent():
    """It would leave the guide untrained. An empty one is allowed."""

    def model(x):
        a, b = numpyro.sample("a", dist.Bernoulli(0.3)), numpyro.sample("b", dist.Bernoulli(0.6))
        numpyro.sample("x", dist.Normal(a + 2.0 * b, 1.0), obs=x)

    def guide(x):
        numpyro.sample("a", dist.Bernoulli(logits=numpyro.param("q", 0.0)))

    em = vimco.ImportanceSampledEM()
    for objective in (MonteCarloObjective(em, 2), MonteCarloObjective(vimco.SubsetAverage(em, 2), 3)):
        with pytest.raises(vimco.UsageError, match="the guide proposes 'a': leave the guide empty, or use RWS"):
            traced(objective, {"q": 0.0}, model, guide, 1.5)
        traced(objective, {}, model, lambda x: None, 1.5)


def test_mutable_state_is_refused():
    def guide():
        mutable("count", jnp.zeros(()))
        latent()

    svi = SVI(latent, guide, optax.sgd(0.1), loss=MonteCarloObjective(vimco.VIMCO(), num_samples=2))
    state = svi.init(KEY)
    with pytest.raises(vimco.UsageError, match="mutable state"):
        svi.update(state)


def test_the_example_makes_its_point(capsys):
    path = Path(__file__).parents[2] / "examples" / "numpyro_discrete.py"
    bounds = runpy.run_path(str(path))["main"](num_updates=400)
    assert bounds["vimco"] > bounds["RenyiELBO(alpha=0)"] + 20
    assert "vimco" in capsys.readouterr().out
