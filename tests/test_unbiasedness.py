"""The expectation of every estimator, by enumeration: sums over all sets of K samples, in double precision."""

import dataclasses
import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from enumeration import (
    SBN_KINDS,
    Toy,
    all_configurations,
    binary_configurations,
    copies,
    gradient_of_surrogates,
    sbn_toy,
    table_toy,
)
from jax.flatten_util import ravel_pytree

from vimco import (
    BBVI,
    NVIL,
    OVIS,
    RAM,
    RLOO,
    RWS,
    STL,
    TVO,
    VIMCO,
    Annealed,
    AsymptoticOVIS,
    BaselineNetwork,
    Batch,
    DReG,
    ImportanceSampledEM,
    ImportanceSamples,
    LearnedVIMCO,
    LocalExpectations,
    MomentTVO,
    MuProp,
    Naive,
    Pathwise,
    RenyiVIMCO,
    RenyiWarmup,
    RWSDReG,
    ScaledMean,
    StraightThrough,
    SubsetAverage,
    arithmetic_mean_of_others,
    left_out,
    multi_sample_bound,
    named_estimator,
)
from vimco.estimators import ESTIMATORS, RunningMoments
from vimco.parameters import partition

pytestmark = [
    pytest.mark.usefixtures("float64"),
    pytest.mark.filterwarnings("ignore:Leaving the sample out"),  # with the prior too, to show what it costs
]


def moments(mean: float, variance: float) -> RunningMoments:
    """Return non-trivial running moments."""
    values = (jnp.array(mean), jnp.array(variance), jnp.array(7, jnp.int32))
    return eqx.tree_at(lambda m: (m.mean, m.variance, m.count), RunningMoments(), values)


@functools.cache
def network_of_width(width: int) -> BaselineNetwork:
    """Return a baseline network with non-trivial parameters."""
    untrained = BaselineNetwork(jax.random.key(3), jnp.full(width, 0.4), num_hidden=4)
    return eqx.tree_at(lambda n: n.output_weight, untrained, jnp.array([0.7, -1.1, 0.4, 2.0]))


def network(toy: Toy) -> BaselineNetwork:
    return network_of_width(toy.example.context.shape[1] + toy.example.observation.shape[1])


# Each from the toy, since a network must fit its data. Variances below 1 leave NVIL's normaliser at 1.
UNBIASED = {
    "naive": lambda toy: Naive(),
    "vimco": lambda toy: VIMCO(),
    "vimco-arithmetic": lambda toy: VIMCO(arithmetic_mean_of_others),
    "vimco-leave-one-out": lambda toy: VIMCO(left_out),
    "vimco-scaled": lambda toy: VIMCO(ScaledMean(0.3)),
    "vimco-learned": lambda toy: LearnedVIMCO(network(toy), moments(-2.3, 0.5)),
    "vimco-learned-constant": lambda toy: LearnedVIMCO(None, moments(-2.3, 0.5)),
    "nvil": lambda toy: NVIL(network(toy), moments(-2.3, 0.9), scale_sees_batch=False),
    "nvil-constant": lambda toy: NVIL(None, moments(-2.3, 0.9), scale_sees_batch=False),
    "nvil-input": lambda toy: NVIL(network(toy), moments(-2.3, 9.0), False, False),
}
NEEDS_NO_SECOND_SAMPLE = ("naive", "vimco-learned", "vimco-learned-constant", "nvil", "nvil-constant", "nvil-input")
CASES = [(name, 1) for name in NEEDS_NO_SECOND_SAMPLE] + [(name, K) for name in UNBIASED for K in (2, 3)]


@pytest.mark.parametrize("kind", SBN_KINDS)
@pytest.mark.parametrize(("name", "K"), CASES)
def test_expected_gradient_is_the_gradient_of_the_objective(kind, name, K):
    """Eq. 5 to 10, for the parameters of model and proposal at once."""
    toy = sbn_toy(kind)
    expected = toy.expected_gradient(UNBIASED[name](toy), K)
    np.testing.assert_allclose(expected, toy.exact_gradient(K), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", SBN_KINDS)
def test_model_estimator_and_gradient_fit_together(kind):
    """The same expectation with `jax.grad` through model and estimator in one go, as a training loop has them."""
    toy, K = sbn_toy(kind), 2
    parameters, rest = partition(toy.model)
    latents = tuple(jnp.asarray(h[0][toy.sets(K)]) for h in binary_configurations((2, 1)))
    batch = copies(toy.example, len(toy.log_joint) ** K)

    def expected_surrogate(parameters):
        samples = eqx.combine(parameters, rest).weighted(latents, batch)
        return toy.probabilities(K) @ VIMCO()(samples, batch).surrogate

    actual = ravel_pytree(jax.jit(jax.grad(expected_surrogate))(parameters))[0]
    np.testing.assert_allclose(actual, toy.exact_gradient(K), rtol=0, atol=1e-12)


# NVIL whose normaliser is 9, or, where it sees the batch (here all sets at once), what the batch makes of it.
SCALED = {
    "use-then-update": lambda toy: NVIL(network(toy), moments(-2.3, 81.0), scale_sees_batch=False),
    "update-then-use": lambda toy: NVIL(network(toy), moments(-2.3, 81.0)),
    "centred": lambda toy: NVIL(None, moments(-2.3, 81.0), scale_sees_batch=False, centred_weights=True),
}


@pytest.mark.parametrize("kind", SBN_KINDS)
@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("K", [1, 2, 3])
def test_normaliser_of_nvil_scales_whole_blocks(kind, name, K):
    """The block that is sampled from has 1/s of the exact gradient; all others have the exact gradient."""
    toy = sbn_toy(kind)
    estimator = SCALED[name](toy)
    scale = 9.0
    if estimator.scale_sees_batch:
        estimate = estimator(toy.samples(K), copies(toy.example, 8**K))
        scale = float(jnp.sqrt(estimator.updated(estimate).moments.variance))
        assert 8 < scale < 9
    expected, exact = (toy.blocks(v) for v in (toy.expected_gradient(estimator, K), toy.exact_gradient(K)))
    sampled = "prior" if toy.proposal_is_prior else "proposal"
    for block, value in expected.items():
        np.testing.assert_allclose(value * (scale if block == sampled else 1.0), exact[block], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("sees_batch", "cosine"), [(False, 1.0), (True, 0.9741)])
def test_a_normaliser_that_has_seen_a_small_batch_weighs_its_outliers_less(sees_batch, cosine):
    """Four configurations, one of them rare and far below the others; K = 1, all 16 batches of two.

    The direction of the mean update is compared with that of ∇L^1.
    """
    log_joint, logits = jnp.array([-1.0, -3.0, -6.0, -40.0]), jnp.array([0.0, 0.0, 0.0, -3.0])
    pairs = np.array(list(itertools.product(range(4), repeat=2)))
    proposal = jax.nn.softmax(logits)
    residual = log_joint - jnp.log(proposal)
    mean = proposal @ residual
    nvil = NVIL(None, moments(float(mean), float(proposal @ (residual - mean) ** 2)), scale_sees_batch=sees_batch)

    def expected(logits):
        def of_batch(pair):
            samples = ImportanceSamples(log_joint[pair][None], jax.nn.log_softmax(logits)[pair][None])
            return jnp.mean(nvil(samples).surrogate)

        return jnp.prod(proposal[pairs], axis=1) @ jax.vmap(of_batch)(jnp.asarray(pairs))

    def exact(logits):
        return jax.nn.softmax(logits) @ (log_joint - jax.nn.log_softmax(logits))

    actual, gradient = (jax.grad(f)(logits) for f in (expected, exact))
    angle = actual @ gradient / jnp.linalg.norm(actual) / jnp.linalg.norm(gradient)
    assert float(angle) == pytest.approx(cosine, abs=1e-4 if sees_batch else 1e-12)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_normaliser_of_nvil_scales_everything_where_parameters_are_shared(K):
    """P and Q share one vector, so only the whole gradient may be scaled. Scaling Q's coefficient alone reverses it."""
    toy = sbn_toy("generative")
    mixing = np.random.default_rng(0).normal(size=(len(toy.exact_gradient(K)), 4))
    nvil = NVIL(None, moments(-2.3, 81.0), scale_sees_batch=False)

    def mean_update(shared):
        samples = dataclasses.replace(toy.samples(K), shared_parameters=shared)
        record = gradient_of_surrogates(samples, nvil, None)
        of_tables = np.einsum("ks,ksp->sp", record.log_joint, toy.gradient_of_log_joint[toy.sets(K)])
        of_tables += np.einsum("ks,ksp->sp", record.log_proposal, toy.gradient_of_log_proposal[toy.sets(K)])
        return toy.probabilities(K) @ of_tables @ mixing

    np.testing.assert_allclose(9 * mean_update(True), toy.exact_gradient(K) @ mixing, rtol=0, atol=1e-12)
    assert np.abs(9 * mean_update(False) - toy.exact_gradient(K) @ mixing).max() > 1e-2


def test_centred_weights_change_nothing_for_the_prior_as_proposal():
    """Its scores have no w̃ before them: 1/K alone would be noise."""
    toy = sbn_toy("structured-prior")
    plain, centred = (NVIL(None, moments(-2.3, 81.0), centred_weights=c) for c in (False, True))
    np.testing.assert_array_equal(
        *(gradient_of_surrogates(toy.samples(2), e, None).log_proposal for e in (plain, centred))
    )


def test_centred_weights_of_nvil_lower_its_variance():
    """w̃ − 1/K instead of w̃: the same mean, since a score has mean zero."""
    toy = sbn_toy("generative")
    plain, centred = (NVIL(None, moments(-2.3, 81.0), centred_weights=c, scale_sees_batch=False) for c in (False, True))
    for K in (1, 2, 3):
        means = [toy.expected_gradient(estimator, K) for estimator in (plain, centred)]
        np.testing.assert_allclose(*means, rtol=0, atol=1e-12)
        assert toy.variance(centred, K) < toy.variance(plain, K)


# Every estimator that claims to ascend L^K: those above by their exact means, and OVIS in test_ovis.py.
ASCENDING = UNBIASED | SCALED | {"ovis": lambda toy: OVIS(1)}


def test_every_named_estimator_says_what_it_ascends():
    """Those that do not ascend L^K are tested for what they name, and reparameterised latents by quadrature."""
    named = [named_estimator(name, jax.random.key(0), jnp.full(3, 0.4)) for name in ESTIMATORS]
    assert {type(e) for e in named if e.ascends == "L^K"} == {
        *(type(ASCENDING[n](sbn_toy("generative"))) for n in ASCENDING),
        *(Pathwise, DReG),  # test_pathwise.py
    }
    assert {type(e) for e in named if e.ascends != "L^K"} == {
        RWS,  # below
        *(AsymptoticOVIS, RenyiVIMCO, RenyiWarmup, RLOO, TVO, MomentTVO),  # test_ovis.py, test_renyi.py, test_elbo.py
        *(STL, RWSDReG, SubsetAverage, Annealed),  # test_pathwise.py, test_subsets.py
        *(StraightThrough, ImportanceSampledEM, BBVI, MuProp, LocalExpectations, RAM),  # in files of their own
    }


# Impossible configurations. In the second toy all but one are impossible: in most sets the only possible sample cannot
# be compared with others, and its signal is the bound itself.
PROPOSAL_LOGITS = [0.2, -0.4, 1.0, 0.3, -0.9, 0.0, 0.6, -0.2]
TOYS_WITH_ZEROS = {
    "some": ([-1.2, -np.inf, -0.3, -np.inf, -2.0, -0.8, -np.inf, -3.1], PROPOSAL_LOGITS),
    "all-but-one": ([-np.inf, -np.inf, -0.7, *([-np.inf] * 5)], PROPOSAL_LOGITS),
}


@pytest.mark.parametrize("zeros", TOYS_WITH_ZEROS)
@pytest.mark.parametrize("name", ["naive", "vimco", "vimco-arithmetic", "vimco-leave-one-out"])
@pytest.mark.parametrize("K", [2, 3])
def test_impossible_samples_leave_the_estimate_unbiased(zeros, name, K):
    """Weights of zero need no cap, floor or jitter. The objective is over the sets that are not all zero."""
    toy = table_toy(*TOYS_WITH_ZEROS[zeros])
    expected = toy.expected_gradient(UNBIASED[name](toy), K)
    np.testing.assert_allclose(expected, toy.exact_gradient(K), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", UNBIASED)
def test_nothing_is_learned_from_sets_that_are_all_impossible(name):
    toy = table_toy(*TOYS_WITH_ZEROS["some"])
    all_zero = np.all(toy.log_joint[toy.sets(2)] == -np.inf, axis=0)
    gradients = toy.gradients(UNBIASED[name](toy), 2)
    assert 0 < all_zero.sum() < len(all_zero)
    assert np.all(gradients[all_zero] == 0)
    assert np.all(np.isfinite(gradients))
    assert np.all(np.any(gradients[~all_zero] != 0, axis=1))


@pytest.mark.parametrize("name", ["nvil-constant", "vimco-learned-constant"])
def test_learned_baselines_pay_for_sets_that_are_all_impossible(name):
    """Nothing is learned from such sets, so the baseline's own mean of zero is lost (docs/paper/deviations.md)."""
    toy = table_toy(*TOYS_WITH_ZEROS["some"])
    error = toy.expected_gradient(UNBIASED[name](toy), 2) - toy.exact_gradient(2)
    assert 1e-3 < np.linalg.norm(error) < 1


@pytest.mark.parametrize("kind", ["generative", "structured-learned"])
@pytest.mark.parametrize("K", [2, 3])
def test_rws_model_gradient_is_exact_and_wake_is_not_the_gradient_of_the_objective(kind, K):
    """Eq. 6 for the model; Eq. 11 for the proposal, which is biased by design."""
    toy = sbn_toy(kind)
    error = toy.expected_gradient(RWS(), K) - toy.exact_gradient(K)
    np.testing.assert_allclose(toy.of_model(error), 0, atol=1e-12)
    assert np.linalg.norm(toy.of_proposal(error)) > 1e-2


def test_bias_of_wake_for_the_divergence_falls_with_samples():
    """Eq. 11 estimates −∇KL(P(h|x) ‖ Q(h|x)) = Σ_h P(h|x) ∇ log Q(h|x), which enumeration knows."""
    toy = sbn_toy("generative")
    exact = toy.of_proposal(np.exp(toy.log_joint - toy.log_likelihood) @ toy.gradient_of_log_proposal)
    biases = [np.linalg.norm(toy.of_proposal(toy.expected_gradient(RWS(), K)) - exact) for K in (2, 3, 4)]
    assert 0.9 * biases[0] > biases[1]
    assert 0.9 * biases[1] > biases[2] > 0


@pytest.mark.parametrize("kind", ["generative", "structured-learned"])
def test_sleep_follows_the_divergence_under_the_model(kind):
    """Eq. 12 in expectation over (x, h) ~ P is −∇ Σ_x P(x) KL(P(h|x) ‖ Q(h|x)): both by enumeration."""
    toy = sbn_toy(kind)
    observations = jnp.asarray(binary_configurations((3,))[0][0])
    parameters, rest = partition(toy.model)

    def all_dreams(parameters):
        model = eqx.combine(parameters, rest)
        records = jax.vmap(lambda x: all_configurations(model, (2, 1), Batch(x[None], toy.example.context)))(
            observations
        )
        return records.log_joint[:, 0], records.log_proposal[:, 0]  # (x, h)

    def negative_divergence(parameters):
        log_joint, log_proposal = all_dreams(parameters)
        log_joint = jax.lax.stop_gradient(log_joint)
        log_posterior = log_joint - jax.nn.logsumexp(log_joint, axis=1, keepdims=True)
        return jnp.sum(jnp.exp(log_joint) * (log_proposal - log_posterior))

    def expected_surrogate(parameters):
        log_joint, log_proposal = all_dreams(parameters)
        probability = jnp.ravel(jax.lax.stop_gradient(jnp.exp(log_joint)))
        awake = toy.samples(1)
        samples = ImportanceSamples(
            jnp.repeat(awake.log_joint[:, :1], 64, axis=1),
            jnp.repeat(awake.log_proposal[:, :1], 64, axis=1),
            log_proposal_of_dreams=jnp.ravel(log_proposal),
        )
        return probability @ RWS(wake=False, sleep=True)(samples).surrogate

    exact = ravel_pytree(jax.jit(jax.grad(negative_divergence))(parameters))[0]
    expected = ravel_pytree(jax.jit(jax.grad(expected_surrogate))(parameters))[0]
    np.testing.assert_allclose(expected, exact, rtol=0, atol=1e-12)
    assert np.linalg.norm(toy.of_proposal(exact)) > 1e-2


def test_both_updates_of_rws_add_up():
    """wake-and-sleep = wake + sleep − the model's gradient, which both contain."""
    toy = sbn_toy("generative")
    samples = eqx.tree_at(
        lambda s: s.log_proposal_of_dreams, toy.samples(2), jnp.linspace(-3.0, -1.0, 64), is_leaf=lambda x: x is None
    )

    def gradient(estimator):
        return jax.grad(lambda s: jnp.sum(estimator(s).surrogate))(samples)

    wake, sleep, both = gradient(RWS()), gradient(RWS(wake=False, sleep=True)), gradient(RWS(sleep=True))
    np.testing.assert_allclose(both.log_proposal, wake.log_proposal + sleep.log_proposal, atol=1e-15)
    np.testing.assert_allclose(both.log_joint, wake.log_joint, atol=1e-15)
    np.testing.assert_allclose(both.log_joint, sleep.log_joint, atol=1e-15)
    assert np.all(np.asarray(sleep.log_proposal) == 0)
    assert np.all(np.asarray(both.log_proposal_of_dreams) == 1)


@pytest.mark.parametrize("kind", SBN_KINDS)
def test_expected_bound_rises_with_samples_and_stays_below_the_likelihood(kind):
    """Sec. 2.2: L^1 < L^2 < L^3 < log P(x), all exact."""
    toy = sbn_toy(kind)
    bounds = [toy.expected_bound(K) for K in (1, 2, 3)]
    assert bounds[0] < bounds[1] < bounds[2] < toy.log_likelihood
    for K, bound in zip((1, 2, 3), bounds, strict=True):
        assert toy.probabilities(K) @ multi_sample_bound(toy.samples(K).log_weights) == pytest.approx(bound, abs=1e-12)


@pytest.mark.parametrize("kind", SBN_KINDS)
def test_one_sample_makes_the_variational_bound(kind):
    """Eq. 3: L^1 = log P(x) − KL(Q(h|x) ‖ P(h|x))."""
    toy = sbn_toy(kind)
    divergence = np.exp(toy.log_proposal) @ (toy.log_proposal - (toy.log_joint - toy.log_likelihood))
    assert toy.expected_bound(1) == pytest.approx(toy.log_likelihood - divergence, abs=1e-12)


@pytest.mark.parametrize("kind", SBN_KINDS)
def test_likelihood_estimate_is_unbiased(kind):
    """Eqs. 1 and 2: E[1/K Σ f(x, h^k)] = P(x), with the prior as proposal and with a learned one."""
    toy = sbn_toy(kind)
    estimates = np.exp(multi_sample_bound(toy.samples(2).log_weights))
    assert np.log(toy.probabilities(2) @ estimates) == pytest.approx(toy.log_likelihood, abs=1e-12)


def test_any_f_has_an_unbiased_gradient():
    """`from_weights`: f need not be P / Q. Here log f = a g(h), with a parameter a, and Q has its own."""
    values = jnp.array([0.3, -1.0, 2.0, 0.5])
    sets = np.indices((4, 4)).reshape(2, -1)

    def record(parameters):
        log_proposal = jax.nn.log_softmax(parameters["logits"])[sets]
        return ImportanceSamples.from_weights(parameters["scale"] * values[sets], log_proposal)

    def objective(parameters):
        samples = record(parameters)
        bound = jax.nn.logsumexp(parameters["scale"] * values[sets], axis=0) - jnp.log(2)
        return jnp.exp(jnp.sum(samples.log_proposal, axis=0)) @ bound

    def expected_surrogate(parameters):
        samples = record(parameters)
        return jax.lax.stop_gradient(jnp.exp(jnp.sum(samples.log_proposal, axis=0))) @ VIMCO()(samples).surrogate

    parameters = {"scale": jnp.array(0.8), "logits": jnp.array([0.1, 0.7, -0.5, 0.0])}
    exact, expected = (jax.jit(jax.grad(f))(parameters) for f in (objective, expected_surrogate))
    for name in parameters:
        np.testing.assert_allclose(expected[name], exact[name], rtol=0, atol=1e-12)
