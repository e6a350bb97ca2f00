"""Backpropagation through binary units (Raiko et al., 2014): what is exact, what is biased, and by how much."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import binary_configurations, copies, cosine, gradients_through_model, sbn_model, sbn_toy
from jax.flatten_util import ravel_pytree

from vimco import UsageError, multi_sample_bound, normalized_weights
from vimco.estimators.straight_through import StraightThrough
from vimco.models import SigmoidBeliefNetwork
from vimco.parameters import partition

pytestmark = pytest.mark.usefixtures("float64")


def expected_gradient(kind: str, K: int) -> np.ndarray:
    toy = sbn_toy(kind)
    gradients = gradients_through_model(toy, [StraightThrough()], K, SigmoidBeliefNetwork.straight_through_weighted)[0]
    return toy.probabilities(K) @ gradients


@pytest.mark.parametrize(("K", "bias"), [(1, 0.2087), (2, 0.1161), (3, 0.0867)])
def test_likelihood_is_exact_and_the_prior_nearly_so(K, bias):
    """With the prior as proposal: exact for P(x | h), nearly the direction of ∇L^K for P(h | c), with a known bias."""
    toy = sbn_toy("structured-prior")
    expected, exact = (toy.blocks(v) for v in (expected_gradient("structured-prior", K), toy.exact_gradient(K)))
    np.testing.assert_allclose(expected["likelihood"], exact["likelihood"], rtol=0, atol=1e-12)
    error = np.linalg.norm(expected["prior"] - exact["prior"]) / np.linalg.norm(exact["prior"])
    assert error == pytest.approx(bias, abs=5e-4)
    assert cosine(expected["prior"], exact["prior"]) > 0.99


@pytest.mark.parametrize("kind", ["generative", "structured-learned"])
def test_with_a_learned_proposal_the_model_is_exact(kind):
    toy = sbn_toy(kind)
    expected, exact = (toy.blocks(v) for v in (expected_gradient(kind, 2), toy.exact_gradient(2)))
    for block in ("prior", "likelihood"):
        np.testing.assert_allclose(expected[block], exact[block], rtol=0, atol=1e-12)
    assert np.linalg.norm(expected["proposal"] - exact["proposal"]) > 0.2 * np.linalg.norm(exact["proposal"])


@pytest.mark.parametrize("symmetric", [False, True])
def test_gradient_is_that_of_the_formula(symmetric):
    """δ² = ∂log P(x|h²)/∂h², δ¹ = W₂ (δ² ∘ σ'(a²)), ∇W_l = Σ_k w̃_k h^{l−1}_k (δ^l_k ∘ σ'(a^l_k))ᵀ, by hand."""
    model = sbn_model("structured-prior", (2, 1), symmetric)
    latents = tuple(jnp.asarray(h).reshape(2, 4, -1) for h in binary_configurations((2, 1)))  # K = 2, four examples
    batch = copies(sbn_toy("structured-prior").example, 4)

    def surrogate(parameters):
        samples = eqx.combine(parameters, rest).straight_through_weighted(latents, batch)
        return jnp.sum(StraightThrough()(samples).surrogate), samples

    parameters, rest = partition(model)
    gradient, samples = jax.jit(jax.grad(surrogate, has_aux=True))(parameters)
    plain = eqx.filter_jit(model.weighted)(latents, batch)
    np.testing.assert_allclose(samples.log_weights, plain.log_weights, rtol=1e-13)

    (first, second), output, factor = model.prior.layers, model.likelihood, 2 if symmetric else 1
    h = [np.asarray(factor * values - (factor - 1)) for values in latents]
    c, x = np.asarray(model.centre_context(batch.context)), np.asarray(batch.observation)
    logits = [
        np.asarray(layer(jnp.asarray(parent))) for layer, parent in zip((first, second, output), (c, *h), strict=True)
    ]
    slope = [jax.nn.sigmoid(a) * jax.nn.sigmoid(-a) for a in logits]
    residual = x - jax.nn.sigmoid(logits[2])
    of_second = factor * (residual @ output.weights[0].T) * slope[1]
    of_first = factor * (of_second @ second.weights[0].T) * slope[0]
    weights = np.asarray(normalized_weights(plain.log_weights))
    for answer, parent, of_logits in (
        (gradient.prior.layers[0], np.broadcast_to(c, (2, 4, 2)), of_first),
        (gradient.prior.layers[1], h[0], of_second),
        (gradient.likelihood, h[1], residual),
    ):
        np.testing.assert_allclose(
            answer.weights[0], np.einsum("kb,kbi,kbj->ij", weights, parent, of_logits), atol=1e-13
        )
        np.testing.assert_allclose(answer.bias, np.einsum("kb,kbj->j", weights, of_logits), atol=1e-13)


@pytest.mark.parametrize("kind", ["generative", "structured-learned"])
def test_gradient_goes_through_log_q_of_a_learned_proposal(kind):
    """Against plain definitions: log P and log Q as Σ v a − log(1 + exp a), whose derivative for v is a."""
    toy, K = sbn_toy(kind), 2
    parameters, rest = partition(toy.model)
    latents = tuple(jnp.asarray(h[0][toy.sets(K)]) for h in binary_configurations((2, 1)))
    batch = copies(toy.example, 64)

    def log_prob(values, logits):
        return sum(jnp.sum(v * a - jax.nn.softplus(a), axis=-1) for v, a in zip(values, logits, strict=True))

    def bound(parameters):
        model = eqx.combine(parameters, rest)

        def choose(i, a):
            return jax.nn.sigmoid(a) + jax.lax.stop_gradient(model.deepest_first(latents)[i] - jax.nn.sigmoid(a))

        in_order, logits = model.walk(choose, batch)
        h = model.deepest_first(in_order)
        _, of_prior = model.prior.walk(lambda i, _: h[i], model.centre_context(batch.context))
        log_joint = log_prob(h, of_prior) + log_prob((batch.observation,), (model.observation_logits(h),))
        return jnp.sum(jax.nn.logsumexp(log_joint - log_prob(in_order, logits), axis=0))

    expected = ravel_pytree(jax.jit(jax.grad(bound))(parameters))[0]
    answer = gradients_through_model(toy, [StraightThrough()], K, SigmoidBeliefNetwork.straight_through_weighted)[0]
    np.testing.assert_allclose(answer.sum(axis=0), expected, rtol=1e-11, atol=1e-11)


def test_samples_are_those_of_every_other_estimator():
    """Drawn with the same key, in slices or not: the same bound; and each unit is exactly 0 or 1."""
    model = sbn_model("structured-prior")
    batch = copies(sbn_toy("structured-prior").example, 3)
    key = jax.random.key(0)
    plain = model.importance_samples(key, batch, 5)
    attached = model.straight_through_samples(key, batch, 5)
    np.testing.assert_array_equal(multi_sample_bound(attached.log_weights), multi_sample_bound(plain.log_weights))
    sliced = eqx.filter_jit(dataclasses.replace(model, slice_size=2).straight_through_samples)(key, batch, 5)
    np.testing.assert_allclose(sliced.log_joint, plain.log_joint, rtol=1e-13)


def test_samples_without_gradients_are_refused():
    with pytest.raises(UsageError, match="straight_through_samples"):
        StraightThrough()(sbn_toy("structured-prior").samples(2))
