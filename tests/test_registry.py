"""Names and options: what is registered, how options are written, checked and kept; what a model must offer."""

import dataclasses
import json
import re
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import pytest

from vimco import VIMCO
from vimco.errors import UsageError
from vimco.estimators import ESTIMATORS, named_estimator
from vimco.estimators.rws import RWS
from vimco.registry import Named, Registry, in_words, parsed, text
from vimco.runs.config import RunConfig
from vimco.samples import Batch, Dreams, ImportanceSamples, Keys, samples_for
from vimco.studies.study import Cell, digest, label, train_command

KEY, MEAN = jax.random.key(0), jnp.full(3, 0.4)


def registry_of_one():
    registry = Registry("animal", Named)

    @registry.register("cat", "A cat")
    def cat(
        sound,
        *,
        legs: Annotated[int, "How many."] = 4,
        weight: float = 3.5,
        colour: Literal["black", "white"] = "black",
        spots: tuple[float, ...] = (0.5, 1.0),
        owner: str | None = None,
        is_wild: bool = False,
    ):
        """Return a cat.

        Not a dog.
        """
        return sound, legs, weight, colour, spots, owner, is_wild

    return registry


def test_options_are_the_keyword_parameters_of_the_builder():
    entry = registry_of_one()["cat"]
    assert (entry.name, entry.title, entry.help) == ("cat", "A cat", "Return a cat.")
    assert list(entry.options) == ["legs", "weight", "colour", "spots", "owner", "is-wild"]
    assert entry.options["legs"][:3] == (int, 4, "How many.")


def test_options_are_kept_in_one_form():
    entry = registry_of_one()["cat"]
    words = ["is_wild=true", "weight=7", "legs=4", "spots=0, 1e-3", "owner=none", "colour=white"]
    assert entry.canonical(words) == ("weight=7.0", "colour=white", "spots=0.0,0.001", "is-wild=true")
    assert entry.canonical(entry.canonical(words)) == entry.canonical(words)
    assert entry.build("miaow", **entry.arguments(words)) == ("miaow", 4, 7.0, "white", (0.0, 0.001), None, True)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("legs", "written name=value; got 'legs'"),
        ("tail=1", "animal cat has no option 'tail'; its options are legs, weight, colour, spots, owner, is-wild."),
        ("legs=4.5", "The option 'legs' of animal cat must be an integer; got '4.5'."),
        ("weight=heavy", "must be a finite number; got 'heavy'"),
        ("weight=nan", "must be a finite number; got 'nan'"),
        ("weight=-inf", "must be a finite number; got '-inf'"),
        ("colour=red", "must be one of black, white; got 'red'"),
        ("spots=1,b", "must be a list of finite numbers"),
        ("spots=", "must be a list of finite numbers"),
        ("is-wild=1", "must be true or false"),
    ],
)
def test_bad_options_are_named(word, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        registry_of_one()["cat"].canonical([word])


def options_without_type(*, legs=4): ...
def options_without_default(*, legs: int): ...
def options_of_another_type(*, legs: list[int] = ()): ...


@pytest.mark.parametrize("build", [options_without_type, options_without_default, options_of_another_type])
def test_options_that_cannot_be_written_are_refused(build):
    with pytest.raises(UsageError, match=r"animal cat must give its option 'legs' a default and a type: int, float"):
        _ = Named("animal", "cat", "A cat", build).options


def test_names_are_unique_and_unknown_ones_are_refused():
    registry = registry_of_one()
    with pytest.raises(UsageError, match="'cat' is taken by another animal"):
        registry.register("cat", "Another")(lambda: None)
    with pytest.raises(UsageError, match="no animal 'dog'; choose one of cat"):
        registry["dog"]
    assert (registry.title_of("cat"), registry.title_of("dog")) == ("A cat", "dog")


@pytest.mark.parametrize("entry", ESTIMATORS.values(), ids=ESTIMATORS)
def test_every_estimator_is_explained(entry):
    assert entry.help.endswith(".")
    assert entry.title
    for name, option in entry.options.items():
        assert option.help.endswith("."), name
        assert parsed(text(option.default), option.hint) == option.default, name


def test_options_of_nvil_reach_it():
    words = ["decay=0.5", "baseline-width=7", "centred-weights=true", "scale-sees-batch=false"]
    nvil = named_estimator("nvil", KEY, MEAN, [*words, "constant-baseline=false", "variance-normalisation=false"])
    assert nvil.input_baseline.output_weight.shape == (7,)
    assert (nvil.moments.decay, nvil.centred_weights, nvil.scale_sees_batch) == (0.5, True, False)
    assert (nvil.constant_baseline, nvil.variance_normalisation) == (False, False)
    assert named_estimator("vimco-learned", KEY, MEAN, ["baseline-width=0"]).network is None
    for bad, message in (("decay=1.5", "between 0 and 1"), ("baseline-width=-1", "0 or more hidden units")):
        with pytest.raises(UsageError, match=message):
            named_estimator("nvil", KEY, MEAN, [bad])
    for ignored in ("constant-baseline=false", "scale-sees-batch=false", "centred-weights=true"):
        with pytest.raises(UsageError, match=r"With local-signals=true .* leave constant-baseline, .* out"):
            named_estimator("nvil", KEY, MEAN, ["local-signals=true", ignored])


def test_options_are_part_of_a_run():
    plain = RunConfig(estimator="nvil")
    run = RunConfig(estimator="nvil", estimator_options=("decay=.90", "centred_weights=true"))
    assert run.estimator_options == ("centred-weights=true", "decay=0.9")
    assert run.identity != plain.identity
    assert Cell.of(run) != Cell.of(plain)
    assert digest(run) != digest(plain)
    assert RunConfig.from_json(json.loads(json.dumps(run.to_json()))) == run
    assert label(run) == "generative-200-200-200-nvil-centred-weights=true-decay=0.9-K5-lr0.001-seed0"
    expected = "vimco train --estimator nvil --estimator-options centred-weights=true decay=0.9 --output o"
    assert train_command(run, "o") == expected


def test_options_that_are_the_defaults_change_nothing():
    """So runs of versions without options keep their records, names and digests."""
    plain = RunConfig(estimator="nvil")
    assert RunConfig(estimator="nvil", estimator_options=("decay=0.8",)) == plain
    assert "estimator_options" not in plain.to_json()
    assert digest(RunConfig()) == "44136fa355b3"  # of {}: the first digits of SHA-256
    assert label(plain) == "generative-200-200-200-nvil-K5-lr0.001-seed0"


def test_a_configuration_refuses_options_of_another_estimator():
    with pytest.raises(UsageError, match="estimator vimco has no option 'decay', nor any other"):
        RunConfig(estimator_options=("decay=0.9",))
    with pytest.raises(UsageError, match=r"no estimator 'reinforce'; choose one of .*--plugin"):
        RunConfig(estimator="reinforce")
    with pytest.raises(UsageError, match="vimco has no option 'decay'"):
        dataclasses.replace(RunConfig(estimator="nvil", estimator_options=("decay=0.9",)), estimator="vimco")


class NoDreams:
    """A model that offers weighted samples alone."""

    def importance_samples(self, key, batch, num_samples):
        values = jax.random.normal(key, (num_samples, batch.observation.shape[0]))
        return ImportanceSamples(values, jnp.zeros_like(values))


class Dreamer(NoDreams):
    """A model that also dreams."""

    def log_proposal_of_dreams(self, key, batch):
        return jax.random.normal(key, batch.observation.shape[:1])


def test_samples_carry_what_an_estimator_needs():
    keys, batch = Keys(*jax.random.split(KEY, 3)), Batch(jnp.zeros((2, 3)))
    assert RWS(sleep=True).needs == (Dreams(),)
    assert VIMCO().needs == ()
    plain = samples_for(Dreamer(), VIMCO().needs, keys, batch, 4)
    assert plain.num_samples == 4
    assert plain.log_proposal_of_dreams is None
    dreaming = samples_for(Dreamer(), RWS(sleep=True).needs, keys, batch, 4)
    assert jnp.array_equal(dreaming.log_proposal_of_dreams, jax.random.normal(keys.dreams, (2,)))
    assert jnp.array_equal(dreaming.log_joint, plain.log_joint)
    with pytest.raises(UsageError, match=r"needs dreams, .* NoDreams has no method `log_proposal_of_dreams`"):
        samples_for(NoDreams(), (Dreams(),), keys, batch, 4)


def test_none_is_what_options_call_it():
    assert in_words(float | None, "none") == "a finite number or none"
    assert in_words(float | None) == "a finite number or null"  # in JSON
    assert in_words(tuple[bool, ...]) == "a list of true or false"
