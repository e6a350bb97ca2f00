"""VIMCO for PyTorch: the numbers of the core, and exact gradients."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install ".[torch]"')

from toys import (  # noqa: E402
    BITS,
    CATEGORIES,
    assert_close,
    batch_exact_gradient,
    batch_parameters,
    batch_terms,
    bernoulli,
    exact_gradient,
    gradients,
    parameters,
    sets_of_samples,
    toy_log_joint,
    toy_log_proposal,
    toy_parameters,
)

import vimco  # noqa: E402
import vimco.torch  # noqa: E402
from vimco import signals  # noqa: E402
from vimco.bridges import check_estimator  # noqa: E402

torch.set_num_threads(1)

UNBIASED = {
    "naive": vimco.Naive(),
    "vimco": vimco.VIMCO(),
    "vimco-arithmetic": vimco.VIMCO(signals.arithmetic_mean_of_others),
    "vimco-leave-one-out": vimco.VIMCO(signals.left_out),
    "vimco-scaled": vimco.VIMCO(vimco.ScaledMean(0.3)),
    "ovis-asymptotic": vimco.AsymptoticOVIS(0.0),
}
OTHER_OBJECTIVES = {
    "renyi": vimco.RenyiVIMCO(0.4),
    "ovis-one": vimco.AsymptoticOVIS(1.0),
    "rloo": vimco.RLOO(),
    "vimco-subsets": vimco.SubsetAverage(vimco.VIMCO(), 2, 2),
}
ESTIMATORS = {
    **UNBIASED,
    **OTHER_OBJECTIVES,
    "rws": vimco.RWS(),
    "rws-centred": vimco.RWS(centred=True),
    "tvo": vimco.TVO((0.0, 0.1, 0.5)),
}
SIGNALS = [
    signals.multi_sample_bound,
    signals.normalized_weights,
    signals.effective_sample_size,
    signals.naive_signal,
    signals.vimco_signal,
    signals.geometric_mean_of_others,
    signals.arithmetic_mean_of_others,
    signals.left_out,
    signals.rloo_signal,
    signals.jackknife_bound,
]


def with_options(signal, **options):
    """Return the signal with some of its options."""

    def named(log_weights):
        return signal(log_weights, **options)

    named.__name__ = signal.__name__
    return named


SIGNALS += [
    with_options(signals.renyi_bound, order=0.4),
    with_options(signals.asymptotic_ovis_signal, gamma=0.7),
    with_options(signals.wake_weights, centred=True),
    with_options(signals.thermodynamic_bound, partition=(0.0, 0.3)),
]
PRECISIONS = {"float32": 2e-5, "float64": 1e-12}


def hostile_log_weights(shape, dtype):
    """Return weights far apart; one example has a zero weight, one a single positive weight, one only zeros."""
    log_weights = np.random.default_rng(0).normal(-100, 5, shape).astype(dtype)
    if len(shape) > 1:
        log_weights[0, 0] = -math.inf
        log_weights[1:, 1] = -math.inf
        log_weights[:, 2] = -math.inf
    return log_weights


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("shape", [(2,), (4, 3), (5, 4, 2), (1500, 3)])
@pytest.mark.parametrize("signal", SIGNALS, ids=lambda s: s.__name__)
def test_signals_give_the_same_numbers_as_on_jax(float64, signal, shape, dtype):
    log_weights = hostile_log_weights(shape, dtype)
    ours = signal(torch.from_numpy(log_weights))
    assert ours.dtype == getattr(torch, dtype)
    tolerance = PRECISIONS[dtype]
    np.testing.assert_allclose(ours, signal(jnp.asarray(log_weights)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(
    ("name", "with_score"),
    [*((name, False) for name in ESTIMATORS), *((name, True) for name in (*UNBIASED, *OTHER_OBJECTIVES))],
)
def test_estimators_give_the_same_numbers_as_on_jax(float64, name, with_score, dtype):
    """Value, bound, signal, effective sample size, and the gradient for each of the inputs."""
    rng = np.random.default_rng(1)
    log_weights = hostile_log_weights((4, 3, 2), dtype)
    log_proposal, log_score = rng.normal(-50, 3, (2, 4, 3, 2)).astype(dtype)
    arrays = (log_weights + log_proposal, log_proposal, *([log_score] if with_score else []))

    def on_jax(arrays):
        estimate = ESTIMATORS[name](vimco.ImportanceSamples(*arrays))
        return jnp.sum(estimate.surrogate), estimate

    (_, theirs), their_gradients = jax.value_and_grad(on_jax, has_aux=True)(tuple(map(jnp.asarray, arrays)))

    tensors = [torch.tensor(values, requires_grad=True) for values in arrays]
    options = {"log_score": tensors[2]} if with_score else {}
    ours = vimco.torch.estimate(tensors[0], tensors[1], ESTIMATORS[name], **options)
    our_gradients = torch.autograd.grad(ours.surrogate.sum(), tensors)

    tolerance = PRECISIONS[dtype] * 50  # products of numbers around 50
    for field in ("surrogate", "bound", "learning_signal", "effective_sample_size", "signal_rms"):
        actual, expected = getattr(ours, field).detach(), getattr(theirs, field)
        assert actual.dtype == getattr(torch, dtype)
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance, err_msg=field)
    for actual, expected in zip(our_gradients, their_gradients, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    surrogate = vimco.torch.surrogate(tensors[0], tensors[1], ESTIMATORS[name], **options)
    assert torch.equal(surrogate, ours.surrogate)


def test_partition_by_moments_of_tensors(float64):
    log_weights = np.random.default_rng(0).normal(-80, 3, (6, 4))
    ours = signals.moment_partition(torch.from_numpy(log_weights), 4)
    np.testing.assert_allclose(ours, signals.moment_partition(jnp.asarray(log_weights), 4), atol=1e-7)


def test_what_some_estimators_need_is_given_by_name():
    """Auxiliary weights, attached latents, frozen weights: the numbers of the core, and refusals without them."""
    log_joint, log_proposal, auxiliary = torch.from_numpy(np.random.default_rng(0).normal(-3, 1, (3, 2, 4)))
    cases = [
        (vimco.OVIS(2), {"auxiliary_log_weights": auxiliary}),
        (vimco.Pathwise(), {"latents_attached": True}),
        (vimco.DReG(), {"frozen_log_weights": log_joint - log_proposal}),
        (vimco.RWSDReG(), {"frozen_log_weights": log_joint - log_proposal}),
    ]
    for estimator, fields in cases:
        ours = vimco.torch.estimate(log_joint, log_proposal, estimator, **fields)
        arrays = {name: value if value is True else jnp.asarray(value) for name, value in fields.items()}
        theirs = estimator(vimco.ImportanceSamples(jnp.asarray(log_joint), jnp.asarray(log_proposal), **arrays))
        np.testing.assert_allclose(ours.surrogate, theirs.surrogate, rtol=1e-5)
        with pytest.raises(vimco.UsageError, match=f"{type(estimator).__name__} needs .*, which a program here"):
            vimco.torch.estimate(log_joint, log_proposal, estimator)
    for estimator in (vimco.RenyiWarmup(10), vimco.MomentTVO()):
        with pytest.raises(vimco.UsageError, match=r"carries state .* make a new RenyiVIMCO\(order\)"):
            vimco.torch.estimate(log_joint, log_proposal, estimator)


def toy_samples(params, K):
    """Return log P, log Q of every set of K samples, (K, number of sets)."""
    h = BITS[sets_of_samples(len(BITS), K)]
    return toy_log_joint(params, h), toy_log_proposal(params, h)


@pytest.mark.parametrize(("name", "K"), [*((name, 2) for name in UNBIASED), ("vimco", 3), ("naive", 1)])
def test_the_expected_gradient_is_exact(name, K):
    """Three Bernoulli latents; the sets lie along the example axis."""
    params = toy_parameters()
    log_joint, log_q = toy_samples(params, K)
    surrogate = vimco.torch.surrogate(log_joint, log_q, UNBIASED[name])
    expected = gradients(-(log_q.sum(0).exp().detach() * surrogate).sum(), params)
    assert_close(expected, exact_gradient(params, log_joint - log_q, log_q))


def test_a_batch_is_normalised_per_example():
    """Two examples with a categorical latent each; the sets lie on an axis of their own, (K, sets, B)."""
    params = batch_parameters()
    h = CATEGORIES[sets_of_samples(len(CATEGORIES), 2)]
    log_prior, log_likelihood, log_q = batch_terms(params, h)
    surrogate = vimco.torch.surrogate(log_prior + log_likelihood, log_q)
    assert surrogate.shape == h.shape[1:]
    expected = gradients(-(log_q.sum((0, 2)).exp().detach() * surrogate.sum(-1)).sum(), params)
    assert_close(expected, batch_exact_gradient(params, h))


def test_differentiating_the_bound_itself_is_wrong():
    """The derivative of Eq. 4 by autograd leaves out the scores, which the surrogate includes."""
    params = toy_parameters()
    log_joint, log_q = toy_samples(params, 2)
    exact = exact_gradient(params, log_joint - log_q, log_q)
    bound = torch.logsumexp(log_joint - log_q, dim=0)
    wrong = gradients(-(log_q.sum(0).exp().detach() * bound).sum(), params)
    torch.testing.assert_close(wrong["slope"], exact["slope"])
    assert torch.dot(wrong["proposal"], exact["proposal"]) < 0


@pytest.mark.parametrize("name", UNBIASED)
def test_gaussian_and_bernoulli_latents_mix(name):
    """With the Gaussian noise ε held fixed, the sum over the Bernoulli latents alone is already exact."""
    params = parameters(prior=0.2, noise=0.8, mean=-0.3, width=0.6, slope=0.9)
    noise = torch.tensor([0.7, -1.1, 0.2], dtype=torch.float64)
    h = sets_of_samples(2, 3).double()
    z = (params["mean"] + params["width"] * noise)[:, None].expand(h.shape)

    def normal(value, mean, width):
        return -0.5 * ((value - mean) / width) ** 2 - torch.log(width)

    one = torch.ones((), dtype=torch.float64)
    log_score = bernoulli(h, params["slope"] * z + 1.2)
    log_joint = normal(z, params["prior"], one) + bernoulli(h, 0.5 * z) + normal(1.2 * one, z + 2 * h, params["noise"])
    log_proposal = normal(z, params["mean"], params["width"]) + log_score
    surrogate = vimco.torch.surrogate(log_joint, log_proposal, UNBIASED[name], log_score=log_score)
    expected = gradients(-(log_score.sum(0).exp().detach() * surrogate).sum(), params)
    assert_close(expected, exact_gradient(params, log_joint - log_proposal, log_score))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_impossible_samples_give_finite_gradients(name):
    """−inf weights as models make them: a support that a sample has left."""
    logits = torch.tensor([0.2, -0.4, 0.1], requires_grad=True)
    log_q = torch.stack([torch.log_softmax(logits, 0)[h] for h in (torch.tensor([0, 1]), torch.tensor([2, 2]))])
    log_joint = torch.tensor([[-1.0, -math.inf], [-math.inf, -math.inf]])
    estimate = vimco.torch.estimate(log_joint, log_q, ESTIMATORS[name])
    estimate.surrogate.sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert estimate.bound[1] == -math.inf


def test_refusals_are_those_of_the_core():
    zeros = torch.zeros(1, 2)
    cases = [
        (vimco.VIMCO(), zeros, {}),
        (vimco.RWS(), zeros, {}),
        (vimco.RWS(), torch.zeros(2, 2), {"log_score": torch.zeros(2, 2)}),
    ]
    for estimator, values, options in cases:
        with pytest.raises(vimco.UsageError) as ours:
            vimco.torch.surrogate(values, values, estimator, **options)
        array = jnp.asarray(values.numpy())
        with pytest.raises(vimco.UsageError) as theirs:
            estimator(vimco.ImportanceSamples(array, array, array if options else None))
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((torch.zeros(2, 3), torch.zeros(2)), r"must agree in shape, samples first: got \(2, 3\) and \(2,\)"),
        ((torch.zeros(()), torch.zeros(())), "needs a sample axis"),
        ((torch.zeros(2, 3), torch.zeros(2, 3), vimco.NVIL()), "a module, vimco.torch.NVIL"),
        ((torch.zeros(2, 3), torch.zeros(2, 3), vimco.RWS(sleep=True)), "learns from dreams"),
    ],
)
def test_mistakes_get_a_sentence(arguments, sentence):
    with pytest.raises(vimco.UsageError, match=sentence):
        vimco.torch.surrogate(*arguments)


@pytest.mark.parametrize(
    ("estimator", "fields", "sentence"),
    [
        (vimco.RWS(), {"shared_parameters": True}, "they may not share parameters, and f must be P / Q"),
        (
            vimco.OVIS(3),
            {"auxiliary_log_weights": torch.zeros(3)},
            r"of log_joint, \(2, 3\), but for the number of samples",
        ),
        (vimco.OVIS(1), {"auxiliary_log_weights": torch.zeros(4, 3)}, r"there are 4: use OVIS\(4\), or draw as many"),
        (vimco.DReG(), {"frozen_log_weights": torch.zeros(3)}, r"the shape of log_joint, \(2, 3\); got \(3,\)"),
    ],
)
def test_fields_that_do_not_fit_are_refused(estimator, fields, sentence):
    with pytest.raises(vimco.UsageError, match=sentence):
        vimco.torch.surrogate(torch.zeros(2, 3), torch.zeros(2, 3), estimator, **fields)


def test_all_latents_attached_leave_no_score():
    zeros = torch.zeros(2, 3)
    with pytest.raises(vimco.UsageError, match="latents_attached=True says that there are none"):
        vimco.torch.estimate(zeros, zeros, vimco.Pathwise(), log_score=zeros, latents_attached=True)
    log_joint, log_proposal = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    gradients = [
        torch.autograd.grad(vimco.torch.surrogate(log_joint, log_proposal, estimator, **field).sum(), log_proposal)[0]
        for estimator, field in (
            (vimco.Pathwise(), {"latents_attached": True}),
            (vimco.VIMCO(), {"latents_attached": True}),
            (vimco.VIMCO(), {"log_score": torch.zeros(3, 4)}),
        )
    ]
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[1], gradients[2])
    with pytest.raises(vimco.UsageError, match="RWS holds its samples constant"):
        vimco.torch.surrogate(log_joint, log_proposal, vimco.RWS(), latents_attached=True)


def test_what_is_no_estimator_is_refused():
    """By the check itself: in the tests the annotations refuse them earlier."""
    for other in (vimco.VIMCO, "vimco", vimco.torch.NVIL()):
        with pytest.raises(vimco.UsageError, match=r"such as vimco\.VIMCO\(\); got"):
            check_estimator(other, "use another")


# --- learned baselines


def copied_network(core, dtype=torch.float64):
    """Return the core's network as a module, weight by weight."""
    network = vimco.torch.BaselineNetwork(torch.tensor(np.array(core.centre.mean), dtype=dtype), 4)
    with torch.no_grad():
        network.hidden.weight.copy_(torch.tensor(np.array(core.hidden_weight.T)))
        network.hidden.bias.copy_(torch.tensor(np.array(core.hidden_bias)))
        network.output.weight.copy_(torch.tensor(np.array(core.output_weight))[None])
    return network


@pytest.mark.parametrize("kind", ["NVIL", "LearnedVIMCO"])
@pytest.mark.parametrize("K", [1, 3])
def test_learned_baselines_follow_the_core_from_update_to_update(float64, kind, K):
    rng = np.random.default_rng(2)
    network = vimco.BaselineNetwork(jax.random.key(0), jnp.asarray([0.3, 0.6]), 4)
    network = eqx.tree_at(lambda n: n.output_weight, network, jnp.asarray(rng.normal(size=4)))
    core = getattr(vimco, kind)(network)
    ours = getattr(vimco.torch, kind)(copied_network(network)).double()
    for update in range(4):
        log_joint, log_proposal = rng.normal(-80, 9, (K, 5)), rng.normal(-20, 2, (K, 5))
        if update == 2:
            log_joint[:, 3] = -math.inf
        x = rng.integers(0, 2, (5, 2)).astype(float)

        def on_jax(trained, core=core, arrays=(log_joint, log_proposal), x=x):
            network, log_proposal = trained
            estimator = eqx.tree_at(lambda e: e.input_baseline if kind == "NVIL" else e.network, core, network)
            samples = vimco.ImportanceSamples(jnp.asarray(arrays[0]), log_proposal)
            estimate = estimator(samples, vimco.Batch(jnp.asarray(x)))
            return jnp.sum(estimate.surrogate), estimate

        (_, theirs), their_gradients = jax.value_and_grad(on_jax, has_aux=True)((network, jnp.asarray(log_proposal)))
        tensor = torch.tensor(log_proposal, requires_grad=True)
        estimate = ours(torch.tensor(log_joint), tensor, torch.tensor(x))
        ours.zero_grad()
        estimate.surrogate.sum().backward()
        for field in ("surrogate", "bound", "learning_signal", "residual"):
            np.testing.assert_allclose(getattr(estimate, field).detach(), getattr(theirs, field), rtol=1e-9)
        np.testing.assert_allclose(tensor.grad, their_gradients[1], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ours.network.hidden.weight.grad.T, their_gradients[0].hidden_weight, rtol=1e-9)
        np.testing.assert_allclose(ours.network.output.weight.grad[0], their_gradients[0].output_weight, rtol=1e-9)

        core = core.updated(theirs)
        np.testing.assert_allclose(ours.moments.mean, core.moments.mean, rtol=1e-9)
        np.testing.assert_allclose(ours.moments.variance, core.moments.variance, rtol=1e-9)
        assert int(ours.moments.count) == int(core.moments.count) == update + 1


@pytest.mark.parametrize("kind", [vimco.torch.NVIL, vimco.torch.LearnedVIMCO])
@pytest.mark.parametrize("K", [1, 2])
def test_learned_baselines_are_unbiased(kind, K):
    """Any baseline is, while NVIL's normaliser is 1: its variance is set small, its mean anywhere."""
    params = toy_parameters()
    log_joint, log_q = toy_samples(params, K)
    options = {"scale_sees_batch": False} if kind is vimco.torch.NVIL else {}
    estimator = kind(**options).double().eval()
    estimator.moments.mean.fill_(-3.7)
    estimate = estimator(log_joint, log_q)
    expected = gradients(-(log_q.sum(0).exp().detach() * estimate.surrogate).sum(), params)
    assert_close(expected, exact_gradient(params, log_joint - log_q, log_q))


@pytest.mark.parametrize("options", [{}, {"centred_weights": True}], ids=["", "centred"])
@pytest.mark.parametrize("K", [1, 2])
def test_normaliser_of_nvil_scales_the_whole_coefficient(options, K):
    """At s = 9: nine times the proposal's part is the exact gradient; the model's part is exact."""
    params = toy_parameters()
    log_joint, log_q = toy_samples(params, K)
    estimator = vimco.torch.NVIL(scale_sees_batch=False, **options).double().eval()
    estimator.moments.mean.fill_(-3.7)
    estimator.moments.variance.fill_(81.0)

    def mean_update(**shared):
        estimate = estimator(log_joint, log_q, **shared)
        return gradients(-(log_q.sum(0).exp().detach() * estimate.surrogate).sum(), params)

    exact = exact_gradient(params, log_joint - log_q, log_q)
    whole, parts = mean_update(shared_parameters=True), mean_update()
    assert_close({name: 9 * value for name, value in whole.items()}, exact)
    assert_close(parts | {"proposal": 9 * parts["proposal"]}, exact)


def test_a_baseline_is_used_before_it_is_updated():
    nvil = vimco.torch.NVIL()
    first, second = torch.tensor([[-80.0, -90.0]]), torch.tensor([[-10.0, -10.0]])
    zeros = torch.zeros(1, 2)
    torch.testing.assert_close(nvil(first, zeros).learning_signal, first)
    torch.testing.assert_close(nvil(second, zeros).learning_signal, second + 85.0)
    nvil.eval()
    mean = nvil.moments.mean.clone()
    nvil(first, zeros)
    assert nvil.moments.mean == mean


def test_a_baselines_state_is_saved_with_the_module():
    network = vimco.torch.BaselineNetwork(torch.tensor([0.2, 0.8]))
    assert network.hidden.out_features == 100
    nvil = vimco.torch.NVIL(network)
    x = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    assert torch.equal(network(x), torch.zeros(2))
    nvil(torch.tensor([[-5.0, -9.0]]), torch.zeros(1, 2), x)
    state = nvil.state_dict()
    assert {"moments.mean", "moments.variance", "moments.count", "network.mean"} <= set(state)
    copy = vimco.torch.NVIL(vimco.torch.BaselineNetwork(torch.zeros(2)))
    copy.load_state_dict(state)
    assert copy.moments.mean == -7.0


@pytest.mark.parametrize(
    ("network", "observation", "sentence"),
    [
        (torch.nn.Linear(2, 1), None, "looks at the data"),
        (torch.nn.Linear(2, 1), torch.zeros(3, 2), r"of shape \(3,\); it gave \(3, 1\)"),
    ],
)
def test_a_network_that_cannot_serve_is_refused(network, observation, sentence):
    with pytest.raises(vimco.UsageError, match=sentence):
        vimco.torch.NVIL(network)(torch.zeros(2, 3), torch.zeros(2, 3), observation)
