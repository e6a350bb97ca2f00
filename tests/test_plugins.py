"""One estimator, one model family, one data set and one study from a file outside the package."""

import json
import re
import subprocess
import sys

import pytest
from program import PROGRAM, environment

from vimco import plugins
from vimco.errors import UsageError
from vimco.plugins import load_plugin

PLUGIN = '''
"""Everything that can be added, once."""

import dataclasses
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vimco.data import BuiltIn, Identity, register_dataset
from vimco.estimators.estimator import ESTIMATORS, Estimator, estimate_from_signal, held_constant
from vimco.models import MODELS
from vimco.models.family import whole
from vimco.runs.config import RunConfig
from vimco.samples import ImportanceSamples
from vimco.signals import naive_signal
from vimco.studies import Study, register_study
from vimco.studies.cells import PAPER
from vimco.studies.document import Text


class Damped(Estimator):
    """The naive estimator with a factor before its signal."""

    ascends: ClassVar[str] = "L^K by the model; by the proposal, too, where the factor is 1"

    factor: float = eqx.field(static=True, default=1.0)

    def __call__(self, samples, batch=None):
        log_weights = held_constant(samples.log_weights)
        return estimate_from_signal(self.factor * naive_signal(log_weights), log_weights, samples)


@ESTIMATORS.register("damped", "Damped naive")
def damped(_key, _mean, *, factor: Annotated[float, "What multiplies the signal."] = 0.5):
    """Multiply the signal of the naive estimator."""
    return Damped(factor)


class Coins(eqx.Module):
    """One Bernoulli latent that chooses between two factorial models of an image."""

    logits: jax.Array
    proposal: jax.Array

    def importance_samples(self, key, batch, num_samples):
        log_q1, log_q0 = jax.nn.log_sigmoid(self.proposal), jax.nn.log_sigmoid(-self.proposal)
        h = jax.random.bernoulli(key, jax.nn.sigmoid(self.proposal), (num_samples, len(batch.observation)))
        x, logits = batch.observation, self.logits[:, None]
        log_p = jnp.sum(x * jax.nn.log_sigmoid(logits) + (1 - x) * jax.nn.log_sigmoid(-logits), axis=-1)
        return ImportanceSamples(jnp.where(h, log_p[1], log_p[0]) - jnp.log(2.0), jnp.where(h, log_q1, log_q0))


@MODELS.register("coins", "two coins", divide=whole)
def coins(key, observation_mean, *, spread: Annotated[float, "Standard deviation of the initial logits."] = 0.1):
    """Model whole images as one of two sets of independent pixels."""
    return Coins(spread * jax.random.normal(key, (2, *observation_mean.shape)), jnp.zeros(()))


STRIPES = Identity("stripes", "a pixel in two is on", (40, 20, 20), (4, 4), None)


def stripes():
    return STRIPES.dataset(np.arange(80 * 16).reshape(80, 16).astype(np.uint8) % 2)


register_dataset(BuiltIn(STRIPES, stripes))


def runs():
    """Coins on stripes."""
    changes = {"task": "coins", "estimator": "damped", "estimator_options": ("factor=0.25",), "num_samples": 2}
    return [dataclasses.replace(PAPER, **changes)]


def show(study, found):
    bounds = [run.best()[1] for run in found if run.config.task == "coins"]
    return [Text(f"Of {len(bounds)} run of coins the best bound is negative: {max(bounds) < 0}.")]


register_study(Study("coin-study", "A study of coins", "a sentence", runs, show, evaluation_samples=7))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "mine.py").write_text(PLUGIN)
    return folder


def program(folder, *arguments):
    """Run the program in the folder; return status, standard output and standard error."""
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


def test_one_of_each_from_a_file(folder):
    """Trained, evaluated and studied by the program, and found in the report; without the plugin, named as unknown."""
    plugin = ("--plugin", "mine.py")
    what = ("--task", "coins", "--estimator", "damped", "--estimator-options", "factor=0.25", "--data", "stripes")
    short = ("--num-samples", 2, "--batch-size", 24, "--updates", 4, "--validate-every", 2, "--log-every", 2)
    status, out, err = program(folder, "train", *plugin, *what, *short, "--output", "runs/one")
    assert status == 0, err
    assert "two coins" in out
    assert "curves.png" in out
    assert "samples.png" not in out  # coins draw no pictures
    config = json.loads((folder / "runs/one/config.json").read_text())["config"]
    assert (config["task"], config["estimator"], config["data"]) == ("coins", "damped", "stripes")
    assert config["estimator_options"] == ["factor=0.25"]
    assert "mine" not in (folder / "runs/one/config.json").read_text()  # a directory never names code

    status, out, err = program(folder, "evaluate", "runs/one", "--num-samples", 3, *plugin)
    assert status == 0, err
    assert "test split, all 20 examples, K = 3" in out
    likelihood = re.search(r"negative log-likelihood (\S+) nats", out)[1]

    study = ("study", "coin-study", *plugin, "--data", "stripes", "--updates", 4, "--output", "runs/studied")
    status, out, err = program(folder, *study)
    assert status == 0, err
    assert "Of 1 run of coins the best bound is negative: True." in out

    status, out, err = program(folder, *plugin, "report", "runs", "--output", "report")
    assert status == 0, err
    report = (folder / "report/results.md").read_text()
    assert "A study of coins" in report
    assert "Of 2 run of coins the best bound is negative: True." in report
    assert "Damped naive factor=0.25" in report
    records = json.loads((folder / "report/runs.json").read_text()).values()
    by_samples = {e["num_samples"]: e for record in records for e in record["summary"]["evaluations"]}
    assert set(by_samples) == {3, 7}  # by hand, and by the study
    assert f"{by_samples[3]['negative_log_likelihood']:.2f}" == likelihood

    status, _, err = program(folder, "evaluate", "runs/one", "--num-samples", 2)
    assert status == 2
    tasks = "attention, gaussian, generative, structured"
    assert f"There is no task 'coins'; choose one of {tasks}. One of your own comes with" in err


def test_what_does_not_go_together_is_refused_and_nothing_is_written(folder):
    what = ("--plugin=mine.py", "train", "--task", "coins", "--data", "stripes", "--output", "runs/two")
    for options, message in (
        (("--symmetric",), "--symmetric goes with --task generative or structured, not with --task coins"),
        (("--task-options", "sprad=1"), "task coins has no option 'sprad'; its options are spread"),
        (("--estimator", "rws-both"), "needs dreams, draws from the model itself, and the model offers none"),
    ):
        status, _, err = program(folder, *what, *options)
        assert status == 2
        assert message in " ".join(err.split())
        assert not (folder / "runs/two").exists()


def test_plugins_that_cannot_be_imported(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    with pytest.raises(UsageError, match=r"broken\.py cannot be imported \(ModuleNotFoundError: .*nothing_of_this"):
        load_plugin(str(tmp_path / "broken.py"))
    with pytest.raises(UsageError, match="there is no such file"):
        load_plugin(str(tmp_path / "missing.py"))
    with pytest.raises(UsageError, match="no_such_module cannot be imported"):
        load_plugin("no_such_module")
    monkeypatch.setattr(plugins, "_loaded", {})  # other tests in this process start programs, without this plugin
    (tmp_path / "counted.py").write_text("import sys\nsys.counted = getattr(sys, 'counted', 0) + 1")
    monkeypatch.setattr(sys, "counted", 0, raising=False)
    for _ in range(2):
        load_plugin(str(tmp_path / "counted.py"))
    assert sys.counted == 1
