"""Estimators that use the layers of a binary proposal one by one, by enumeration."""

import dataclasses
import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import SBN_KINDS, binary_configurations, copies, gradients_through_model, sbn_model, sbn_toy

from vimco import (
    VIMCO,
    BaselineNetwork,
    Estimator,
    LayerwiseVIMCO,
    SigmoidBeliefNetwork,
    UsageError,
    multi_sample_bound,
)
from vimco.estimators import RLOO, RunningMoments
from vimco.estimators.bbvi import BBVI, leave_one_out
from vimco.estimators.estimator import weight_term
from vimco.estimators.layered import LayerBaselines, layered_estimate, local_log_weights, scores_of_layers
from vimco.estimators.local_expectations import LocalExpectations
from vimco.estimators.muprop import MuProp, expansion
from vimco.estimators.nvil import LocalNVIL
from vimco.models.kernels.flips import change_of_children, plain_change_of_children
from vimco.models.sbn import LayersOfSBN

pytestmark = pytest.mark.usefixtures("float64")


def trained(kind: str, normalised: bool = False, variance: float = 1.0) -> LayerBaselines:
    """Return baselines of two layers with non-trivial moments."""
    width = 3 if kind == "generative" else 5
    network = BaselineNetwork(jax.random.key(3), jnp.full(width, 0.4), num_hidden=4)
    network = eqx.tree_at(lambda n: n.output_weight, network, jnp.array([[0.7, -1.0], [-1.1, 0.2], [0.4, 0.6], [2, 1]]))
    values = (jnp.array([-2.3, -1.1]), jnp.array([81.0, 16.0]) * variance, jnp.array([7, 7], jnp.int32))
    moments = eqx.tree_at(lambda m: (m.mean, m.variance, m.count), RunningMoments(), values)
    return LayerBaselines(network, moments, normalised)


# Grouped by objective: the bound, or the ELBO for every K.
OF_BOUND = {
    "muprop": lambda kind: MuProp(),
    "muprop-baselines": lambda kind: MuProp(baselines=trained(kind)),
    "local-expectations": lambda kind: LocalExpectations(),
    "vimco-layers": lambda kind: LayerwiseVIMCO(trained(kind)),
}
OF_ELBO = {
    "bbvi": lambda kind: BBVI(),
    "bbvi-unit": lambda kind: BBVI("unit"),
    "bbvi-none": lambda kind: BBVI("none"),
    "muprop-elbo": lambda kind: MuProp("elbo"),
    "muprop-local": lambda kind: MuProp("elbo", local_signals=True, baselines=trained(kind)),
    "local-expectations-elbo": lambda kind: LocalExpectations("elbo"),
}
AT_ONE = {
    "nvil-local": lambda kind: LocalNVIL(trained(kind)),
    "muprop": OF_BOUND["muprop"],
    "muprop-elbo": OF_ELBO["muprop-elbo"],
    "muprop-local": OF_ELBO["muprop-local"],
    "local-expectations": OF_BOUND["local-expectations"],
    "local-expectations-elbo": OF_ELBO["local-expectations-elbo"],
    "vimco-layers": OF_BOUND["vimco-layers"],
}
# Divided by s = 9 and 4, layer by layer.
SCALED = {
    "nvil-local-scaled": lambda kind: LocalNVIL(trained(kind, normalised=True)),
    "muprop-scaled": lambda kind: MuProp(baselines=trained(kind, normalised=True)),
}
SAME_SAMPLES = {"same-samples": lambda kind: _SameSamples("same-samples")}
LOCAL_WEIGHTS = {"local-weights": lambda kind: _LocalWeightsInTheBound()}
BIASED = SCALED | SAME_SAMPLES | LOCAL_WEIGHTS
AT_TWO = OF_BOUND | OF_ELBO | {"muprop-scaled": SCALED["muprop-scaled"]} | SAME_SAMPLES | LOCAL_WEIGHTS
AT_THREE = {name: OF_ELBO[name] for name in ("bbvi", "bbvi-unit")} | SAME_SAMPLES
BY_K = {1: AT_ONE | SCALED, 2: AT_TWO, 3: AT_THREE}


class _SameSamples(BBVI):
    """BBVI with the control variate that it refuses, for the size of its bias."""

    def __call__(self, samples, batch=None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vimco.estimators.bbvi.LEAST_SAME_SAMPLES", 2)
            return super().__call__(samples, batch)


class _LocalWeightsInTheBound(Estimator):
    """The signals that NVIL refuses for K ≥ 2: log 1/K Σ_k of the part of f that a layer can change."""

    def __call__(self, samples, batch=None):
        local = local_log_weights(samples.layers)
        signals = jnp.broadcast_to(jnp.stack([multi_sample_bound(f) for f in local])[:, None], local.shape)
        surrogate = scores_of_layers(signals, samples.layers) + weight_term(samples.log_weights, samples)
        return layered_estimate(surrogate, samples, signals)


@functools.cache
def gradients(kind: str, K: int) -> dict[str, np.ndarray]:
    """Return the estimate of every set of samples, by the estimator's name: (sets, parameters)."""
    estimators = [make(kind) for make in BY_K[K].values()]
    rows = gradients_through_model(sbn_toy(kind), estimators, K, SigmoidBeliefNetwork.layered_weighted)
    return dict(zip(BY_K[K], rows, strict=True))


CASES = [(kind, K) for kind in SBN_KINDS for K in (1, 2)] + [("generative", 3), ("structured-learned", 3)]


@pytest.mark.parametrize(("kind", "K"), CASES)
def test_expected_gradient_is_that_of_the_objective(kind, K):
    """L^K, or the ELBO, for the parameters of model and proposal at once, to rounding."""
    toy = sbn_toy(kind)
    for name in set(BY_K[K]) - set(BIASED):
        exact = toy.exact_gradient(1 if name in OF_ELBO else K)
        expected = toy.probabilities(K) @ gradients(kind, K)[name]
        np.testing.assert_allclose(expected, exact, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("kind", SBN_KINDS)
@pytest.mark.parametrize(("name", "K"), [("nvil-local-scaled", 1), ("muprop-scaled", 1), ("muprop-scaled", 2)])
def test_normaliser_scales_whole_layers(kind, name, K):
    """Layer i of the proposal has 1/s_i of the exact gradient; all other parameters have the exact gradient."""
    toy = sbn_toy(kind)
    expected, exact = toy.probabilities(K) @ gradients(kind, K)[name], toy.exact_gradient(K)
    trees = [toy.unravel(v) for v in (expected, exact)]
    chain, exact_chain = (t.prior if toy.proposal_is_prior else t.proposal.chain for t in trees)
    for scale, layer, right in zip((9, 4), chain.layers, exact_chain.layers, strict=True):
        for a, e in zip(jax.tree.leaves(layer), jax.tree.leaves(right), strict=True):
            np.testing.assert_allclose(scale * a, e, rtol=0, atol=1e-11)
    np.testing.assert_allclose(toy.of_likelihood(expected), toy.of_likelihood(exact), atol=1e-12)
    if not toy.proposal_is_prior:
        np.testing.assert_allclose(toy.of_prior(expected), toy.of_prior(exact), atol=1e-12)


@pytest.mark.parametrize("kind", ["generative", "structured-learned"])
def test_three_layers(kind):
    """Units in the middle have parents and children in both P and Q."""
    toy = sbn_toy(kind, (1, 1, 1))
    estimators = [LocalExpectations(), MuProp("elbo", local_signals=True)]
    for rows in gradients_through_model(toy, estimators, 1, SigmoidBeliefNetwork.layered_weighted):
        np.testing.assert_allclose(toy.probabilities(1) @ rows, toy.exact_gradient(1), rtol=0, atol=1e-12)


def test_what_they_were_made_for():
    """Exact variances on the generative toy at K = 2."""
    toy = sbn_toy("generative")
    probability = toy.probabilities(2)
    variance = {
        name: float(probability @ np.sum((rows - probability @ rows) ** 2, axis=1))
        for name, rows in gradients("generative", 2).items()
    }
    plain = variance["bbvi-none"]
    assert variance["bbvi"] < 0.8 * plain
    assert variance["bbvi-unit"] < plain
    assert variance["muprop-elbo"] < plain
    assert variance["local-expectations-elbo"] < 0.5 * plain


@pytest.mark.parametrize("kind", ["generative", "structured-learned"])
def test_local_sums_have_the_whole_coefficient(kind):
    """VIMCO's signal nearly cancels −w̃; a local sum of L̂ alone beside −w̃ ∇ log Q as drawn has half of its variance."""
    toy = sbn_toy(kind)
    probability = toy.probabilities(2)
    local, vimco = (
        float(probability @ np.sum(np.stack([toy.of_proposal(row - probability @ rows) for row in rows]) ** 2, axis=1))
        for rows in (gradients(kind, 2)["local-expectations"], toy.gradients(VIMCO(), 2))
    )
    assert local < 0.04 * vimco


@pytest.mark.parametrize(("kind", "bias"), [("generative", 0.0474), ("structured-learned", 0.0348)])
def test_bias_of_local_weights_inside_the_bound(kind, bias):
    """The reason why NVIL refuses them for K ≥ 2, as a share of the proposal's gradient."""
    toy = sbn_toy(kind)
    exact = toy.exact_gradient(2)
    error = toy.of_proposal(toy.probabilities(2) @ gradients(kind, 2)["local-weights"] - exact)
    assert np.linalg.norm(error) / np.linalg.norm(toy.of_proposal(exact)) == pytest.approx(bias, abs=5e-4)


@pytest.mark.parametrize("kind", SBN_KINDS)
@pytest.mark.parametrize("name", ["muprop", "local-expectations"])
def test_at_one_sample_the_bound_is_the_elbo(kind, name):
    """Set by set: w̃ is 1 and its change 0."""
    rows, of_elbo = (gradients(kind, 1)[name] for name in (name, f"{name}-elbo"))
    np.testing.assert_allclose(rows, of_elbo, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", SBN_KINDS)
def test_at_one_sample_layer_baselines_are_local_signals_and_a_score(kind):
    """The second term of the bound has −∇ log Q, of mean zero, which NVIL's local signals leave out, set by set.

    What earlier layers add to L̂ = log f is in the baseline.
    """
    toy = sbn_toy(kind)
    rows, without = (gradients(kind, 1)[name] for name in ("vimco-layers", "nvil-local"))
    difference = 0 if toy.proposal_is_prior else toy.gradient_of_log_proposal
    np.testing.assert_allclose(rows, without - difference, rtol=0, atol=1e-12)


@pytest.mark.parametrize("probability", [1e-3, 1e-4, 1e-6])
def test_control_variate_of_a_saturated_unit_in_float32(probability):
    """One draw in five has a score near 1, the others near 0: its a is a mean of the others' f, −100.05."""
    f = np.array([-100.0, -101.0, -99.0, -100.5, -99.7])[:, None, None]
    score = np.array([1.0, 0.0, 0.0, 0.0, 0.0])[:, None, None] - probability
    exact = [np.sum(np.delete(f * score**2, k)) / np.sum(np.delete(score**2, k)) for k in range(5)]
    found = leave_one_out(jnp.asarray(f, jnp.float32), jnp.asarray(score, jnp.float32))
    np.testing.assert_allclose(found[:, 0, 0], exact, rtol=1e-5)


@pytest.mark.parametrize(("K", "bias"), [(2, 0.7287), (3, 0.6966)])
def test_bias_of_a_control_variate_from_the_same_samples(K, bias):
    """The reason for its refusal, as a share of the proposal's gradient."""
    toy = sbn_toy("generative")
    exact = toy.exact_gradient(1)
    error = toy.of_proposal(toy.probabilities(K) @ gradients("generative", K)["same-samples"] - exact)
    assert np.linalg.norm(error) / np.linalg.norm(toy.of_proposal(exact)) == pytest.approx(bias, abs=5e-4)


def test_without_the_children_local_expectations_are_biased(monkeypatch):
    """Q(v | h_-d) knows the units that were sampled after d."""
    flips = LayersOfSBN.flips
    monkeypatch.setattr(LayersOfSBN, "flips", lambda *a: (flips(*a)[0], jnp.zeros_like(flips(*a)[1])))
    toy = sbn_toy("generative")
    (rows,) = gradients_through_model(toy, [LocalExpectations()], 1, SigmoidBeliefNetwork.layered_weighted)
    assert np.linalg.norm(toy.probabilities(1) @ rows - toy.exact_gradient(1)) > 1e-3


def test_on_the_mean_chain_the_added_term_of_muprop_is_biased():
    """It must use the sampled parents: with the means of the mean chain instead the estimator is biased."""
    toy = sbn_toy("generative")

    def on_means(model, latents, batch):
        samples = model.layered_weighted(latents, batch)
        _, logits = model.walk(lambda i, a: jnp.broadcast_to(jax.nn.sigmoid(a), (1, *a.shape[-2:])), batch)
        return eqx.tree_at(lambda s: s.layers.logits, samples, logits)

    (rows,) = gradients_through_model(toy, [MuProp()], 1, on_means)
    assert np.linalg.norm(toy.probabilities(1) @ rows - toy.exact_gradient(1)) > 1e-3


@pytest.mark.parametrize("kind", SBN_KINDS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_flips_are_changes_of_single_units(kind, symmetric):
    """Against log f and log Q of the flipped latents themselves, for every unit of every layer."""
    model = sbn_model(kind, (3, 2, 1), symmetric)
    bits = np.random.default_rng(1).integers(0, 2, (2, 4, 6)).astype(float)
    latents = model.deepest_first(tuple(map(jnp.asarray, np.split(bits, (3, 5), axis=-1))))
    chain = LayersOfSBN(model, copies(sbn_toy(kind).example, 4))

    @jax.jit
    def totals(latents):
        _, logits = chain.walk(lambda i, _: latents[i])
        return jnp.stack(chain.log_weights(latents, logits)).sum(axis=0), jnp.stack(
            chain.log_proposals(latents, logits)
        )

    @jax.jit
    def flips(latents):
        _, logits = chain.walk(lambda i, _: latents[i])
        return [chain.flips(i, latents, logits) for i in range(len(latents))]

    log_f, log_q = map(np.asarray, totals(latents))
    for i, (change, of_later) in enumerate(jax.tree.map(np.asarray, flips(latents))):
        for unit in range(latents[i].shape[-1]):
            flipped = np.array(latents[i])
            flipped[..., unit] = 1 - flipped[..., unit]
            after_f, after_q = map(np.asarray, totals((*latents[:i], jnp.asarray(flipped), *latents[i + 1 :])))
            np.testing.assert_allclose(change[..., unit], after_f - log_f, atol=1e-12)
            np.testing.assert_allclose(of_later[..., unit], (after_q - log_q)[i + 1 :].sum(axis=0), atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-11), ("float32", 1e-4)])
def test_changes_of_children_are_differences_of_log_probabilities(dtype, tolerance):
    """Against the definition in double precision, from tiny weights and logits to very large ones."""
    keys = jax.random.split(jax.random.key(0), 4)
    values = jax.random.bernoulli(keys[0], 0.5, (4, 37)).astype(dtype)
    logits = (8 * jax.random.normal(keys[1], (3, 4, 37))).at[0, 0, :3].set(jnp.array([-90.0, 0.0, 90.0])).astype(dtype)
    weight = jax.random.normal(keys[2], (5, 37)) * 10.0 ** jnp.arange(-3, 2)[:, None]
    weight = weight.at[4, :4].set(jnp.array([-42.0, 42.0, -42.0, 42.0]))
    weight = weight.at[3, 5:8].set(jnp.array([-60.0, 100.0, 800.0]))
    # Children that stay certain, or nearly become uncertain, under a weight beyond that of the exponentials.
    weight = weight.at[2, 8:13].set(jnp.array([60.0, 50.0, 44.0, -60.0, -800.0])).astype(dtype)
    logits = logits.at[:, :, 8:13].set(jnp.array([-100.0, -60.0, -100.0, 100.0, 790.0], dtype))
    turns = (1 - 2 * jax.random.bernoulli(keys[3], 0.5, (3, 4, 5))).astype(dtype)

    expected = plain_change_of_children(*(array.astype("float64") for array in (values, logits, weight, turns)))
    answer = jax.jit(change_of_children)(values, logits, weight, turns)
    np.testing.assert_allclose(answer, expected, rtol=tolerance, atol=tolerance)


def test_memory_of_flips_does_not_grow_with_pairs_of_units():
    """No array holds a value for each sample, parent and child; the largest has one for each sample and unit."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 60), (3, 4, 60), (50, 60), (3, 4, 50))]
    sizes = [
        int(np.prod([int(n) for n in shape.split(",")]))
        for shape in re.findall(r"f32\[([\d,]+)\]", str(jax.make_jaxpr(change_of_children)(*shapes)))
    ]
    assert max(sizes) == 50 * 60  # the weights
    assert 3 * 4 * 60 in sizes


@pytest.mark.parametrize("kind", SBN_KINDS)
def test_layers_add_up_to_the_samples(kind):
    model, batch = sbn_model(kind), copies(sbn_toy(kind).example, 3)
    draws = map(eqx.filter_jit, (model.importance_samples, model.layered_samples))
    plain, layered = (draw(jax.random.key(2), batch, 4) for draw in draws)
    np.testing.assert_allclose(layered.log_joint, plain.log_joint, rtol=1e-12)
    np.testing.assert_allclose(layered.log_proposal, plain.log_proposal, rtol=1e-12)
    assert layered.proposal_is_prior == plain.proposal_is_prior
    with pytest.raises(UsageError, match="Leave the slice size out"):
        dataclasses.replace(model, slice_size=2).layered_samples(jax.random.key(2), batch, 4)


def test_signals_are_the_factors_of_scores():
    """With one layer BBVI's is RLOO's, up to the sign, which a root mean square over layers loses."""
    model, batch = sbn_model("generative", (2,)), copies(sbn_toy("generative").example, 4)
    samples = eqx.filter_jit(model.layered_samples)(jax.random.key(2), batch, 3)
    bbvi, rloo = (estimator(samples).learning_signal for estimator in (BBVI(), RLOO()))
    np.testing.assert_allclose(bbvi, np.abs(rloo), rtol=1e-12)
    plain, local = (MuProp("elbo", local_signals=is_local)(samples).learning_signal for is_local in (False, True))
    np.testing.assert_allclose(plain, local, rtol=1e-12)


def test_slopes_of_muprop_are_derivatives_along_the_chain_of_means():
    """Any slopes would leave it unbiased: these are compared with differences of log f as a mean moves."""
    chain = LayersOfSBN(sbn_model("generative"), copies(sbn_toy("generative").example, 1))
    _, terms, slopes = expansion(chain, tuple(jnp.zeros((1, 1, width)) for width in (1, 2)))

    def at_means(step, layer, unit):
        def moved(i, logits):
            is_moved = (i == layer) & (jnp.arange(logits.shape[-1]) == unit)
            return (jax.nn.sigmoid(logits) + step * is_moved).reshape(1, 1, -1)

        return float(sum(jnp.sum(term) for term in chain.log_weights(*chain.walk(moved))))

    for layer, slope in enumerate(slopes):
        for unit in range(slope.shape[-1]):
            assert at_means(0.0, layer, unit) == pytest.approx(float(jnp.sum(terms)), rel=1e-12)
            difference = at_means(1e-5, layer, unit) - at_means(-1e-5, layer, unit)
            assert difference / 2e-5 == pytest.approx(float(slope[0, 0, unit]), rel=1e-6)


def test_baselines_grow_with_the_first_estimate():
    """A draw that is not used for learning sets the number of layers."""
    toy = sbn_toy("generative")
    network = BaselineNetwork(jax.random.key(0), jnp.full(3, 0.4), num_hidden=4)
    batch = copies(toy.example, 8)
    latents = tuple(map(jnp.asarray, binary_configurations((2, 1))))
    samples = eqx.filter_jit(toy.model.layered_weighted)(latents, batch)
    update = eqx.filter_jit(lambda estimator: estimator.updated(estimator(samples, batch)))
    after = update(LocalNVIL(LayerBaselines(network, normalised=True)))
    assert after.baselines.network.output_weight.shape == (4, 2)
    local = np.stack([np.asarray(samples.log_weights[0]), np.asarray(samples.layers.log_weights[1][0])])
    np.testing.assert_allclose(after.baselines.moments.mean, local.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(after.baselines.moments.variance, local.var(axis=1), rtol=1e-12)
    again = update(after)
    assert jax.tree.structure(again) == jax.tree.structure(after)
    gradients = eqx.filter_jit(eqx.filter_grad(lambda e: jnp.sum(e(samples, batch).surrogate)))(after)
    gradient = gradients.baselines.network.output_weight
    hidden = np.tanh(np.asarray(network.centre(batch.observation)) @ network.hidden_weight)
    np.testing.assert_allclose(gradient, 2 * hidden.T @ (local - local.mean(axis=1, keepdims=True)).T, atol=1e-11)


def test_what_they_refuse():
    toy = sbn_toy("generative")
    latents = tuple(jnp.asarray(h[0][toy.sets(2)]) for h in binary_configurations((2, 1)))
    weighted = eqx.filter_jit(toy.model.layered_weighted)
    two = weighted(latents, copies(toy.example, 64))
    one = weighted(tuple(h[:1] for h in latents), copies(toy.example, 64))
    for estimator, samples, message in (
        (LocalNVIL(), two, "K = 1; got K = 2"),
        (BBVI(), one, "needs K >= 2"),
        (BBVI("unit"), one, "needs K >= 2"),
        (BBVI("same-samples"), two, "K >= 50; got K = 2"),
        (MuProp(), toy.samples(2), "`layered_samples`"),
        (LocalExpectations(), toy.samples(2), "`layered_samples`"),
    ):
        with pytest.raises(UsageError, match=message):
            estimator(samples)
    with pytest.raises(UsageError, match="objective=elbo"):
        MuProp("bound", local_signals=True)
