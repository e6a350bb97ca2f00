"""Every estimator with every family of models, proposal and K: it works, or is refused before anything is written."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from enumeration import SBN_KINDS, copies, example_of, sbn_model

import vimco
from vimco import RunConfig, UsageError, named_estimator
from vimco.estimators import ESTIMATORS
from vimco.models import attention_model, gaussian_model, structured_sbn
from vimco.samples import Keys, samples_for

PLACES = ("attention-prior", "attention-learned")
MIXED_LAYERS = ("mixed-prior", "mixed-learned")  # binary and deterministic units
OF_BITS = (*SBN_KINDS, *MIXED_LAYERS)
KINDS = (*OF_BITS, "gaussian", *PLACES)
LEARNED = ("generative", "structured-learned", "mixed-learned", "attention-learned")
PRIOR = ("structured-prior", "mixed-prior", "attention-prior")
PACKAGED = set(ESTIMATORS)  # before tests of plugins add names
EVERY = {(kind, K): None for kind in KINDS for K in (1, 2)}


def at_one(message, kinds=KINDS):
    return {(kind, 1): message for kind in kinds}


def on(kinds, message):
    return {(kind, K): message for kind in kinds for K in (1, 2)}


NO_LAYERS = on(
    ["gaussian", *PLACES], "needs the layers of a binary proposal, one by one, and the model offers none"
) | on(MIXED_LAYERS, "has deterministic ones. Use an estimator such as VIMCO")
MIXED_LATENTS = "use VIMCO for mixed latents"
SHARED_PRIOR = on(PRIOR, "cannot train a prior that is its own proposal: use VIMCO or NVIL")
NO_DREAMS = SHARED_PRIOR | on(["gaussian"], "needs dreams, draws from the model itself, and the model offers none")
WAKE = at_one("mean zero at K = 1", LEARNED) | SHARED_PRIOR | on(["gaussian"], MIXED_LATENTS)
NOT_FROZEN = on((*OF_BITS, *PLACES), "needs reparameterised latents, and log f with its parameters held constant")
NO_LIKELIHOOD = on(["gaussian"], "needs log P(x | h) by itself, and the model offers none")
TWO = at_one("needs K >= 2; got K = 1")
AT_LEAST_50 = "it needs K >= 50; got K ="
# Refused combinations, with a part of the message. All others, and estimators that are not listed, must work.
REFUSED = {
    "nvil local-signals=true": {**{(kind, 2): "goes with K = 1; got K = 2" for kind in SBN_KINDS}, **NO_LAYERS},
    "vimco": TWO,
    "vimco-arithmetic": TWO,
    "vimco-leave-one-out": TWO,
    "vimco-scaled": TWO,
    "renyi": TWO,
    "renyi-warmup": TWO,
    "ovis": TWO,
    "ovis-asymptotic": TWO,
    "rloo": TWO,
    "vimco-subsets": at_one("Use more samples, or fewer in a subset"),
    "tvo": TWO | on(["gaussian"], MIXED_LATENTS),
    "tvo-log-spaced": TWO | on(["gaussian"], MIXED_LATENTS),
    "tvo-moments": TWO | on(["gaussian"], MIXED_LATENTS),
    "annealed": TWO | NO_LIKELIHOOD,
    "vimco-learned layer-baselines=true": NO_LAYERS,
    "rws": WAKE,
    "rws prior-control=true": WAKE | NO_LIKELIHOOD,
    "rws-sleep": NO_DREAMS,
    "rws-both": NO_DREAMS,
    "rws-mixture": NO_DREAMS,
    "straight-through": on(["gaussian", *PLACES], "needs binary latents that pass gradients straight through"),
    "tang": on((*LEARNED, "gaussian"), "Use --proposal prior, or RWS") | at_one("use K >= 2, or NVIL", PRIOR),
    "tang centred=true": on((*LEARNED, "gaussian"), "Use --proposal prior, or RWS")
    | at_one("use K >= 2, or NVIL", PRIOR),
    "ram": on((*OF_BITS, "gaussian"), "needs the reward of a right label, and the model offers none")
    | on(["attention-learned"], "Use --proposal prior, or RWS"),
    "bbvi": at_one("needs K >= 2; got K = 1", SBN_KINDS) | NO_LAYERS,
    "bbvi control-variate=unit": at_one("needs K >= 2; got K = 1", SBN_KINDS) | NO_LAYERS,
    "bbvi control-variate=none": NO_LAYERS,
    "bbvi control-variate=same-samples": on(SBN_KINDS, AT_LEAST_50) | NO_LAYERS,
    "muprop": NO_LAYERS,
    "muprop objective=elbo local-signals=true": NO_LAYERS,
    "muprop variance-normalisation=true baseline-width=3": NO_LAYERS,
    "local-expectations": NO_LAYERS,
    "local-expectations objective=elbo": NO_LAYERS,
    "pathwise": on((*OF_BITS, *PLACES), "needs latents through which gradients flow"),
    "dreg": NOT_FROZEN,
    "stl": NOT_FROZEN | {("gaussian", 2): "unbiased at K = 1 alone, and K is 2: use DReG"},
    "rws-dreg": NOT_FROZEN | at_one("mean zero at K = 1", ["gaussian"]),
}


def model_of(kind):
    if kind in PLACES:
        proposal, sizes = (
            kind.removeprefix("attention-"),
            {"glimpses": 2, "units": 3, "grid": 2, "patch": 1, "scales": 1},
        )
        return attention_model(jax.random.key(0), (1, 2), proposal=proposal, num_labels=3, **sizes)
    if kind == "gaussian":
        return gaussian_model(jax.random.key(0), (2,), jnp.full(3, 0.4), hidden=(2,))
    if kind in MIXED_LAYERS:
        means, proposal = (jnp.full(3, 0.4), jnp.full(2, 0.6)), kind.removeprefix("mixed-")
        return structured_sbn(jax.random.key(0), (2, 1), *means, proposal=proposal, deterministic=2)
    return sbn_model(kind)


def test_only_named_estimators_are_in_the_table():
    assert {name.split()[0] for name in REFUSED} <= PACKAGED


def batch_of(kind):
    return copies(example_of("generative" if kind == "gaussian" else kind), 2)


@functools.cache
def estimator_of(name, width):
    """Return an estimator for images of this many pixels."""
    estimator, *options = name.split()
    return named_estimator(estimator, jax.random.key(0), jnp.zeros(width), options)


@functools.cache
def samples_of(kind, needs, K):
    """Return the shapes of a model's samples for estimators with these needs, or the message of the refusal."""

    def drawn(key):
        return samples_for(model_of(kind), needs, Keys(key, key, key), batch_of(kind), K)

    return answer_of(drawn, jax.random.key(0))


@pytest.mark.filterwarnings("ignore:Leaving the sample out")
@pytest.mark.parametrize("name", sorted(PACKAGED | set(REFUSED)))
def test_a_combination_works_or_is_refused_with_a_sentence(name):
    """The update is traced, as in a run before anything is written; samples once for all estimators of equal needs."""
    for (kind, K), message in (EVERY | REFUSED.get(name, {})).items():
        batch = batch_of(kind)
        estimator = estimator_of(name, batch.observation.shape[1] + batch.context.shape[1])

        def rehearsal(samples, estimator=estimator, batch=batch):
            estimate = estimator(samples, batch)
            return estimate.surrogate, estimator.updated(estimate)

        answer = samples_of(kind, estimator.needs, K)
        if not isinstance(answer, str):
            answer = answer_of(rehearsal, answer)
        if isinstance(answer, str):
            assert message is not None, f"List this in REFUSED, if it is meant: {name}, {kind}, K = {K}: {answer}"
            assert message in answer, (kind, K, answer)
            assert "use " in answer.lower(), (kind, K, answer)
        else:
            assert message is None, (kind, K)
            assert answer[0].shape == (2,)


def answer_of(function, argument):
    """Return the shapes of what a function returns, or the message of the refusal."""
    try:
        return eqx.filter_eval_shape(function, argument)
    except UsageError as error:
        return str(error)


def test_what_is_refused_leaves_nothing_behind(tmp_path):
    config = RunConfig(estimator="tang", layers=(3,), data="synthetic", updates=1, batch_size=2)
    with pytest.raises(UsageError, match="Use --proposal prior, or RWS"):
        vimco.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
