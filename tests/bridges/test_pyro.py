"""VIMCO inside Pyro: exact gradients where Pyro's own objective gives none, and messages of refusals.

No test here averages over draws: a handler replaces the sampler by every set of K samples.
"""

import math
from collections import defaultdict

import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install ".[torch]"')
pyro = pytest.importorskip("pyro", reason='Pyro is not installed: pip install ".[pyro]"')

import pyro.distributions as dist  # noqa: E402
from pyro import poutine  # noqa: E402
from pyro.infer import SVI, RenyiELBO, Trace_ELBO  # noqa: E402
from pyro.infer.autoguide import AutoDiagonalNormal, AutoNormal, AutoNormalMessenger  # noqa: E402
from toys import (  # noqa: E402
    BITS,
    CATEGORIES,
    DATA,
    ROWS,
    N,
    X,
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
    toy_logits,
    toy_parameters,
)

import vimco  # noqa: E402
from vimco.pyro import MonteCarloObjective  # noqa: E402
from vimco.signals import arithmetic_mean_of_others, left_out  # noqa: E402

torch.set_num_threads(1)

UNBIASED = {
    "naive": vimco.Naive(),
    "vimco": vimco.VIMCO(),
    "vimco-arithmetic": vimco.VIMCO(arithmetic_mean_of_others),
    "vimco-leave-one-out": vimco.VIMCO(left_out),
}


@pytest.fixture(autouse=True)
def _empty_parameter_store():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


class Drawing(poutine.messenger.Messenger):
    """A handler that replaces random draws by `latents`: row after row, or all at once for a vectorised run."""

    def __init__(self, latents, together=False):
        super().__init__()
        self.latents, self.together = latents, together
        self.number = defaultdict(int)

    def _pyro_sample(self, msg):
        name = msg["name"]
        if name in self.latents and msg["value"] is None:
            msg["value"] = self.latents[name] if self.together else self.latents[name][self.number[name]]
            msg["done"] = True
            self.number[name] += 1


def value_and_gradient(objective, latents, params, model, guide, *args):
    """Return value and gradient of the objective whose K samples are `latents`."""
    with Drawing(latents, objective.vectorize_particles):
        value = objective.differentiable_loss(model, guide, *args)
    return value.detach(), gradients(value, params)


def expected_gradient(objective, sets, log_q, params, model, guide, *args):
    """Return the gradient that the objective gives, summed over all sets of samples under their probability."""
    total = 0.0
    for one_set, probability in zip(sets, log_q.sum(0).exp().detach(), strict=True):
        with Drawing(one_set, objective.vectorize_particles):
            total = total + probability * objective.differentiable_loss(model, guide, *args)
    return gradients(total, params)


# --- three Bernoulli latents; the parameters are plain leaves, which Pyro takes as well


def toy_programs(params):
    def model():
        h = pyro.sample("h", dist.Bernoulli(logits=params["prior"]).to_event(1))
        pyro.sample("x", dist.Bernoulli(logits=toy_logits(params, h)).to_event(1), obs=X)

    def guide():
        pyro.sample("h", dist.Bernoulli(logits=params["proposal"]).to_event(1))

    return model, guide


def toy_sets(params, K):
    h = BITS[sets_of_samples(len(BITS), K)]
    log_q = toy_log_proposal(params, h)
    return [{"h": h[:, s]} for s in range(h.shape[1])], toy_log_joint(params, h) - log_q, log_q


@pytest.mark.parametrize(
    ("name", "K", "vectorize"),
    [*((name, 2, False) for name in UNBIASED), ("vimco", 2, True), ("naive", 1, False), ("naive", 1, True)],
)
def test_the_expected_gradient_is_exact(name, K, vectorize):
    params = toy_parameters()
    sets, log_weights, log_q = toy_sets(params, K)
    objective = MonteCarloObjective(UNBIASED[name], num_samples=K, vectorize_particles=vectorize)
    if vectorize and K == 1:
        sets = [{"h": one_set["h"][0]} for one_set in sets]
    expected = expected_gradient(objective, sets, log_q, params, *toy_programs(params))
    assert_close(expected, exact_gradient(params, log_weights, log_q))


def test_pyros_own_objective_gives_the_guide_no_gradient():
    """`RenyiELBO(alpha=0)` has the same value, and a gradient of exactly zero for every set of samples."""
    params = toy_parameters()
    model, guide = toy_programs(params)
    theirs = RenyiELBO(alpha=0, num_particles=2)
    sets, log_weights, log_q = toy_sets(params, 2)
    exact = exact_gradient(params, log_weights, log_q)
    assert exact["proposal"].norm() > 0.1

    def registered(program):  # RenyiELBO looks for parameter sites before it computes a gradient
        def run():
            pyro.param("unused", torch.zeros(()))
            return program()

        return run

    for one_set in sets[1::13]:
        for leaf in params.values():
            leaf.grad = None
        with Drawing(one_set):
            value = theirs.loss_and_grads(registered(model), guide)
        assert params["proposal"].grad is None or params["proposal"].grad.abs().max() == 0
        assert params["slope"].grad.abs().max() > 0
        ours, gradient = value_and_gradient(MonteCarloObjective(vimco.VIMCO(), 2), one_set, params, model, guide)
        assert value == pytest.approx(ours.item(), rel=1e-12)
        assert gradient["proposal"].abs().max() > 0


def test_rws_follows_its_own_rule():
    """Eq. 11, through the plate as well: all latents are discrete, so nothing is refused."""
    params = toy_parameters()
    h = BITS[torch.tensor([1, 6, 4])]
    objective = MonteCarloObjective(vimco.RWS(), num_samples=3)
    value, gradient = value_and_gradient(objective, {"h": h}, params, *toy_programs(params))
    log_weights = (toy_log_joint(params, h) - toy_log_proposal(params, h)).detach()
    weights = torch.softmax(log_weights, 0)
    torch.testing.assert_close(value, -(torch.logsumexp(log_weights, 0) - math.log(3)))
    score = h - torch.sigmoid(params["proposal"].detach())
    torch.testing.assert_close(gradient["proposal"], -weights @ score)


def test_without_a_guide_the_prior_is_the_proposal():
    params = toy_parameters()
    model, _ = toy_programs(params)
    h = BITS[sets_of_samples(len(BITS), 2)]
    log_prior = bernoulli(h, params["prior"]).sum(-1)
    sets = [{"h": h[:, s]} for s in range(h.shape[1])]
    expected = expected_gradient(MonteCarloObjective(vimco.VIMCO(), 2), sets, log_prior, params, model, lambda: None)
    assert_close(expected, exact_gradient(params, toy_log_joint(params, h) - log_prior, log_prior))
    with pytest.raises(vimco.UsageError, match="its own proposal"):
        MonteCarloObjective(vimco.RWS(), 2).loss(model, lambda: None)


def test_the_three_entry_points_agree():
    params = toy_parameters()
    programs = toy_programs(params)
    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=2)
    latents = {"h": BITS[torch.tensor([3, 5])]}
    value, gradient = value_and_gradient(objective, latents, params, *programs)
    with Drawing(latents):
        assert objective.loss(*programs) == value
    with Drawing(latents):
        assert objective.loss_and_grads(*programs) == value
    assert_close({name: leaf.grad for name, leaf in params.items()}, gradient)


def test_svi_learns_the_posterior():
    """Through the real entry point, with parameters in Pyro's store."""
    start = toy_parameters()

    def model():
        toy_programs({name: pyro.param(name, start[name].detach().clone()) for name in ("prior", "slope")})[0]()

    def guide():
        pyro.sample("h", dist.Bernoulli(logits=pyro.param("proposal", start["proposal"].detach().clone())).to_event(1))

    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=5, vectorize_particles=True)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), loss=objective)
    losses = [svi.step() for _ in range(150)]
    assert sum(losses[-30:]) / 30 < sum(losses[:10]) / 10 - 0.5
    assert math.isfinite(svi.evaluate_loss())


# --- Gaussian and Bernoulli latents together


@pytest.mark.parametrize("name", UNBIASED)
def test_gaussian_and_bernoulli_latents_mix(name):
    """With the Gaussian noise ε held fixed, the sum over the Bernoulli latents alone is already exact."""
    params = parameters(prior=0.2, noise=0.8, mean=-0.3, width=0.6, slope=0.9)
    x = torch.tensor(1.2, dtype=torch.float64)

    def model():
        z = pyro.sample("z", dist.Normal(params["prior"], 1.0))
        h = pyro.sample("h", dist.Bernoulli(logits=0.5 * z))
        pyro.sample("x", dist.Normal(z + 2 * h, params["noise"]), obs=x)

    def guide():
        z = pyro.sample("z", dist.Normal(params["mean"], params["width"]))
        pyro.sample("h", dist.Bernoulli(logits=params["slope"] * z + x))

    noise = torch.tensor([0.7, -1.1, 0.2], dtype=torch.float64)
    h = sets_of_samples(2, 3).double()
    z = (params["mean"] + params["width"] * noise)[:, None].expand(h.shape)
    log_score = dist.Bernoulli(logits=params["slope"] * z + x).log_prob(h)
    log_weights = (
        dist.Normal(params["prior"], 1.0).log_prob(z)
        + dist.Bernoulli(logits=0.5 * z).log_prob(h)
        + dist.Normal(z + 2 * h, params["noise"]).log_prob(x)
        - dist.Normal(params["mean"], params["width"]).log_prob(z)
        - log_score
    )
    sets = [{"h": h[:, s], "z": z[:, s]} for s in range(h.shape[1])]
    expected = expected_gradient(MonteCarloObjective(UNBIASED[name], 3), sets, log_score, params, model, guide)
    assert_close(expected, exact_gradient(params, log_weights, log_score))
    with pytest.raises(vimco.UsageError, match="use VIMCO for mixed latents"):
        MonteCarloObjective(vimco.RWS(), 3).loss(model, guide)


def test_samples_may_differ_in_their_latents():
    """A Gaussian latent exists where h = 1. With its noise held fixed, the sum over h is exact."""
    params = parameters(prior=0.2, noise=0.8, mean=-0.3, width=0.6, logit=0.4)
    x = torch.tensor(1.2, dtype=torch.float64)

    def program(of_h, of_z):
        h = pyro.sample("h", of_h)
        return h, pyro.sample("z", of_z) if h.item() == 1 else torch.zeros_like(x)

    def model():
        h, z = program(dist.Bernoulli(logits=torch.zeros_like(x)), dist.Normal(params["prior"], 1.0))
        pyro.sample("x", dist.Normal(z + 2 * h, params["noise"]), obs=x)

    def guide():
        program(dist.Bernoulli(logits=params["logit"]), dist.Normal(params["mean"], params["width"]))

    z = params["mean"] + params["width"] * torch.tensor([0.7, -1.1], dtype=torch.float64)
    h = sets_of_samples(2, 2).double()
    log_score = dist.Bernoulli(logits=params["logit"]).log_prob(h)
    ratio = dist.Normal(params["prior"], 1.0).log_prob(z) - dist.Normal(params["mean"], params["width"]).log_prob(z)
    log_weights = (
        math.log(0.5) + dist.Normal(h * (z[:, None] + 2), params["noise"]).log_prob(x) + h * ratio[:, None] - log_score
    )
    sets = [{"h": h[:, s], "z": z[h[:, s] == 1]} for s in range(h.shape[1])]
    expected = expected_gradient(MonteCarloObjective(vimco.VIMCO(), 2), sets, log_score, params, model, guide)
    assert_close(expected, exact_gradient(params, log_weights, log_score))


def test_pathwise_takes_a_guide_whose_latents_are_all_reparameterised():
    """One normal latent: the gradient is VIMCO's, which has no score to give; a discrete latent is refused."""
    params = parameters(mean=0.2)
    x = torch.tensor(0.7, dtype=torch.float64)

    def model():
        pyro.sample("x", dist.Normal(pyro.sample("z", dist.Normal(torch.zeros_like(x), 1.0)), 1.0), obs=x)

    def guide():
        pyro.sample("z", dist.Normal(params["mean"], 1.0))

    latents = {"z": params["mean"] + torch.tensor([0.7, -1.1], dtype=torch.float64)}
    ours, theirs = (
        value_and_gradient(MonteCarloObjective(estimator, 2), latents, params, model, guide)
        for estimator in (vimco.Pathwise(), vimco.VIMCO())
    )
    assert_close(ours[1], theirs[1])
    assert abs(float(ours[1]["mean"])) > 1e-3
    with pytest.raises(vimco.UsageError, match="needs latents through which gradients flow"):
        MonteCarloObjective(vimco.Pathwise(), 2).loss(*toy_programs(toy_parameters()))


@pytest.mark.parametrize("auto", [AutoNormal, AutoDiagonalNormal])
def test_automatic_guides_have_the_density_that_pyro_gives_them(auto):
    """At K = 1 the bound is the ELBO; auxiliary sites and changes of variable are counted alike."""

    def model():
        rate = pyro.sample("rate", dist.Gamma(2.0, 1.0))
        with pyro.plate("data", 3):
            pyro.sample("x", dist.Poisson(rate), obs=torch.tensor([1.0, 4.0, 2.0]))

    guide = auto(model)
    guide()
    values = []
    for objective in (Trace_ELBO(), MonteCarloObjective(vimco.Naive(), num_samples=1)):
        pyro.set_rng_seed(3)
        values.append(objective.loss(model, guide))
    assert values[0] == pytest.approx(values[1], rel=1e-6)


# --- mini-batches: a plate of N = 5 examples, of which B = 2 are in use, each with a categorical latent


def batch_programs(params, annealing=1.0):
    def model():
        with pyro.plate("data", N, subsample_size=2) as rows:
            h = pyro.sample("h", dist.Categorical(logits=params["weights"]))
            with pyro.plate("pixels", 3, dim=-2) as pixels, poutine.scale(scale=annealing):
                logits = params["columns"][h, pixels[:, None]]
                pyro.sample("x", dist.Bernoulli(logits=logits), obs=DATA[rows].T)

    def guide():
        with pyro.plate("data", N, subsample_size=2) as rows:
            pyro.sample("h", dist.Categorical(logits=DATA[rows] @ params["encoder"]))

    return model, guide


@pytest.mark.parametrize("vectorize", [False, True])
def test_a_plate_is_normalised_per_example_and_n_over_b_scales_the_bound(vectorize):
    params = batch_parameters()
    sets = sets_of_samples(len(CATEGORIES), 2)
    h = CATEGORIES[sets]  # (K, number of sets, B)
    log_prior, log_likelihood, log_q = batch_terms(params, h)
    bound = torch.logsumexp(log_prior + log_likelihood - log_q, dim=0) - math.log(2)
    objective = MonteCarloObjective(vimco.VIMCO(), 2, plate="data", vectorize_particles=vectorize, max_plate_nesting=2)
    programs = batch_programs(params)
    total = 0.0
    for number, probability in enumerate(log_q.sum((0, 2)).exp().detach()):
        with Drawing({"h": h[:, number][:, None] if vectorize else h[:, number]}, vectorize), Rows():
            value = objective.differentiable_loss(*programs)
        torch.testing.assert_close(value, -N / 2 * bound[number].sum())
        total = total + probability * value
    assert_close(gradients(total, params), batch_exact_gradient(params, h, scale=N / 2))


class Rows(poutine.messenger.Messenger):
    """A handler that makes the plate choose `ROWS`."""

    def _pyro_sample(self, msg):
        if msg["name"] == "data":
            msg["value"] = ROWS


def test_a_scale_in_the_model_is_a_power_of_its_factor():
    """An inverse temperature on the likelihood, inside a subsampled plate whose N/B must not reach the weights."""
    params = batch_parameters()
    h = CATEGORIES[torch.tensor([1, 7])]
    log_prior, log_likelihood, log_q = batch_terms(params, h)
    bound = torch.logsumexp(log_prior + 0.25 * log_likelihood - log_q, dim=0) - math.log(2)
    objective = MonteCarloObjective(vimco.VIMCO(), 2, plate="data")
    with Rows():
        value, _ = value_and_gradient(objective, {"h": h}, params, *batch_programs(params, annealing=0.25))
    torch.testing.assert_close(value, -N / 2 * bound.sum().detach())


@pytest.mark.parametrize("vectorize", [False, True])
def test_all_samples_see_the_same_subsample(vectorize):
    """The latent is irrelevant here, so the bound is log P of one row exactly if all K samples saw that row."""
    data = torch.linspace(-3, 3, 40)

    def model():
        with pyro.plate("data", 40, subsample_size=1) as rows:
            pyro.sample("h", dist.Bernoulli(0.5))
            pyro.sample("x", dist.Normal(0.0, 1.0), obs=data[rows])

    def guide():
        with pyro.plate("data", 40, subsample_size=1):
            pyro.sample("h", dist.Bernoulli(0.5))

    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=6, plate="data", vectorize_particles=vectorize)
    rows = dist.Normal(0.0, 1.0).log_prob(data)
    bounds = torch.tensor([-objective.loss(model, guide) / 40 for _ in range(5)])
    assert len(set(bounds.tolist())) > 1
    assert ((rows - bounds[:, None]).abs().min(dim=1).values < 1e-5).all()


# --- weights of zero, and masks


@pytest.mark.parametrize("name", UNBIASED)
def test_impossible_samples_take_no_part(name):
    params = parameters(prior=0.2, proposal=-0.3)

    def model(impossible):
        h = pyro.sample("h", dist.Bernoulli(logits=params["prior"]))
        pyro.factor("x", torch.where(h == impossible, -math.inf, -1.0))

    def guide(impossible):
        pyro.sample("h", dist.Bernoulli(logits=params["proposal"]))

    def with_latents(latents, impossible):
        objective = MonteCarloObjective(UNBIASED[name], num_samples=3)
        latents = {"h": torch.tensor(latents, dtype=torch.float64)}
        return value_and_gradient(objective, latents, params, model, guide, impossible)

    value, gradient = with_latents([0.0, 1.0, 1.0], 0)
    log_f = bernoulli(1.0, params["prior"]) - 1.0 - bernoulli(1.0, params["proposal"])
    torch.testing.assert_close(value, -(log_f.detach() + math.log(2 / 3)))
    torch.testing.assert_close(gradient["prior"], -torch.sigmoid(-params["prior"].detach()))
    assert torch.isfinite(gradient["proposal"])

    value, gradient = with_latents([1.0, 1.0, 1.0], 1)
    assert value == math.inf
    assert_close(gradient, {name: torch.zeros_like(leaf) for name, leaf in params.items()})


def test_masks_leave_observations_and_whole_examples_out():
    """Row 1 of three is padding, and one pixel of row 2 is missing; one mask by handler, one by distribution."""
    params = batch_parameters()
    pixels = torch.tensor([[True, True, True], [True, True, True], [True, False, True]])
    rows = torch.tensor([True, False, True])
    x = DATA[:3]

    def model():
        with pyro.plate("data", 3), poutine.mask(mask=rows):
            h = pyro.sample("h", dist.Categorical(logits=params["weights"]))
            with pyro.plate("pixels", 3, dim=-2):
                logits = params["columns"][h].T
                pyro.sample("x", dist.Bernoulli(logits=logits).mask(pixels.T), obs=x.T)
            pyro.deterministic("twice", 2 * h, event_dim=0)

    def guide():
        with pyro.plate("data", 3), poutine.mask(mask=rows):
            pyro.sample("h", dist.Categorical(logits=x @ params["encoder"]))

    h = torch.tensor([[0, 1, 2], [2, 0, 1]])
    log_prior = torch.log_softmax(params["weights"], 0)[h]
    log_q = torch.log_softmax(x @ params["encoder"], -1).expand(2, 3, 3).gather(-1, h[..., None])[..., 0]
    log_joint = log_prior + (bernoulli(x, params["columns"][h]) * pixels).sum(-1)
    estimate = vimco.VIMCO()(vimco.ImportanceSamples(log_joint[:, rows], log_q[:, rows]))

    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=2, plate="data")
    value, gradient = value_and_gradient(objective, {"h": h}, params, model, guide)
    torch.testing.assert_close(value, -estimate.bound.sum())
    assert_close(gradient, gradients(-estimate.surrogate.sum(), params))


# --- refusals


def latent(name="h", **kwargs):
    return pyro.sample(name, dist.Bernoulli(0.5), **kwargs)


def in_plate(*names, subsample_size=None):
    def program():
        with pyro.plate("data", 3, subsample_size=subsample_size):
            for name in names:
                latent(name)

    return program


def outside(name, observed=False):
    def program():
        latent(name, obs=torch.tensor(1.0) if observed else None)
        in_plate("h")()

    return program


def masked():
    with poutine.mask(mask=torch.tensor(True)):
        latent()


def rows_masked(*values):
    def program():
        with pyro.plate("data", 2), poutine.mask(mask=torch.tensor(values)):
            latent()

    return program


def enumerated():
    latent(infer={"enumerate": "parallel"})


def observing():
    latent()
    pyro.factor("correction", torch.tensor(0.3), has_rsample=False)


def scaled():
    with poutine.scale(scale=0.1):
        latent()


def loop():
    for i in pyro.plate("data", 2):
        latent(f"h{i}")


def wide():
    pyro.sample("h", dist.Bernoulli(0.5).expand([4]))


@pytest.mark.parametrize(
    ("model", "guide", "plate", "sentence"),
    [
        (enumerated, lambda: None, None, "'h' is marked for enumeration"),
        (latent, enumerated, None, "'h' of the guide is marked for enumeration"),
        (outside("g"), outside("g"), "data", "Latent 'g' lies outside plate 'data'"),
        (outside("g"), in_plate("h"), "data", "Latent 'g' lies outside plate 'data'"),
        (outside("x", observed=True), in_plate("h"), "data", "Site 'x' lies outside plate 'data'"),
        (in_plate("h"), in_plate("h"), "rows", "There is no plate 'rows' in the model; it has 'data'"),
        (in_plate("h", subsample_size=2), in_plate("h", subsample_size=2), None, "subsamples 2 of 3.*plate='data'"),
        (loop, loop, "data", "Plate 'data' is a loop"),
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
        (lambda: latent(obs=torch.tensor(1.0)), latent, None, "The guide draws 'h', which the model observes"),
        (wide, latent, None, r"batch shape \(\) in the guide and \(4,\) in the model"),
        (lambda: None, lambda: None, None, "The model has no sample site"),
        (latent, AutoNormalMessenger(latent), None, "A guide that is a Messenger"),
    ],
)
def test_what_cannot_be_right_is_refused(model, guide, plate, sentence):
    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=2, plate=plate)
    with pytest.raises(vimco.UsageError, match=f"(?s){sentence}"):
        objective.loss(model, guide)


def test_a_program_that_does_not_broadcast_over_the_samples_is_refused():
    """Indexing by `h` puts an axis between samples and pixels: summing over it would make wrong weights."""
    table = torch.zeros(2, 4)

    def model():
        with pyro.plate("data", 3):
            h = latent()
            with pyro.plate("pixels", 4, dim=-2):
                pyro.sample("x", dist.Normal(table[h.long()].transpose(-1, -2), 1.0), obs=torch.zeros(4, 3))

    one_by_one, together = (MonteCarloObjective(vimco.VIMCO(), 2, vectorize_particles=v) for v in (False, True))
    assert math.isfinite(one_by_one.loss(model, in_plate("h")))
    with pytest.raises(vimco.UsageError, match=r"2 on axis -3: .* vectorize_particles=False"):
        together.loss(model, in_plate("h"))


def test_the_samples_plate_is_not_offered_as_a_plate_of_examples():
    objective = MonteCarloObjective(vimco.VIMCO(), num_samples=2, plate="rows", vectorize_particles=True)
    with pytest.raises(vimco.UsageError, match="it has none"):
        objective.loss(latent, latent)


@pytest.mark.parametrize(
    ("estimator", "K", "sentence"),
    [
        (vimco.NVIL(), 2, r"NVIL carries state \(a learned baseline, .*TraceGraph_ELBO"),
        (vimco.RWS(sleep=True), 2, "an observed program cannot dream"),
        (vimco.VIMCO(), 0, "at least one sample"),
    ],
)
def test_estimators_that_need_more_than_one_set_of_samples_are_refused(estimator, K, sentence):
    with pytest.raises(vimco.UsageError, match=sentence):
        MonteCarloObjective(estimator, num_samples=K)


def test_importance_sampled_em_refuses_a_guide():
    """It draws every latent from the prior, so it would leave the guide untrained."""
    objective = MonteCarloObjective(vimco.ImportanceSampledEM(), num_samples=2)
    with pytest.raises(vimco.UsageError, match="the guide proposes 'h': leave the guide empty, or use RWS"):
        objective.loss(latent, latent)
    assert objective.loss(latent, lambda: None) == 0  # nothing is observed


@pytest.mark.parametrize("vectorized", [False, True])
def test_a_parameter_in_model_and_guide_is_refused_by_rws(vectorized):
    """It has a rule for each of the two; VIMCO follows the gradient of one bound."""
    pyro.clear_param_store()

    def program():
        return pyro.sample("h", dist.Bernoulli(logits=pyro.param("shared", torch.tensor(0.3))))

    def model():
        pyro.sample("x", dist.Bernoulli(0.2 + 0.5 * program()), obs=torch.tensor(1.0))

    options = {"num_samples": 2} | ({"vectorize_particles": True, "max_plate_nesting": 1} if vectorized else {})
    assert math.isfinite(MonteCarloObjective(vimco.VIMCO(), **options).loss(model, program))
    with pytest.raises(vimco.UsageError, match="they may not share parameters"):
        MonteCarloObjective(vimco.RWS(), **options).loss(model, program)


def test_vimco_with_one_sample_is_refused_in_the_words_of_the_core():
    with pytest.raises(vimco.UsageError, match="needs K >= 2; got K = 1"):
        MonteCarloObjective(vimco.VIMCO(), num_samples=1).loss(latent, latent)
