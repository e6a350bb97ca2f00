"""Run directories: a crash between any two writes loses nothing, and damage is detected."""

import concurrent.futures
import dataclasses
import errno
import fcntl
import itertools
import json
import math
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from crashes import HOW, STEPS, Killed, counted_steps, killed_at, killed_where
from program import (
    EVERYTHING,
    Recorder,
    arrays,
    assert_same_arrays,
    assert_same_outcome,
    stopped_run,
    without_timing,
)

import vimco
from vimco import cli, files
from vimco.cli.terminal import TrainingDisplay
from vimco.data import load_dataset
from vimco.errors import UsageError
from vimco.files import replace_file
from vimco.runs import checkpoints, directory, interrupts, locks, pictures, session, store
from vimco.runs.config import RunConfig
from vimco.runs.experiment import Experiment, Purpose, key_for, precision
from vimco.runs.store import DamagedFileError, read_arrays, write_tree
from vimco.runs.team import Team
from vimco.samples import ImportanceSamples
from vimco.training.evaluation import Evaluation

SMALL = RunConfig(data="synthetic", layers=(3,), num_samples=2, updates=50, log_every=10, validate_every=20)


def without_pictures(patch):
    """Skip the pictures, which take longer than the rest of a small run."""
    patch.setattr(pictures, "draw_curves", lambda run: None)
    patch.setattr(pictures, "draw_samples", lambda run, **_: None)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    without_pictures(monkeypatch)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Return an undisturbed run."""
    with pytest.MonkeyPatch.context() as patch:
        without_pictures(patch)
        return session.train(EVERYTHING, tmp_path_factory.mktemp("runs") / "reference").path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return the same run, stopped halfway; its previous checkpoint is of an earlier update."""
    run = stopped_run(EVERYTHING, tmp_path_factory.mktemp("runs") / "stopped", 45)
    assert (
        read_arrays(run.path / checkpoints.PREVIOUS)[1]["update"]
        < read_arrays(run.path / checkpoints.CHECKPOINT)[1]["update"]
        < 90
    )
    return run.path


@pytest.fixture
def halfway(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


# What a run leaves


def test_what_a_run_leaves(reference):
    names = {entry.name for entry in reference.iterdir()}
    assert names == {
        ".lock",
        ".records.lock",
        "config.json",
        "metrics.jsonl",
        "checkpoint.safetensors",
        "checkpoint.previous.safetensors",
        "best.safetensors",
        "best_average.safetensors",
        "summary.json",
    }  # and the pictures
    record = json.loads((reference / "config.json").read_text())
    assert RunConfig.from_json(record["config"]) == EVERYTHING
    assert {"python", "jax", "jaxlib", "cpu", "threads"} <= record["environment"].keys()
    assert record["data"]["checksum"] == vimco.load(reference).dataset().checksum
    lines = vimco.load(reference).metrics()
    assert [line["update"] for line in lines] == list(range(10, 91, 10))
    assert [line["update"] for line in lines if "validation_bound" in line] == [30, 60, 90]
    wanted = {"train_bound", "signal_rms", "effective_sample_size", "gradient_norm", "updates_per_second", "epoch"}
    assert all(wanted <= line.keys() for line in lines)
    assert lines[4]["epoch"] == 2.0  # 25 batches of 24 in 600


def test_the_best_models_are_those_of_the_best_validations(reference):
    run = vimco.load(reference)
    for weights, name, key in (
        ("best", "validation_bound", "best"),
        ("best-average", "average_validation_bound", "best_average"),
    ):
        lines = [line for line in run.metrics() if name in line]
        best = max(lines, key=lambda line: line[name])
        assert run.summary()[key] == {"update": best["update"], "validation_bound": best[name]}
        assert run.update_of(weights) == best["update"]
    again = run.evaluate(2, "validation", weights="latest", seed=0)
    assert again.mean_bound == pytest.approx(run.metrics()[-1]["validation_bound"], abs=1)  # other samples


def test_a_worse_validation_does_not_displace_the_best(tmp_path, monkeypatch):
    """Validations of −3, −1, −2: the second model is kept, that is the one after 20 updates."""
    bounds = iter([-3.0, -1.0, -2.0])
    monkeypatch.setattr(session, "evaluate", lambda *_: Evaluation(2, np.full(2, next(bounds)), np.ones(2), np.ones(2)))
    run = session.train(dataclasses.replace(SMALL, validate_every=10, updates=30), tmp_path / "long")
    assert run.summary()["best"] == {"update": 20, "validation_bound": -1.0}
    bounds = iter([-3.0, -1.0])
    short = session.train(dataclasses.replace(SMALL, validate_every=10, updates=20), tmp_path / "short")
    assert_same_arrays(arrays(run.path, "best.safetensors"), arrays(short.path, "best.safetensors"))
    assert run.model("best").likelihood.bias.tolist() == short.model("latest").likelihood.bias.tolist()


# Stop and resume


def test_stopped_and_resumed_is_never_stopped(reference, halfway):
    recorder = Recorder()
    session.resume(halfway, recorder)
    assert_same_outcome(halfway, reference)
    assert recorder.warnings == []


OTHER_STATES = {
    "muprop": {"estimator": "muprop", "estimator_options": ("baseline-width=2", "variance-normalisation=true")},
    "local signals": {"estimator": "nvil", "estimator_options": ("local-signals=true", "baseline-width=2")},
    "gaussian": {"task": "gaussian", "estimator": "dreg"},
}


@pytest.mark.parametrize("changes", OTHER_STATES.values(), ids=OTHER_STATES)
def test_other_estimators_and_models_resume_too(tmp_path, changes):
    """Baselines of single layers, reparameterised latents: stopped, resumed and evaluated as if never stopped."""
    config = dataclasses.replace(SMALL, num_samples=1, averaging=0.9, **changes)
    whole = session.train(config, tmp_path / "whole")
    stopped = stopped_run(config, tmp_path / "stopped", 25)
    assert read_arrays(stopped.path / checkpoints.CHECKPOINT)[1]["update"] < 50
    session.resume(stopped.path, Recorder())
    assert_same_outcome(stopped.path, whole.path)
    first, second = (run.evaluate(3, "validation", weights="best-average") for run in (whole, stopped))
    assert math.isfinite(first.mean_bound)
    assert first.mean_bound == second.mean_bound


def train_or_resume(path):
    if (path / directory.CONFIG).exists():
        return session.resume(path, Recorder())
    return session.train(EVERYTHING, path, Recorder())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_killed_at_any_step_again_and_again(reference, tmp_path, seed):
    """Every session is killed at a random step on files, before, within or after it, until one is finished."""
    path, draw = tmp_path / "run", random.Random(seed)
    deaths = 0
    while deaths < 100:
        try:
            with killed_at(draw.randrange(1, 60), draw.choice(HOW)):
                train_or_resume(path)
            break
        except Killed:
            deaths += 1
    assert 2 < deaths < 100
    assert_same_outcome(path, reference)


def test_every_step_is_a_place_to_die(reference, tmp_path):
    """A few random steps; `make soak` tests all of them."""
    with counted_steps() as steps:
        session.train(EVERYTHING, tmp_path / "counted", Recorder())
    assert {name for name, _file in steps} == set(STEPS)
    draw = random.Random(3)
    for number in draw.sample(range(1, len(steps) + 1), 4):
        path = tmp_path / str(number)
        with pytest.raises(Killed), killed_at(number, draw.choice(HOW)):
            session.train(EVERYTHING, path, Recorder())
        train_or_resume(path)
        assert_same_outcome(path, reference)


def test_metrics_ahead_of_the_checkpoint_are_written_again(reference, halfway):
    """As if killed after lines of metrics, and half a line, but before the checkpoint that goes with them."""
    (halfway / checkpoints.PREVIOUS).replace(halfway / checkpoints.CHECKPOINT)
    with (halfway / directory.METRICS).open("a") as file:
        file.write('{"update": 70, "train_bound": -1.0}\n{"update": 80, "tr')
    session.resume(halfway, Recorder())
    assert_same_outcome(halfway, reference)


def test_killed_before_the_first_checkpoint(reference, tmp_path):
    path = tmp_path / "run"
    with pytest.raises(Killed), killed_at(8):  # six steps write config.json
        session.train(EVERYTHING, path)
    assert {entry.name for entry in path.iterdir() if not entry.name.startswith(".")} == {"config.json"}
    session.resume(path, Recorder())
    assert_same_outcome(path, reference)


def test_killed_before_the_configuration(reference, tmp_path):
    """There is no run then, and its directory can be reused."""
    path = tmp_path / "run"
    with pytest.raises(Killed), killed_at(2):
        session.train(EVERYTHING, path)
    assert any(entry.name.endswith(".part") for entry in path.iterdir())
    session.train(EVERYTHING, path)
    assert_same_outcome(path, reference)


def test_an_extended_run_is_one_long_run(tmp_path):
    """With a constant rate; 35 is neither a log point nor a validation, nor the end of an epoch."""
    long = session.train(SMALL, tmp_path / "long")
    short = session.train(dataclasses.replace(SMALL, updates=35), tmp_path / "short")
    assert short.summary()["updates"] == 35
    session.resume(short.path, updates=50)
    assert_same_arrays(
        {name: a for name, a in arrays(short.path).items() if not name.startswith("totals")},
        {name: a for name, a in arrays(long.path).items() if not name.startswith("totals")},
    )
    run = directory.load(short.path)
    assert run.config == SMALL
    assert run.summary()["updates"] == 50
    assert [line["update"] for line in run.metrics()] == [10, 20, 30, 35, 40, 50]  # 35 ended a run, so it has a line
    again = arrays(short.path)
    session.resume(short.path)  # a finished run has nothing to do
    assert_same_arrays(arrays(short.path), again)
    with pytest.raises(UsageError, match="has done 50 updates already, more than the 40 asked for"):
        session.resume(short.path, updates=40)
    assert directory.load(short.path).config == SMALL


def test_a_warm_up_that_takes_the_whole_schedule_is_told(tmp_path):
    recorder = Recorder()
    config = dataclasses.replace(SMALL, schedule="cosine", warmup_updates=500, updates=2)
    session.train(config, tmp_path / "run", recorder)
    (warning,) = recorder.warnings
    assert warning.startswith("The warm-up of 500 updates takes the whole schedule of 2: after it the rate")


def test_extending_does_not_move_the_horizon_of_a_schedule(tmp_path):
    config = dataclasses.replace(SMALL, schedule="cosine")
    reference = session.train(config, tmp_path / "reference").path
    path = shutil.copytree(reference, tmp_path / "run")
    recorder = Recorder()
    session.resume(path, recorder, updates=60)
    assert recorder.warnings == ["The cosine schedule ends at update 50: from there on the learning rate is zero."]
    before, after = arrays(reference), arrays(path)
    assert int(after["update"]) == 60
    model = [name for name in before if name.startswith("model.")]
    assert_same_arrays({name: before[name] for name in model}, {name: after[name] for name in model})


def test_double_precision(tmp_path):
    config = dataclasses.replace(SMALL, precision="float64")
    whole = session.train(config, tmp_path / "whole")
    run = stopped_run(config, tmp_path / "parts", 20)
    session.resume(run.path, Recorder())
    assert_same_outcome(run.path, whole.path)
    assert arrays(run.path)["model.likelihood.bias"].dtype == np.float64
    assert run.model().likelihood.bias.dtype == np.float64


# Budgets


def test_epochs(tmp_path):
    run = session.train(dataclasses.replace(SMALL, updates=None, epochs=1.6), tmp_path / "run")
    assert (run.summary()["updates"], run.summary()["epochs"]) == (40, 1.6)


def test_minutes(tmp_path):
    """A budget of time counts time of training, over all sessions."""
    config = dataclasses.replace(SMALL, updates=None, minutes=0.001, log_every=1000, validate_every=1000)
    run = session.train(config, tmp_path / "run")
    first = run.summary()["updates"]
    seconds = read_arrays(run.path / checkpoints.CHECKPOINT)[1]["seconds"]
    assert first > 0
    assert seconds >= 0.06
    with pytest.raises(UsageError, match="budgets count from the run's beginning"):
        session.resume(run.path, minutes=0.001)
    session.resume(run.path, Recorder(), minutes=seconds / 60 + 0.0005)
    assert directory.load(run.path).summary()["updates"] > first


# Damage


def damaged(content, how):
    middle = len(content) // 2
    return {
        "empty": b"",
        "cut": content[:-1],
        "short": content[:100],
        "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "longer": content + b"\0",
        "text": b"not a checkpoint at all",
    }[how]


@pytest.mark.parametrize("how", ["empty", "cut", "short", "flipped", "longer", "text", "missing"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(reference, halfway, how):
    latest = halfway / checkpoints.CHECKPOINT
    previous = read_arrays(halfway / checkpoints.PREVIOUS)[1]["update"]
    if how == "missing":
        latest.unlink()
    else:
        latest.write_bytes(damaged(latest.read_bytes(), how))
    recorder = Recorder()
    session.resume(halfway, recorder)
    assert len(recorder.warnings) == 1
    assert "checkpoint.safetensors" in recorder.warnings[0]
    assert f"Resuming from the checkpoint before it, of update {previous}." in recorder.warnings[0]
    assert_same_outcome(halfway, reference)


def test_a_damaged_checkpoint_never_becomes_the_previous_one(halfway):
    """After a kill at any moment of the first save after the damage, an undamaged checkpoint remains."""
    for step in range(1, 17):
        path = shutil.copytree(halfway, halfway.with_name(f"killed at {step}"))
        (path / checkpoints.CHECKPOINT).write_bytes(b"damaged")
        with pytest.raises(Killed), killed_at(step):
            session.resume(path, Recorder())
        checkpoints.latest_checkpoint(path)


def test_two_damaged_checkpoints_are_an_end(halfway):
    for name in (checkpoints.CHECKPOINT, checkpoints.PREVIOUS):
        (halfway / name).write_bytes((halfway / name).read_bytes()[:-7])
    before = {entry.name: entry.read_bytes() for entry in halfway.iterdir()}
    with pytest.raises(UsageError, match=r"(?s)checkpoint\.safetensors.*checkpoint\.previous.*start a new run"):
        session.resume(halfway)
    assert {entry.name: entry.read_bytes() for entry in halfway.iterdir()} == before


def test_every_single_bit_counts(tmp_path):
    """Each byte of the header, names, shapes, checksum and all, and of the values."""
    path = tmp_path / "tree.safetensors"
    write_tree(path, {"a": np.arange(6.0).reshape(2, 3), "b": np.array(True)}, {"update": 7})
    content = path.read_bytes()
    assert read_arrays(path)[1] == {"update": 7}
    for i in range(len(content)):
        for bit in (1, 32):
            path.write_bytes(content[:i] + bytes([content[i] ^ bit]) + content[i + 1 :])
            with pytest.raises(DamagedFileError):
                read_arrays(path)


def test_files_are_replaced_whole_or_not_at_all(tmp_path):
    path, previous = tmp_path / "file", tmp_path / "previous"
    replace_file(path, b"one", previous)
    replace_file(path, b"two", previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"two", b"one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_flush", no_space)
        with pytest.raises(OSError, match="No space left"):
            replace_file(path, b"three", previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"two", b"one")
    assert len(list(tmp_path.iterdir())) == 2


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_full_disk_leaves_what_there_was(reference, halfway, monkeypatch, number):
    """The first, second, ... write of a resumed run fails halfway: metrics, checkpoint, metrics, best model."""
    calls, write = 0, files._write

    def full(descriptor, content):
        nonlocal calls
        calls += 1
        if calls == number:
            write(descriptor, content[: len(content) // 2])
            no_space()
        write(descriptor, content)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_write", full)
        with pytest.raises(UsageError, match="could not be written: No space left on device"):
            session.resume(halfway, Recorder())
    assert checkpoints.latest_checkpoint(halfway).fallback is None
    assert not list(halfway.glob(".*.part"))
    session.resume(halfway, Recorder())
    assert_same_outcome(halfway, reference)


# Not finite


def test_training_that_diverges_stops(tmp_path):
    """The parameters overflow at the second update; the checkpoint of the first stays."""
    config = dataclasses.replace(SMALL, learning_rate=3e38, checkpoint_seconds=0.0)
    path = tmp_path / "run"
    with pytest.raises(UsageError, match=r"At update [12] .* ceased to be finite.*smaller --learning-rate") as caught:
        session.train(config, path)
    assert str(path) in str(caught.value)
    kept = arrays(path)
    assert int(kept["update"]) < 2
    assert all(np.isfinite(array).all() for array in kept.values())
    assert not (path / "best.safetensors").exists()


def test_a_validation_that_is_not_finite_stops(tmp_path, monkeypatch):
    bounds = iter([-3.0, math.nan])
    monkeypatch.setattr(session, "evaluate", lambda *_: Evaluation(2, np.full(2, next(bounds)), np.ones(2), np.ones(2)))
    message = r"At update 40 the validation bound ceased to be finite.*--init-from .* starts it from the best weights"
    with pytest.raises(UsageError, match=message):
        session.train(SMALL, tmp_path / "run")
    facts = read_arrays(tmp_path / "run" / "best.safetensors")[1]
    assert (facts["update"], facts["validation_bound"]) == (20, -3.0)


def test_impossible_samples_teach_nothing_and_stop_nothing(tmp_path, monkeypatch):
    """A set of samples that are all impossible has the bound −inf; an average that contains it is no number in JSON."""

    class Rare(eqx.Module):
        weights: jax.Array

        def importance_samples(self, key, batch, num_samples):
            h = jax.random.bernoulli(key, 0.9, (num_samples, len(batch.observation)))
            log_p = jax.nn.log_sigmoid(self.weights @ batch.observation.T)
            return ImportanceSamples(jnp.where(h, log_p, -jnp.inf), jnp.where(h, jnp.log(0.9), jnp.log(0.1)))

    monkeypatch.setattr(Experiment, "model", lambda self: Rare(jnp.zeros(self.dataset.train.shape[1])))
    config = dataclasses.replace(SMALL, updates=40, log_every=1, estimator="vimco")
    path = tmp_path / "run"
    with pytest.raises(session.Interrupted):
        session.train(config, path, Recorder(stop_at=25))
    run = session.resume(path)
    bounds = [line["train_bound"] for line in run.metrics()]
    assert len(bounds) == 40
    assert None in bounds
    assert bounds[-1] is None or bounds[-1] > math.log(0.5)
    assert max(bound for bound in bounds[20:] if bound is not None) > max(b for b in bounds[:3] if b is not None)


def test_a_validation_without_a_possible_sample_is_never_the_best(tmp_path, monkeypatch):
    bounds = iter([-math.inf, -3.0, -math.inf])
    monkeypatch.setattr(session, "evaluate", lambda *_: Evaluation(2, np.full(2, next(bounds)), np.ones(2), np.ones(2)))
    run = session.train(SMALL, tmp_path / "run")
    assert run.summary()["best"] == {"update": 40, "validation_bound": -3.0}
    assert run.update_of("best") == 40
    assert run.curve("validation_bound") == [(40, -3.0)]


def test_metrics_are_json(tmp_path):
    """JSON has no infinity."""
    store.append_metrics(tmp_path / "metrics.jsonl", {"update": 1, "signal_rms": math.inf, "train_bound": -2.0})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"update": 1, "signal_rms": null, "train_bound": -2.0}\n'


# Who may write where


def test_a_run_of_an_older_version_is_evaluated():
    """The run that comes with the documentation: 245,000 updates, 46.25 nats by 100 samples. With two samples and the
    first ninth of the images the bound is looser: 51.4 nats by the version that this test was written for."""
    run = directory.load(pathlib.Path(__file__).parent.parent / "docs/models/halves")
    evaluation = run.evaluate(2, weights="best-average", part=(1, 9))
    assert (evaluation.update, len(evaluation.bound)) == (236_000, 1200)
    assert evaluation.negative_log_likelihood == pytest.approx(51.3997, abs=0.01)


def test_a_directory_that_holds_another_run_is_refused(halfway):
    before = {entry.name: entry.read_bytes() for entry in halfway.iterdir()}
    with pytest.raises(UsageError, match=r"holds another run\. Resume it with `vimco resume"):
        session.train(EVERYTHING, halfway)
    assert {entry.name: entry.read_bytes() for entry in halfway.iterdir()} == before


@pytest.mark.parametrize("name", ["notes.txt", ".hidden"])
def test_a_directory_that_holds_anything_is_refused(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="is not an empty directory"):
        session.train(SMALL, tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UsageError, match=r"choose another --output|Choose another --output"):
            session.train(SMALL, path)


def test_the_second_process_is_refused(halfway):
    with (halfway / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="Another process is training in"):
            session.resume(halfway)


def test_a_part_of_an_evaluation_may_have_no_examples(reference, tmp_path):
    run = directory.load(shutil.copytree(reference, tmp_path / "run"))
    sizes = []
    for number in range(1, 9):
        part = run.evaluate(60, weights="best", part=(number, 8))
        run.record_part(part, "best", (number, 8))
        sizes.append(len(part.bound))
    assert min(sizes) == 0 < max(sizes)
    assert run.join_parts(60, "best", 8)
    assert run.evaluations[0]["negative_log_likelihood"] == run.evaluate(60).negative_log_likelihood


def test_more_lines_than_can_be_read_again_are_refused(tmp_path):
    for name in ("log_every", "validate_every"):  # a validation writes a line, too
        message = rf"at most 524,288 times.*: choose --{name.replace('_', '-')} 3 or more"
        with pytest.raises(UsageError, match=message):
            session.train(dataclasses.replace(SMALL, updates=1_500_000, **{name: 1}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_evaluation_in_parts_is_recorded_as_one(reference, tmp_path):
    """Bit for bit, when all parts are there, for the present weights, and undamaged."""
    path = shutil.copytree(reference, tmp_path / "run")
    run, whole = directory.load(path), directory.load(path).evaluate(60, weights="best-average")

    def evaluate(part):
        cli.main(["evaluate", str(path), "--num-samples", "60", "--weights", "best-average", "--part", part, "3"])

    evaluate("1")
    evaluate("2")
    assert not run.join_parts(60, "best-average", 3)
    evaluate("3")
    parts = sorted(path.glob("evaluation-*"))
    assert len(parts) == 3
    content = parts[1].read_bytes()
    parts[1].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert not run.join_parts(60, "best-average", 3)
    parts[1].write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory.Run, "update_of", lambda *_: 7)
        assert not run.join_parts(60, "best-average", 3)
    assert run.evaluations == []
    assert run.join_parts(60, "best-average", 3)
    (record,) = run.evaluations
    expected = {"split": "test", "weights": "best-average", "seed": 0, "update": whole.update, **whole.to_json()}
    assert record == expected
    assert list(path.glob("evaluation-*")) == []
    evaluate("1")
    run.record_evaluation(whole, "test", "best-average", 0)  # the whole needs no parts
    assert list(path.glob("evaluation-*")) == []
    with pytest.raises(SystemExit):  # parts of other devices are of other examples
        cli.main(["evaluate", str(path), "--part", "1", "3", "--devices", "2"])


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    def unknown(*_arguments, **_options):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(locks.filelock, "lock_descriptor", unknown)
    with pytest.raises(UsageError, match="offers no locks"), locks.lock_for_training(tmp_path):
        pass


def test_two_that_start_at_once(tmp_path, monkeypatch):
    """Both find the directory free; one locks it first."""
    path = tmp_path / "run"

    def quicker(experiment):
        monkeypatch.undo()
        path.mkdir()
        (path / "config.json").write_text("{}")

    monkeypatch.setattr(session, "_trace_one_update", quicker)
    with pytest.raises(UsageError, match="holds another run"):
        session.train(SMALL, path)


def test_new_directories_never_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RunConfig(data="some/where/digits.npz", seed=3)
    first = directory.new_directory(config)
    assert first == pathlib.Path("runs/digits-generative-vimco-K5-seed3")
    assert directory.new_directory(config) == pathlib.Path("runs/digits-generative-vimco-K5-seed3-2")


# What has changed in between


def edited(path, section, field, value):
    record = json.loads((path / directory.CONFIG).read_text())
    record[section][field] = value
    (path / directory.CONFIG).write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("section", "field", "value", "message"),
    [
        ("config", "layres", [3], r"config\.json: The configuration has no field 'layres'"),
        ("config", "seed", -1, r"config\.json: --seed must be from 0"),
        ("data", "image_shape", [8], r"config\.json: the field 'image_shape' must be two positive integers; got \[8\]"),
        ("data", "checksum", None, r"config\.json: the field 'checksum' must be a string"),
    ],
)
def test_mistakes_in_a_configuration_file_are_named(halfway, section, field, value, message):
    edited(halfway, section, field, value)
    with pytest.raises(UsageError, match=message):
        directory.load(halfway)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "cannot be read"), ("[]", "not a JSON record"), ('{"config": {}}', "no section 'environment'")],
)
def test_a_damaged_configuration_file(halfway, content, message):
    (halfway / directory.CONFIG).write_text(content)
    with pytest.raises(UsageError, match=message):
        directory.load(halfway)


def test_another_model_than_the_configuration_says(halfway):
    edited(halfway, "config", "layers", [5, 3])
    with pytest.raises(UsageError, match=r"is of another model: .* there, and .* here"):
        session.resume(halfway)
    edited(halfway, "config", "estimator", "vimco")
    with pytest.raises(UsageError, match="is of another model: it and the configuration do not agree about"):
        session.resume(halfway)


def test_another_data_set_is_refused(halfway):
    edited(halfway, "data", "checksum", "0" * 64)
    with pytest.raises(UsageError, match=r"has changed since .* was trained on it .*: restore it"):
        session.resume(halfway)


def test_another_machine_is_a_warning(halfway):
    edited(halfway, "environment", "threads", 64)
    edited(halfway, "environment", "jaxlib", "0.0.1")
    recorder = Recorder()
    session.resume(halfway, recorder)
    (warning,) = recorder.warnings
    assert "The last bits of the result may differ" in warning
    assert "jaxlib 0.0.1 then" in warning
    assert "threads 64 then" in warning


def test_warnings_are_python_warnings_without_an_observer(halfway):
    edited(halfway, "environment", "cpu", "an abacus")
    with pytest.warns(UserWarning, match="cpu an abacus then"):
        session.resume(halfway)


# Starting from another run's weights


def test_init_from(reference, tmp_path):
    start = dataclasses.replace(SMALL, layers=(4, 3), init_from=str(reference), updates=1)
    run = session.train(dataclasses.replace(start, learning_rate=1e-30), tmp_path / "run")
    assert_same_arrays(arrays(run.path, "best.safetensors"), arrays(reference, "best.safetensors"))


def test_init_from_another_precision(reference):
    config = dataclasses.replace(SMALL, layers=(4, 3), init_from=str(reference), precision="float64")
    with precision(config):
        model = session._starting_model(Experiment(config, load_dataset("synthetic")))
    single = vimco.load(reference).model()
    assert (model.likelihood.bias.dtype, single.likelihood.bias.dtype) == (np.float64, np.float32)
    np.testing.assert_array_equal(model.likelihood.bias, np.asarray(single.likelihood.bias, np.float64))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": (5, 3)}, r"is of another model: '.*' is float32 .* there, and float32 .* here"),
        ({"layers": (3,)}, "is of another model: it and the configuration do not agree"),
        ({"init_from": "nowhere"}, "--init-from nowhere: there is no best.safetensors in it"),
        ({"symmetric": True}, "binary units are coded as 0 and 1, .* leave out --symmetric"),
    ],
)
def test_init_from_what_does_not_fit(reference, tmp_path, changes, message):
    config = dataclasses.replace(SMALL, **{"layers": (4, 3), "init_from": str(reference), **changes})
    with pytest.raises(UsageError, match=message):
        session.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_init_from_a_model_with_other_options_is_told(tmp_path):
    """Two deterministic units in the place of two binary ones have arrays of the same shapes."""
    config = dataclasses.replace(SMALL, task="structured", proposal="prior", updates=2)
    first = session.train(dataclasses.replace(config, layers=(4,)), tmp_path / "first")
    options = {"layers": (2,), "task_options": ("deterministic=2",), "init_from": str(first.path)}
    with pytest.warns(UserWarning, match="with other options of the task"):
        session.train(dataclasses.replace(config, **options), tmp_path / "second")


def test_a_checkpoint_names_the_best_of_its_file(tmp_path):
    """A run that crashes long before its next checkpoint is due, and one that then ends earlier than it had come."""

    class Crash(session.Observer):
        def advanced(self, update, seconds, latest):
            if update > 20:
                raise RuntimeError("crash")

    config = dataclasses.replace(SMALL, updates=30, log_every=4, validate_every=4, checkpoint_seconds=1e9)
    with pytest.raises(RuntimeError, match="crash"):
        session.train(config, tmp_path / "run", Crash())
    best = vimco.load(tmp_path / "run").update_of("best")
    assert checkpoints.latest_update(tmp_path / "run") >= best > 4
    run = session.resume(tmp_path / "run", updates=20)
    assert run.summary()["best"]["update"] == run.update_of("best") == run.best()[0]


def test_another_cadence_keeps_the_budget(tmp_path):
    run = session.train(dataclasses.replace(SMALL, updates=6), tmp_path / "run")
    resumed = session.resume(run.path, validate_every=3)
    assert (resumed.config.updates, resumed.config.validate_every) == (6, 3)
    unlimited = dataclasses.replace(SMALL, updates=None, validate_every=5)  # which means 100,000 updates
    with pytest.raises(session.Interrupted):
        session.train_or_resume(unlimited, run.path, Recorder(stop_at=7))
    assert vimco.load(run.path).config.updates == 100_000


def test_a_command_that_is_started_again_after_an_extension_leaves_the_run(tmp_path):
    config = dataclasses.replace(SMALL, updates=4)
    run = session.resume(session.train(config, tmp_path / "run").path, updates=6)
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    recorder = Recorder()
    again = session.train_or_resume(config, run.path, recorder)
    assert (again.updates, again.config.updates) == (6, 6)
    assert recorder.warnings == [f"{run.path} has done the 4 updates asked for, and was extended."]
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_it_leaves_a_run_whose_extension_was_stopped(tmp_path):
    config = dataclasses.replace(SMALL, updates=4)
    path = session.train(config, tmp_path / "run").path
    with pytest.raises(session.Interrupted):
        session.resume(path, Recorder(stop_at=6), updates=2000)
    recorder = Recorder()
    again = session.train_or_resume(config, path, recorder)
    assert recorder.warnings == [f"{path} has done the 4 updates asked for, and was extended."]
    assert again.config.updates == 2000
    assert 4 < checkpoints.latest_update(path) < 2000


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_resumed_run_keeps_its_other_options(tmp_path, has_checkpoint):
    path = session.train(dataclasses.replace(SMALL, updates=4), tmp_path / "run").path
    if not has_checkpoint:  # as if it had been stopped before the first one
        for file in path.glob("*.safetensors"):
            file.unlink()
    before = (path / "config.json").read_bytes()
    with pytest.raises(UsageError, match="learning_rate, seed cannot change when a run is resumed"):
        session.resume(path, seed=7, learning_rate=0.5, updates=9)
    assert (path / "config.json").read_bytes() == before


@pytest.mark.parametrize("killed", ["best.safetensors", "best_average.safetensors"])
def test_a_kill_before_the_best_is_written_loses_nothing(tmp_path, monkeypatch, killed):
    """The resumed run ends without another validation at that update, and without a better one."""
    bounds = itertools.chain([-3.0, -3.0, -2.0, -2.0], itertools.repeat(-4.0))
    monkeypatch.setattr(session, "evaluate", lambda *_: Evaluation(2, np.full(2, next(bounds)), np.ones(2), np.ones(2)))
    config = dataclasses.replace(SMALL, averaging=0.9, updates=50, checkpoint_seconds=1e9)
    write = session.write_tree

    def crash(path, tree, facts, **options):
        if path.name == killed and facts["update"] == 40:
            raise RuntimeError("killed")
        write(path, tree, facts, **options)

    with monkeypatch.context() as patch:
        patch.setattr(session, "write_tree", crash)
        with pytest.raises(RuntimeError, match="killed"):
            session.train(config, tmp_path / "run")
    run = session.resume(tmp_path / "run", updates=45)
    for weights, key in (("best", "best"), ("best-average", "best_average")):
        assert run.summary()[key] == {"update": 40, "validation_bound": -2.0}
        assert run.update_of(weights) == 40
    whole = session.train(dataclasses.replace(config, updates=40, validate_every=1000), tmp_path / "whole")
    assert_same_arrays(arrays(run.path, "best.safetensors"), arrays(whole.path, "best.safetensors"))


def test_an_error_without_a_text_is_raised_in_all_processes(monkeypatch):
    team = Team()
    team.size = 2
    monkeypatch.setattr(team, "_texts", lambda text: [text, ""])
    with pytest.raises(UsageError, match="TimeoutError"), team.as_one():
        raise TimeoutError


def test_another_cadence_does_not_refuse_a_budget_that_is_used_up(tmp_path):
    config = dataclasses.replace(SMALL, updates=None, minutes=1e-6)
    run = session.train(config, tmp_path / "run")
    again = session.train_or_resume(dataclasses.replace(config, log_every=7), run.path)
    assert (again.updates, again.config.log_every) == (run.updates, 7)
    with pytest.raises(UsageError, match="minutes already, and 1e-07 were asked for"):
        session.resume(run.path, minutes=1e-7)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_budget_that_ends_at_the_last_line_is_validated(tmp_path, is_lost):
    """The process was killed after the line and the checkpoint of update 30; a study may ask for 30 updates then."""
    config = dataclasses.replace(SMALL, updates=100, validate_every=1000, checkpoint_seconds=0.0)
    path = tmp_path / "run"

    class Ended(Recorder):
        def advanced(self, update, *arguments):
            if checkpoints.has_checkpoint(path) and checkpoints.latest_update(path) == 30:
                raise Killed

    with pytest.raises(Killed):
        session.train(config, path, Ended())
    (before,) = (line for line in vimco.load(path).metrics() if line["update"] == 30)
    if is_lost:
        (path / "metrics.jsonl").write_bytes(b"")
    run = session.resume(path, TrainingDisplay(), updates=30)
    assert [line["update"] for line in run.metrics()] == ([30] if is_lost else [10, 20, 30])
    assert is_lost or before.items() <= run.metrics()[-1].items()
    assert run.best() == (30, run.metrics()[-1]["validation_bound"])
    assert run.update_of("best") == 30
    assert run.evaluate(2).update == 30
    metrics = (path / "metrics.jsonl").read_bytes()
    session.resume(path)
    assert (path / "metrics.jsonl").read_bytes() == metrics


def test_a_run_that_ends_by_the_clock_logs_less_often_in_the_end(monkeypatch):
    """It never writes more lines than are read, and a line is due at some update of every doubling."""
    monkeypatch.setattr(session, "MOST_LOGGED", 1024)

    def due(every, total):
        runs = ((update, types.SimpleNamespace(total=total, update=update)) for update in range(1, 2**16))
        return [update for update, run in runs if update % session._Session._thinned(run, every) == 0]

    for every in (1, 10):
        updates = due(every, None)
        assert updates[:511] == [every * i for i in range(1, 512)]
        assert 512 < len(updates) <= 1024
        assert updates[-1] >= 2**15
    assert due(10, 2**16) == list(range(10, 2**16, 10))


def test_resuming_leaves_the_files_of_an_evaluation_alone(halfway):
    """`vimco evaluate` may be writing them; those that a killed training left behind are removed."""
    names = [".summary.json.1.part", ".evaluation-best-K5-part-1-of-2.safetensors.1.part", ".config.json.1.part"]
    for name in names:
        (halfway / name).write_bytes(b"half")
    with pytest.raises(session.Interrupted):
        session.resume(halfway, Recorder(stop_at=1))
    assert [(halfway / name).exists() for name in names] == [True, True, False]


def test_the_end_of_a_schedule_is_told_where_minutes_are_the_budget(tmp_path):
    recorder = Recorder(stop_at=3)
    config = dataclasses.replace(SMALL, updates=None, minutes=1.0, schedule="cosine", schedule_updates=2)
    with pytest.raises(session.Interrupted):
        session.train(config, tmp_path / "run", recorder)
    assert recorder.warnings == ["The cosine schedule ends at update 2: from there on the learning rate is zero."]


# From Python


def test_the_same_from_python(reference):
    run = vimco.load(str(reference))
    model = run.model()
    examples = vimco.Examples(jnp.asarray(run.dataset().test))
    by_hand = vimco.evaluate(model, examples, key_for(Purpose.EVALUATION, 0), 3)
    np.testing.assert_array_equal(by_hand.bound, run.evaluate(3).bound)
    with pytest.raises(UsageError, match="holds no run"):
        vimco.load(reference / "nowhere")


def test_evaluations_are_kept_and_replaced(halfway):
    run = vimco.load(halfway)
    for num_samples in (2, 3, 2):
        run.record_evaluation(run.evaluate(num_samples, "validation"), "validation", "best", 0)
    evaluations = run.summary()["evaluations"]
    assert [record["num_samples"] for record in evaluations] == [3, 2]
    assert evaluations[0] == {
        "split": "validation",
        "weights": "best",
        "seed": 0,
        "update": 30,
        **run.evaluate(3, "validation").to_json(),
    }
    session.resume(halfway, Recorder())
    assert "evaluations" not in run.summary()  # they were of an earlier best model


def test_evaluations_of_the_final_weights_outlive_the_end_of_the_run(reference, tmp_path):
    """As if made after the last validation and before the run finished, or before it was extended in vain."""
    run = vimco.load(shutil.copytree(reference, tmp_path / "run"))
    summary = run.summary()
    outcome = {name: summary[name] for name in ("updates", "epochs", "minutes", "best", "best_average", "note")}
    finals = {"best": outcome["best"]["update"], "best-average": outcome["best_average"]["update"], "latest": 90}
    record = {"split": "test", "seed": 0, "num_samples": 2, "negative_log_likelihood": 5.0, "standard_error": 0.1}
    kept = [{**record, "weights": weights, "update": update} for weights, update in finals.items()]
    stale = [{**record, "weights": weights, "update": 10, "seed": 1} for weights in finals]
    store.write_json(run.path / directory.SUMMARY, {"evaluations": [*stale, *kept]})
    run.record_outcome(outcome)
    assert run.summary() == {**outcome, "evaluations": kept}
    assert run.evaluation(2) == kept[0]

    store.write_json(run.path / directory.SUMMARY, {**outcome, "evaluations": kept})
    run.record_outcome({**outcome, "updates": 100})
    assert run.summary()["stages"] == [{"updates": 90, "evaluations": kept}]
    assert run.summary()["evaluations"] == kept[:2]  # the latest weights are of update 100


def test_an_extended_run_keeps_what_it_was_worth_before(reference, tmp_path):
    """Stage by stage, so that runs can be compared after equally many updates, whichever was extended."""
    path = shutil.copytree(reference, tmp_path / "run")
    run = vimco.load(path)
    measured = []
    for updates in (100, 110, None):
        run.record_evaluation(run.evaluate(2), "test", "best", 0)
        measured.append(run.summary()["evaluations"])
        if updates:
            session.resume(path, updates=updates)
    summary = run.summary()
    assert summary["evaluations"] == measured[2]
    expected = [{"updates": 90, "evaluations": measured[0]}, {"updates": 100, "evaluations": measured[1]}]
    assert summary["stages"] == expected


def test_an_evaluation_during_an_extension_is_not_of_the_stage_before_it(reference, tmp_path):
    """Its parameters are of update 95, which no run of 90 updates has."""
    path = shutil.copytree(reference, tmp_path / "run")
    run = vimco.load(path)
    run.record_evaluation(run.evaluate(2), "test", "best", 0)
    (earlier,) = run.summary()["evaluations"]
    run.record_evaluation(run.evaluate(2)._replace(update=95), "test", "best", 0)
    session.resume(path, updates=100)
    assert run.summary()["stages"] == [{"updates": 90, "evaluations": [earlier]}]


def test_an_extension_may_change_the_cadence(reference, tmp_path):
    """A study does so after a short trial of it: the long run is not validated as often as the short one."""
    path = shutil.copytree(reference, tmp_path / "run")
    longer = dataclasses.replace(EVERYTHING, updates=150, log_every=50, validate_every=50)
    session.train_or_resume(longer, path)
    assert vimco.load(path).config == longer
    assert [line["update"] for line in vimco.load(path).metrics() if line["update"] > 90] == [100, 150]
    whole = session.train(longer, tmp_path / "whole")
    assert_same_arrays(arrays(path), arrays(whole.path))


def test_evaluations_at_the_same_moment_are_all_kept(halfway, monkeypatch):
    """Each reads and rewrites the summary; without a lock it would lose evaluations written in between."""
    run = vimco.load(halfway)
    evaluation = run.evaluate(2, "validation")
    write_json = directory.write_json

    def late(*arguments):
        time.sleep(0.05)
        write_json(*arguments)

    monkeypatch.setattr(directory, "write_json", late)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: run.record_evaluation(evaluation, "validation", "best", seed), range(4)))
    assert {record["seed"] for record in run.summary()["evaluations"]} == {0, 1, 2, 3}


def test_weights_that_are_not_there(tmp_path, halfway):
    run = vimco.load(halfway)
    (halfway / "best.safetensors").unlink()
    with pytest.raises(UsageError, match="holds no best model, but the best-average one: choose it by --weights"):
        run.model()
    plain = dataclasses.replace(run, config=dataclasses.replace(run.config, averaging=None))
    (halfway / "best_average.safetensors").unlink()
    with pytest.raises(UsageError, match="train with --averaging"):
        plain.model("best-average")
    with pytest.raises(UsageError, match="holds no best model yet"):
        run.model()
    (halfway / checkpoints.CHECKPOINT).write_bytes(b"")
    with pytest.warns(UserWarning, match="Resuming from the checkpoint before it"):
        run.model("latest")


# Silent errors


def test_an_evaluation_is_of_the_weights_that_were_read(reference, tmp_path, monkeypatch):
    """Training writes better ones during the evaluation."""
    path = shutil.copytree(reference, tmp_path / "run")
    run, evaluate = vimco.load(path), directory.evaluate
    update = run.update_of("best")

    def meanwhile(*arguments, **options):
        model, facts = read_arrays(path / "best.safetensors")
        write_tree(path / "best.safetensors", model, {**facts, "update": update + 1})
        return evaluate(*arguments, **options)

    monkeypatch.setattr(directory, "evaluate", meanwhile)
    run.record_evaluation(run.evaluate(2), "test", "best", 0)
    assert (run.summary()["evaluations"][0]["update"], run.update_of("best")) == (update, update + 1)


def test_the_latest_update_comes_from_a_header_alone(halfway, monkeypatch):
    run, expected = vimco.load(halfway), int(arrays(halfway)["update"])
    monkeypatch.setattr(store.safetensors.numpy, "load", None)
    monkeypatch.setattr(store, "read_file", None)
    assert run.update_of("latest") == expected > 0


def test_weights_of_another_run_are_refused(halfway):
    """They have the same shapes, but another learning rate."""
    edited(halfway, "config", "learning_rate", 0.02)
    for weights in ("best", "best-average", "latest"):
        with pytest.raises(UsageError, match=r"is of another run: its learning_rate is 0\.01, and 0\.02 here"):
            vimco.load(halfway).model(weights)
    with pytest.raises(UsageError, match="is of another run"):
        session.resume(halfway)


def test_weights_of_other_data_are_refused(halfway):
    arrays_of_best, facts = read_arrays(halfway / "best.safetensors")
    write_tree(halfway / "best.safetensors", arrays_of_best, {**facts, "checksum": "0" * 64})
    with pytest.raises(UsageError, match="is of another run: its checksum of the data is '000"):
        vimco.load(halfway).model()


def test_a_directory_that_is_swapped_under_a_trainer(reference, tmp_path):
    path, moved = tmp_path / "run", tmp_path / "moved"

    class Swapping(Recorder):
        def advanced(self, update, seconds, latest):
            if update >= 45 and not moved.exists():
                path.rename(moved)
                path.mkdir()
                (path / "notes").write_text("mine")

    with pytest.raises(UsageError, match="was moved, removed or replaced while it was being trained in"):
        session.train(EVERYTHING, path, Swapping())
    assert [entry.name for entry in path.iterdir()] == ["notes"]
    session.resume(moved, Recorder())
    assert_same_outcome(moved, reference)


def test_a_damaged_line_of_metrics_is_told(halfway):
    path = halfway / directory.METRICS
    path.write_bytes(path.read_bytes().replace(b'"update"', b'"updatd"', 1))
    recorder = Recorder()
    session.resume(halfway, recorder)
    (warning,) = recorder.warnings
    assert "metrics.jsonl: 1 line is damaged, and left out" in warning


def test_a_last_line_of_metrics_that_is_gone_is_told(halfway):
    """A line without its end may be one that is being written, but a checkpoint comes after its line."""
    path = halfway / directory.METRICS
    path.write_bytes(path.read_bytes()[:-1] + b"}")
    recorder = Recorder()
    session.resume(halfway, recorder)
    (warning,) = recorder.warnings
    assert "metrics.jsonl: the line of update 40 was written, and is damaged or gone" in warning


@pytest.mark.parametrize(
    "changes",
    [
        {"update": "45"},
        {"seconds": None},
        {"best": []},
        {"best_average": {"update": 1}},
        {"identity": 3},
        {"update": 10**400},
        {"update": -1},
        {"update": 44},
        {"logged_update": 10**6},
        {"seconds": -1.0},
        {"logged_seconds": 1e9},
    ],
)
def test_wrong_facts_with_a_right_checksum_are_damage(reference, halfway, changes):
    content, facts = read_arrays(halfway / checkpoints.CHECKPOINT)
    write_tree(halfway / checkpoints.CHECKPOINT, content, {**facts, **changes})
    checkpoint = checkpoints.latest_checkpoint(halfway)
    assert "Resuming from the checkpoint before it" in checkpoint.fallback


def test_arrays_of_a_type_that_numpy_does_not_have_are_damage(tmp_path):
    for kind, size in (("BF16", 2), ("F8_E4M3", 1), ("F4", 1), ("X", 1)):
        header = json.dumps({"a": {"dtype": kind, "shape": [1], "data_offsets": [0, size]}}).encode()
        (tmp_path / "tree").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * size)
        with pytest.raises(DamagedFileError):
            read_arrays(tmp_path / "tree")


def test_a_run_of_an_earlier_version_is_not_resumed(halfway):
    for name in (checkpoints.CHECKPOINT, checkpoints.PREVIOUS):
        content, facts = read_arrays(halfway / name)
        earlier = {name: facts[name] for name in ("update", "seconds", "best", "best_average")}
        write_tree(halfway / name, content, earlier)
    assert vimco.load(halfway).model("latest")
    with pytest.raises(UsageError, match=r"can be evaluated and drawn, but not resumed.*--init-from"):
        session.resume(halfway)


def test_a_run_that_ends_twice_gains_nothing(reference, tmp_path):
    """As if resumed once more."""
    path = shutil.copytree(reference, tmp_path / "run")
    session.resume(path, Recorder())
    assert (path / directory.SUMMARY).read_bytes() == (reference / directory.SUMMARY).read_bytes()


def test_the_summary_is_the_last_file(reference, tmp_path, monkeypatch):
    """A study that finds it counts the run as done, so a run that was killed before its pictures would get none."""
    path = shutil.copytree(reference, tmp_path / "run")
    (path / directory.SUMMARY).unlink()
    for name in ("curves", "samples"):
        monkeypatch.setattr(pictures, f"draw_{name}", lambda run, n=name, **_: replace_file(run.path / f"{n}.png", b""))
    with pytest.raises(Killed), killed_where(lambda _, place: place[1] == ".summary.json.part"):
        session.resume(path, Recorder())
    assert (path / "curves.png").exists()
    assert (path / "samples.png").exists()
    assert not (path / directory.SUMMARY).exists()


def test_the_remains_of_a_killed_evaluation_are_removed(reference, tmp_path):
    """Nobody resumes a run that has ended, so the next evaluation does it."""
    run = directory.load(shutil.copytree(reference, tmp_path / "run"))
    evaluation = Evaluation(2, *np.zeros((3, 5)), update=90)
    with pytest.raises(Killed), killed_where(lambda _, place: place[0] == "_write", "within"):
        run.record_evaluation(evaluation, "test", "best", 0)
    assert list(run.path.glob(".*.part"))
    run.record_evaluation(evaluation, "test", "best", 0)
    assert not list(run.path.glob(".*.part"))


# Signals


def test_a_second_signal_acts_at_once():
    """For both signals; afterwards the handlers are restored."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with interrupts.collect_signals() as received:
        signal.raise_signal(signal.SIGTERM)
        assert received == [signal.SIGTERM]
        time.sleep(2 * interrupts.TOGETHER_SECONDS)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_signals_at_one_moment_are_one_request():
    with interrupts.collect_signals() as received:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(name)
        assert received == [signal.SIGINT]


ENDING = """
from vimco.runs.interrupts import collect_signals
with collect_signals() as received, received.end_at_once_on_sigterm():
    print("compiling", flush=True)
    sum(range(10**11))  # in C, as a compiler: no Python handler runs before it ends
"""


def test_sigterm_ends_a_process_that_compiles_and_has_nothing_to_save():
    process = subprocess.Popen([sys.executable, "-c", ENDING], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"compiling\n"
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM


def test_a_signal_that_is_ignored_stays_so(monkeypatch):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with interrupts.collect_signals() as received:
            signal.raise_signal(signal.SIGTERM)
        assert received == []
    finally:
        signal.signal(signal.SIGTERM, before)


# TensorBoard


def scalars(folder):
    """Return the scalars in all event files: records of a length, its checksum, an event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event = Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
    return found


def test_event_files_hold_the_metrics_once(tmp_path):
    pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    config = dataclasses.replace(SMALL, tensorboard=True)
    run = stopped_run(config, tmp_path / "run", 25)
    session.resume(run.path, Recorder())
    found = scalars(run.path / "tensorboard")
    expected = [
        (name, line["update"], value)
        for line in run.metrics()
        for name, value in line.items()
        if name not in ("update", "epoch", "seconds", "processor_seconds")
    ]
    assert [entry[:2] for entry in found] == [entry[:2] for entry in expected]
    np.testing.assert_allclose([entry[2] for entry in found], [entry[2] for entry in expected], rtol=1e-6)


def test_event_files_are_those_of_tensorboardx(tmp_path):
    """The same bytes as its own writer makes of the same events, but for the time."""
    writer = pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    run = session.train(dataclasses.replace(SMALL, tensorboard=True), tmp_path / "run")
    with writer.SummaryWriter(str(tmp_path / "theirs")) as theirs:
        for line in run.metrics():
            for name in line.keys() - {"update", "epoch", "seconds", "processor_seconds"}:
                theirs.add_scalar(name, line[name], line["update"])
    assert sorted(scalars(run.path / "tensorboard")) == sorted(scalars(tmp_path / "theirs"))
    (own,), (other,) = (sorted(folder.iterdir()) for folder in (run.path / "tensorboard", tmp_path / "theirs"))
    assert own.stat().st_size == other.stat().st_size
    content = own.read_bytes()  # every checksum is right
    from tensorboardX.record_writer import masked_crc32c

    while content:
        (length,) = struct.unpack("<Q", content[:8])
        for start, end in ((0, 8), (12, 12 + length)):
            assert struct.unpack("<I", content[end : end + 4]) == (masked_crc32c(content[start:end]),)
        content = content[16 + length :]


def test_a_full_disk_ends_a_training_with_event_files(tmp_path, monkeypatch):
    """The library's own writer would leave the training waiting for ever."""
    pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    write = files._write

    def full(descriptor, content):
        if "tfevents" in str(pathlib.Path(f"/proc/self/fd/{descriptor}").readlink()) and len(content) < 2000:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(descriptor, content)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_write", full)
        with pytest.raises(UsageError, match=r"tfevents.*No space left on device"):
            session.train(dataclasses.replace(SMALL, tensorboard=True), tmp_path / "run")
    session.resume(tmp_path / "run", Recorder())
    assert vimco.load(tmp_path / "run").updates == 50


def test_event_files_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UsageError, match=r'pip install "\.\[tensorboard\]" in the'):
        session.train(dataclasses.replace(SMALL, tensorboard=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_timing_is_all_but_timing(reference):
    """The comparison above leaves out exactly two fields."""
    line = directory.load(reference).metrics()[2]
    assert line.keys() - without_timing([line])[0].keys() == {"updates_per_second", "seconds", "processor_seconds"}
