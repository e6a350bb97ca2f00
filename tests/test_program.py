"""The program: its output and exit status. It runs in separate processes where that matters (signals, kills, limits,
terminals), and in this process elsewhere."""

import base64
import contextlib
import csv
import dataclasses
import io
import json
import math
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest
from enumeration import all_configurations
from program import (
    EVERYTHING,
    PROGRAM,
    arrays,
    assert_same_arrays,
    assert_same_outcome,
    environment,
    finished,
    options,
    vimco,
    wait_for_update,
)
from recorded import recorded_run

from vimco import __version__, cli
from vimco.cli import layout
from vimco.cli.layout import Layout
from vimco.data import catalogue, load_dataset
from vimco.errors import UsageError
from vimco.models.pictures import completions, samples_and_reconstructions
from vimco.runs import checkpoints, directory, figures, session
from vimco.runs.config import RunConfig
from vimco.samples import Batch, Examples
from vimco.training.evaluation import Evaluation

REAL_DATA = os.environ.get("VIMCO_DATA")
LONG = dataclasses.replace(EVERYTHING, updates=1500, log_every=25, validate_every=500)  # seconds, not milliseconds
SMALL = RunConfig(data="synthetic", layers=(3,), num_samples=2, updates=50, log_every=10, validate_every=20)


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory, monkeypatch):
    """Run each test in an empty folder, without the user's data."""
    folder = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("VIMCO_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("VIMCO_DATA", raising=False)
    return folder


@pytest.fixture
def program(capsys, monkeypatch):
    """Return a function that calls the entry point with arguments; it returns exit status, output and errors."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the program sets its own

    def call(*arguments):
        status = 0
        try:
            cli.main(list(map(str, arguments)))
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder in which the programs of this module run, with their compilation cache."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def reference(folder):
    """Return an undisturbed run of the program."""
    status, out, err = finished(vimco("train", *options(LONG), "--output", "reference", folder=folder))
    assert status == 0, err
    assert_plain(out, err)
    assert len(out.splitlines()) < 10
    assert len(err.splitlines()) == 3  # validations
    return folder / "reference"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return two small runs that differ in their seed, with pictures."""
    path = tmp_path_factory.mktemp("trained")
    return [session.train(dataclasses.replace(SMALL, seed=seed), path / str(seed)).path for seed in (0, 1)]


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained[0], tmp_path / "run")


@pytest.fixture(scope="module")
def structured(tmp_path_factory):
    config = dataclasses.replace(SMALL, task="structured", updates=1)
    return session.train(config, tmp_path_factory.mktemp("structured") / "run").path


def assert_plain(*texts):
    """Assert that a text is fit for a log file: plain lines without redrawn bars and colours."""
    for text in texts:
        assert not set(text) & {"\r", "\x1b", "\x07", "\x08"}, text


# Training: stopped, killed, resumed


def test_ctrl_c_while_the_program_is_imported(tmp_path):
    """The import of JAX, which takes longest, is interrupted, and JAX would even handle the exception."""
    (tmp_path / "jax.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    raise ImportError"
    )
    script = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["scripts"]["vimco"]
    module, function = script.split(":")
    done = subprocess.run(
        [sys.executable, "-c", f"from {module} import {function}; {function}()"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Stopped.\n")


def test_the_command_that_resumes_has_the_same_devices():
    assert Layout(devices=4).words == ["--devices", "4"]
    assert Layout(distributed=True).words == ["--distributed"]
    assert Layout().words == []


def test_stopped_and_killed_in_every_way_is_as_if_never_stopped(folder, program, reference):
    """SIGTERM, SIGINT in a terminal, SIGKILL; then the rest."""
    path = folder / "run"
    process = vimco("train", *options(LONG), "--output", "run", folder=folder)
    wait_for_update(process, path, 100)

    status, out, err = program("train", "--resume", path)
    assert (status, out) == (2, "")
    assert "Another process is training in" in err

    process.send_signal(signal.SIGTERM)
    status, out, err = finished(process)
    assert status == 143, err
    assert "Stopped at update" in err
    assert "nothing is lost. Resume with: vimco resume run\n" in err
    assert out.startswith("run: generative SBN 4-3 on synthetic, nvil, K = 2; starts.")
    assert_plain(out, err)
    stopped_at = int(arrays(path)["update"])
    assert 100 <= stopped_at < 1500

    ours, theirs = pty.openpty()
    process = vimco("train", "--resume", "run", folder=folder, stderr=theirs)
    os.close(theirs)
    screen = bytearray()
    reader = threading.Thread(target=read_screen, args=(ours, screen))
    reader.start()
    wait_for_update(process, path, stopped_at + 200)
    process.send_signal(signal.SIGINT)
    status, out, _ = finished(process)
    reader.join()
    text = screen.decode()
    assert status == 130, text
    assert f"resumes at update {stopped_at:,}" in out
    assert "compiling" in text
    assert "training bound" in text
    assert "Resume with: vimco resume run" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is shown again

    process = vimco("train", "--resume", "run", folder=folder)
    wait_for_update(process, path, int(arrays(path)["update"]) + 100)
    process.kill()
    assert finished(process)[0] == -signal.SIGKILL

    status, out, err = finished(vimco("train", "--resume", "run", folder=folder))
    assert status == 0, err
    assert "Done: 1,500 updates (60 epochs" in out
    assert "vimco evaluate run" in out

    assert_same_outcome(path, reference)
    for name in ("curves.png", "samples.png"):
        assert matplotlib.image.imread(path / name).ndim == 3


def read_screen(descriptor, screen):
    """Return everything that is written until the other end is closed."""
    try:
        while chunk := os.read(descriptor, 4096):
            screen += chunk
    except OSError:  # raised by Linux when the other end is closed
        pass
    os.close(descriptor)


def test_a_full_disk(folder, reference, tmp_path):
    """Simulated by a limit on the size of files, which only the checkpoint exceeds."""
    path = shutil.copytree(reference, tmp_path / "run")
    before = (path / checkpoints.CHECKPOINT).read_bytes()
    words = ("train", "--resume", path, "--updates", "3010")
    process = vimco(*words, folder=folder, largest_file=len(before) - 1000)
    status, _, err = finished(process)
    assert status == 2
    assert "checkpoint.safetensors could not be written: File too large. What was there before is intact" in err
    assert "Traceback" not in err
    assert (path / checkpoints.CHECKPOINT).read_bytes() == before
    assert not list(path.glob(".*.part"))


def test_two_damaged_checkpoints(run, program):
    for name in (checkpoints.CHECKPOINT, checkpoints.PREVIOUS):
        (run / name).write_bytes(b"")
    status, out, err = program("train", "--resume", run, "--updates", "60")
    assert (status, out) == (2, "")
    assert err.startswith("Error: ")
    assert "start a new run" in err


def test_one_damaged_checkpoint(run, program):
    (run / checkpoints.CHECKPOINT).write_bytes(b"")
    status, _, err = program("train", "--resume", run)
    assert status == 0
    assert err.startswith("Note: ")
    assert "Resuming from the checkpoint before it" in err


def test_a_new_run_says_where_it_is_and_what_came_out(program, own_folder, trained):
    """Without --output, in a directory of its own; twice, in two."""
    for name in ("synthetic-generative-vimco-K2-seed0", "synthetic-generative-vimco-K2-seed0-2"):
        status, out, err = program("train", *options(SMALL))
        assert status == 0, err
        assert_plain(out, err)
        path = own_folder / "runs" / name
        assert out.splitlines()[0].startswith(f"runs/{name}: generative SBN 3 on synthetic, vimco, K = 2; starts.")
        assert "Best validation bound: -" in out
        assert f"runs/{name}/samples.png" in out
        assert_same_arrays(arrays(path), arrays(trained[0]))
    assert [line.split()[:2] for line in err.splitlines()] == [["update", "20"], ["update", "40"], ["update", "50"]]


def test_names_that_look_like_markup(program, own_folder):
    """A path is printed unchanged."""
    status, out, _ = program("train", *options(SMALL), "--output", "[red]x[/red] :smile: {y}")
    assert status == 0
    assert out.startswith("[red]x[/red] :smile: {y}: generative")
    status, out, _ = program("evaluate", "[red]x[/red] :smile: {y}", "--num-samples", "2")
    assert status == 0
    assert out.startswith("[red]x[/red] :smile: {y}: negative")


def test_your_own_images(program, own_folder):
    """An .npz file; when it changes, the run that was trained on it cannot be resumed."""
    bars = load_dataset("synthetic")
    np.savez("bars.npz", train=bars.train, validation=bars.validation, test=bars.test)
    own = dataclasses.replace(SMALL, data="bars.npz")
    assert program("train", *options(own), "--output", "own")[0] == 0
    np.savez("bars.npz", train=1 - bars.train, validation=bars.validation, test=bars.test)
    status, _, err = program("train", "--resume", "own", "--updates", "60")
    assert status == 2
    assert "The data set bars.npz has changed since own was trained on it" in err


def test_divergence_is_told(program, monkeypatch, own_folder):
    nan = Evaluation(2, np.full(2, np.nan), np.ones(2), np.ones(2))
    monkeypatch.setattr(session, "evaluate", lambda *_: nan)
    status, _, err = program("train", *options(SMALL), "--output", "run")
    assert status == 2
    assert err.startswith("Error: At update 20 the validation bound ceased to be finite")
    assert all(np.isfinite(array).all() for array in arrays("run").values())


# Mistakes


MISTAKES = [
    ("train --learning-rate 0", "Error: --learning-rate must be a positive, finite number; got 0.0."),
    ("train --epochs inf", "--epochs must be a positive, finite number"),
    ("train --updates 1 --minutes 1", "Give one budget"),
    ("train --layers 4 x", "--layers"),
    ("train --layers", "--layers needs one or more positive widths"),
    ("train --estimator reinforce", "There is no estimator 'reinforce'; choose one of"),
    ("train --seed -3", "--seed must be from 0 to 4294967295"),
    ("train --nonsense 3", "--nonsense"),
    (
        "train --recipe cake",
        "There is no recipe 'cake'; choose one of falling, warm, warm-decay, cool-down, raiko, burda",
    ),
    ("train --proposal prior", "--proposal prior goes with --task attention or structured"),
    ("train --data synthetic --num-samples 1", "VIMCO compares samples with each other"),
    ("train --data synthetic --updates 3000000000", "--updates must be at most 2,147,483,647"),
    ("train --data synthetic --batch-size 1000", "more than the 600 training examples"),
    ("train --data synthetic --binarize 3", "nothing to binarize"),
    ("train --data nothing", "There is no data set 'nothing'"),
    ("train --data nothing.npy", "There is no file nothing.npy"),
    ("train --data synthetic --layers 3 --init-from nowhere", "--init-from nowhere: there is no best.safetensors"),
    ("train --resume nowhere", "nowhere holds no run"),
    ("resume nowhere", "nowhere holds no run"),
    ("train --resume nowhere --output there", "leave --output out"),
    ("train --output there --or-resume --wait -1", "--wait is a number of seconds"),
    ("train --wait 5", "goes with --or-resume"),
    ("evaluate", "Name one or more run directories"),
    ("evaluate nowhere", "nowhere holds no run"),
    ("evaluate nowhere --num-samples 0", "--num-samples must be positive"),
    ("evaluate nowhere --per-example no/where.csv", "--per-example no/where.csv"),
    ("evaluate nowhere --split all", "--split"),
    ("evaluate nowhere --part 3 2", "--part 2 5 is the second of five"),
    ("evaluate nowhere --part 1 2 --split validation", "--part evaluates the test split"),
    ("study table-1 --cluster-options options.yaml", "--cluster-options needs --cluster"),
    ("sample nowhere", "nowhere holds no run"),
    ("sample nowhere --rows 0", "--rows and --columns must be positive"),
    ("sample nowhere --output no/where.png", "--output no/where.png"),
    ("sample", "RUN"),
    ("page nowhere", "nowhere holds no run"),
    ("page nowhere --output no/where.html", "--output no/where.html"),
    ("data", "list"),
    ("data fetch", "NAME"),
    ("data fetch mnist", "nothing to fetch"),
    ("data fetch nothing", "There is no data set 'nothing'"),
    ("data fetch binarized-mnist --from nowhere", "binarized_mnist_train.amat"),
    ("trian", "trian"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes(program, own_folder, words, message):
    """A message on stderr, exit status 2, no traceback, and nothing written."""
    status, out, err = program(*words.split())
    assert status == 2
    assert message in err
    assert "Traceback" not in err
    assert "tyro" not in err
    assert out == ""
    assert list(own_folder.iterdir()) == []


def test_offline(program, own_folder, monkeypatch):
    """Without network and folder, the message explains how to give one."""
    published = catalogue.DATASETS["binarized-mnist"]
    nobody = dataclasses.replace(published, mirrors=("http://127.0.0.1:9/",))  # the discard port: nothing listens
    monkeypatch.setitem(catalogue.DATASETS, "binarized-mnist", nobody)
    status, _, err = program("train", "--data", "binarized-mnist")
    assert status == 2
    assert "vimco data fetch binarized-mnist --from FOLDER" in err
    assert list(own_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--learning-rate 0.01", "--learning-rate cannot change when a run is resumed (it is 0.001 in"),
        ("--layers 200 200 200", "--layers cannot change when a run is resumed (it is (3,) in"),  # its default
        ("--num-samples=5", "--num-samples cannot change"),
        ("--output elsewhere", "leave --output out"),
        ("--recipe falling", "leave --recipe out"),
        ("--recipe cool-down", "leave --recipe out"),
        ("--updates 20", "has done 50 updates already, more than the 20 asked for"),
        ("--updates 60 --epochs 3", "Give one budget"),
    ],
)
def test_what_resuming_cannot_change(program, run, words, message):
    status, _, err = program("train", "--resume", run, *words.split())
    assert status == 2
    assert message in err


@pytest.mark.parametrize(
    ("config", "words", "message"),
    [
        (
            RunConfig(estimator="renyi-warmup", estimator_options=("updates=9",)),
            "--estimator nvil",
            "--estimator cannot",
        ),
        (
            RunConfig(minutes=1.0),
            "--schedule cosine",
            "--schedule cannot change",
        ),  # which would need --schedule-updates
    ],
)
def test_an_option_of_a_resumed_run_is_refused_for_itself(program, tmp_path, config, words, message):
    """What would be wrong with the run if it had the option is another matter."""
    path = recorded_run(tmp_path, dataclasses.replace(config, data="synthetic"))
    status, _, err = program("train", "--resume", path, *words.split())
    assert status == 2
    assert message in err


def test_resuming_by_its_own_command(program, run):
    status, out, err = program("resume", run, "--updates", "60")
    assert status == 0, err
    assert "resumes at update 50" in out
    assert "Done: 60 updates" in out
    status, _, err = program("resume", run, "--updates", "70", "--epochs", "9")
    assert status == 2
    assert "Give one budget" in err


def test_resuming_with_the_runs_own_options(program, run):
    status, out, err = program("train", "--resume", run, "--layers", "3", "--no-symmetric", "--updates", "55")
    assert status == 0, err
    assert "Done: 55 updates" in out


def test_a_recipe_stands_behind_the_options_beside_it(program, own_folder):
    small = options(dataclasses.replace(SMALL, updates=4))
    status, _, err = program("train", *small, "--recipe", "falling", "--learning-rate", "0.002", "--output", "run")
    assert status == 0, err
    config = directory.load("run").config
    assert (config.schedule, config.averaging, config.learning_rate) == ("cosine", 0.999, 0.002)


def test_an_occupied_directory(program, run, own_folder):
    status, _, err = program("train", *options(SMALL), "--output", run)
    assert status == 2
    assert f"vimco resume {run}" in err
    (own_folder / "notes").write_text("mine")
    status, _, err = program("train", *options(SMALL), "--output", ".")
    assert status == 2
    assert "is not an empty directory" in err
    assert [entry.name for entry in own_folder.iterdir()] == ["notes"]


def test_a_configuration_file_with_a_mistake(program, run):
    record = json.loads((run / "config.json").read_text())
    record["config"]["num_sample"] = 5
    (run / "config.json").write_text(json.dumps(record))
    for command in (["evaluate"], ["sample"], ["train", "--resume"]):
        status, _, err = program(*command, run)
        assert status == 2
        assert "no field 'num_sample'" in err


def test_too_little_memory_is_a_message_and_a_mistake_of_ours_is_not(program, monkeypatch):
    def fail(*_, **__):
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr(session, "train", fail)
    message = "RESOURCE_EXHAUSTED: Out of memory allocating 75264000128 bytes."
    status, _, err = program("train", "--num-samples", "1000000")
    assert status == 2
    assert "--slice-size" in err
    message = "INTERNAL: something else"
    with pytest.raises(jax.errors.JaxRuntimeError):
        program("train")


# Help


@pytest.mark.parametrize(
    "command", ["", "train", "evaluate", "sample", "page", "data", "data list", "data fetch", "study", "report"]
)
def test_help(program, command):
    status, out, err = program(*command.split(), "--help")
    assert (status, err) == (0, "")
    assert f"vimco {command}".strip() in out
    assert "tyro" not in out
    for line in out.splitlines():
        assert len(line) < 250
    if command == "train":
        wanted = "task proposal layers estimator num-samples updates learning-rate batch-size seed data output resume"
        assert all(f"--{option}" in out for option in wanted.split())


def test_help_of_a_named_estimator_and_task(program):
    """The options of both follow the help; a name that is not registered is named, and so are the others."""
    status, out, err = program("train", "--estimator", "nvil", "--task=gaussian", "--help")
    assert (status, err) == (0, "")
    text = " ".join(out.split())
    assert "Of --estimator nvil, given as --estimator-options option=value" in text
    assert "option of nvil" in text
    assert "local-signals" in text
    assert text.index("--num-samples") < text.index("option of nvil") < text.index("option of gaussian")
    assert "The estimator naive has no options." in program("train", "--help", "--estimator", "naive")[1]
    status, _, err = program("train", "--estimator", "nvli", "--help")
    assert status == 2
    assert "There is no estimator 'nvli'; choose one of" in err
    assert "option of" not in program("train", "--help")[1]


def test_version_and_overview(program, folder):
    """Once through the installed program."""
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, env=environment(folder))
    assert (version.returncode, version.stdout, version.stderr) == (0, f"vimco {__version__}\n", "")
    assert program() == program("--help") == program("-h")
    assert "vimco resume RUN" in program()[1]


def test_list_of_data_sets(program):
    status, out, err = program("data", "list")
    assert (status, err) == (0, "")
    assert all(name in out for name in ("mnist", "binarized-mnist", "caltech-silhouettes", "synthetic"))


# Evaluation


def test_evaluate_in_sentences(program, run):
    status, out, err = program("evaluate", run, "--num-samples", "20")
    assert (status, err) == (0, "")
    assert_plain(out)
    evaluation = directory.load(run).evaluate(20)
    assert f"negative log-likelihood {evaluation.negative_log_likelihood:.2f} nats ±" in out
    assert f"± {evaluation.monte_carlo_error:.3f} (Monte Carlo)" in out
    assert "test split, all 200 examples, K = 20, best weights" in out
    (record,) = directory.load(run).summary()["evaluations"]
    assert record["negative_log_likelihood"] == evaluation.negative_log_likelihood
    assert "(Monte Carlo error unknown)" in program("evaluate", run, "--num-samples", "1")[1]


def test_evaluate_in_json(program, run):
    status, out, _ = program(
        "evaluate", run, "--num-samples", 3, "--split", "validation", "--json", "--weights", "latest"
    )
    assert status == 0
    record = json.loads(out)
    expected = directory.load(run).evaluate(3, "validation", weights="latest").to_json()
    assert record == {"run": str(run), "split": "validation", "weights": "latest", **expected}


def test_evaluate_by_the_jackknife_beside_the_exact_likelihood(program, run):
    """P(x) is a sum over 2^7 latents: the jackknife of a few samples is closer to it than the bound."""
    status, out, err = program("evaluate", run, "--num-samples", 4, "--seed", 5, "--jackknife")
    assert (status, err) == (0, "")
    loaded = directory.load(run)
    record = next(e for e in loaded.summary()["evaluations"] if e["seed"] == 5)
    value = record["jackknife_negative_log_likelihood"]
    assert f"  by the jackknife {value:.2f} nats: less biased than the bound" in out
    assert value == loaded.evaluate(4, seed=5, jackknife=True).jackknife_negative_log_likelihood
    loaded.record_evaluation(loaded.evaluate(4, seed=5), "test", "best", 5)  # of the same samples, without it
    assert next(e for e in loaded.summary()["evaluations"] if e["seed"] == 5) == record

    def log_likelihood(image):
        configurations = all_configurations(loaded.model(), loaded.config.layers, Batch(image[None].astype(float)))
        return jax.nn.logsumexp(configurations.log_joint)

    exact = -float(jnp.mean(jax.lax.map(log_likelihood, jnp.asarray(loaded.dataset().test))))
    assert abs(value - exact) < record["negative_log_likelihood"] - exact
    status, _, err = program("evaluate", run, "--num-samples", 1, "--jackknife")
    assert status == 2
    assert "needs --num-samples 2 or more" in err


def test_a_note_beside_likelihoods_that_cannot_be_compared(program, run):
    """As of the embedded MNIST; also while the run has no summary."""
    record = json.loads((run / "config.json").read_text())
    record["data"]["note"] = load_dataset("mnist").note
    (run / "config.json").write_text(json.dumps(record))
    (run / "summary.json").unlink()
    assert "not comparable with, the paper's" in program("evaluate", run, "--num-samples", "3")[1]


def test_paired_comparison(program, trained, own_folder):
    first, second = (directory.load(path).evaluate(20) for path in trained)
    difference = first.bound - second.bound
    mean, error = difference.mean(), difference.std(ddof=1) / 200**0.5
    words = ("evaluate", *trained, "--num-samples", "20")
    status, out, _ = program(*words, "--per-example", "bounds.csv")
    assert status == 0
    verdict = "lower, that is better" if mean < 0 else "higher, that is worse"
    assert f"{trained[1]} is {abs(mean):.3f} ± {error:.3f} nats {verdict} than {trained[0]}" in out
    assert "paired over 200 examples" in out

    rows = list(csv.DictReader((own_folder / "bounds.csv").read_text().splitlines()))
    assert [row["run"] for row in rows] == [str(path) for path in trained for _ in range(200)]
    assert [int(row["example"]) for row in rows] == 2 * list(range(200))
    np.testing.assert_allclose([float(row["bound"]) for row in rows], [*first.bound, *second.bound], atol=1e-5)
    np.testing.assert_allclose([float(row["variance"]) for row in rows], [*first.variance, *second.variance], rtol=1e-4)

    records = json.loads(program(*words, "--json")[1])
    assert records[1]["minus_first"] == pytest.approx({"difference": mean, "standard_error": error}, rel=1e-4)


def test_what_is_not_alike_is_not_compared(program, run, structured):
    status, out, _ = program("evaluate", run, structured, "--num-samples", "3")
    assert status == 0
    assert "different tasks, data or scenes: no paired comparison" in out


def test_equal_runs_are_not_told_as_worse(program, run):
    _, out, _ = program("evaluate", run, run, "--num-samples", "3")
    assert f"{run} has the same number as {run} (paired over 200 examples)" in out


def test_a_result_that_cannot_be_kept_is_still_printed(program, run, monkeypatch):
    def refuse(*_):
        raise UsageError("summary.json could not be written: Read-only file system.")

    monkeypatch.setattr(directory, "write_json", refuse)
    status, out, err = program("evaluate", run, "--num-samples", "3")
    assert status == 0
    assert "negative log-likelihood" in out
    assert "The evaluation is not kept. summary.json could not be written" in err


def test_averaged_parameters_that_are_not_there(program, run):
    status, _, err = program("evaluate", run, "--weights", "best-average")
    assert status == 2
    assert "train with --averaging" in err


# Pictures


def test_sample(program, run, own_folder):
    status, out, _ = program("sample", run, "--rows", "2", "--columns", "5", "--output", "picture.png")
    assert (status, out) == (0, "Picture: picture.png\n")
    assert matplotlib.image.imread("picture.png").ndim == 3
    program("sample", run, "--rows", "2", "--columns", "5", "--output", "again.png")
    assert (own_folder / "again.png").read_bytes() == (own_folder / "picture.png").read_bytes()
    program("sample", run, "--rows", "2", "--columns", "5", "--output", "other.png", "--seed", "1")
    assert (own_folder / "other.png").read_bytes() != (own_folder / "picture.png").read_bytes()
    assert program("sample", run)[1] == f"Picture: {run / 'samples.png'}\n"


def test_completions(program, structured):
    """Supplement E: originals, then the same top halves with the bottom's probabilities given a draw h ~ P(h|c)."""
    assert program("sample", structured)[0] == 0
    this = directory.load(structured)
    model, test = this.model(), this.dataset().test
    examples = Examples(jnp.asarray(test[:, 32:]), jnp.asarray(test[:, :32]))
    key = jax.random.key(0)
    images = completions(model, key, examples, columns=7, rows=2)
    assert list(images) == ["originals", "completions 1", "completions 2"]
    originals, sample = images["originals"], eqx.filter_jit(model.sample)
    assert all((test == image).all(axis=1).any() for image in originals.astype(np.uint8))
    for number in (1, 2):
        completed = images[f"completions {number}"]
        np.testing.assert_array_equal(completed[:, :32], originals[:, :32])
        latents, _ = sample(jax.random.split(key, 3)[number], jnp.asarray(originals[:, :32]))
        np.testing.assert_allclose(completed[:, 32:], model.observation_probabilities(latents)[0], rtol=1e-5)
        assert ((completed[:, 32:] > 0) & (completed[:, 32:] < 1)).all()  # grey, not black and white


@contextlib.contextmanager
def printing_to(**descriptors):
    """Let standard output, or errors, go to these open files."""
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, descriptor in descriptors.items():
            patch.setattr(sys, name, stack.enter_context(os.fdopen(descriptor, "w", encoding="utf-8")))
        yield


def pipe_without_a_reader():
    read, write = os.pipe()
    os.close(read)
    return write


def test_an_evaluation_that_nobody_reads_is_kept(run):
    number = len(directory.load(run).evaluations)
    with printing_to(stdout=pipe_without_a_reader()), pytest.raises(SystemExit) as leaving:
        cli.main(["evaluate", str(run), "--num-samples", "17"])
    assert leaving.value.code == 128 + signal.SIGPIPE
    evaluations = directory.load(run).evaluations
    assert len(evaluations) == number + 1
    assert evaluations[-1]["num_samples"] == 17


def test_a_training_that_nobody_reads_goes_on(tmp_path):
    pipes = {"stdout": pipe_without_a_reader(), "stderr": pipe_without_a_reader()}
    with printing_to(**pipes):
        cli.main(["train", *options(SMALL), "--output", str(tmp_path / "run")])
    run = directory.load(tmp_path / "run")
    assert run.summary()["updates"] == run.config.updates


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_under_the_output(run, capsys):
    number = len(directory.load(run).evaluations)
    with printing_to(stdout=os.open("/dev/full", os.O_WRONLY)), pytest.raises(SystemExit) as leaving:
        cli.main(["evaluate", str(run), "--num-samples", "18"])
    assert leaving.value.code == 2
    assert "No space left on device" in capsys.readouterr().err
    assert len(directory.load(run).evaluations) == number + 1


def test_characters_that_a_terminal_has_not(run, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    cli.main(["evaluate", str(run), "--num-samples", "5"])
    stream.flush()
    assert b" nats ? " in stream.buffer.getvalue()


def test_ctrl_c_ends_a_process_that_waits_for_others():
    """JAX waits where Python sees no signals."""
    with layout._ended_by_ctrl_c():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_page(program, run, structured):
    """One file with the parameters, bit for bit, and what is known about them."""
    program("evaluate", run, "--num-samples", "30")
    status, out, err = program("page", run, "--output", "page.html")
    assert (status, err) == (0, "")
    assert out.startswith("Page: page.html (0.1 MB).")
    text = Path("page.html").read_text(encoding="utf-8")
    header = json.loads(re.search(r'id="header">(.*?)</script>', text)[1])
    numbers = np.frombuffer(base64.b64decode(re.search(r'id="weights">(.*?)</script>', text)[1]), "<f4")
    kept = arrays(run, "best.safetensors")
    for name, shape in header["arrays"]:
        np.testing.assert_array_equal(numbers[: math.prod(shape)].reshape(shape), kept.pop(name))
        numbers = numbers[math.prod(shape) :]
    assert (len(numbers), len(kept)) == (0, 0)
    assert dict(header["facts"])["Trained with"] == "vimco, K = 2, learned proposal"
    assert dict(header["facts"])["Parameters"] == "best by validation, update 50, 32 bits"
    assert re.search(r"^The test set has −\d+\.\d nats on average, by 30 samples\.$", header["reference"])
    assert program("page", structured, "--half")[1].startswith(f"Page: {structured / 'page.html'} ")
    assert '"float16"' in (structured / "page.html").read_text(encoding="utf-8")


def test_samples_and_reconstructions(run):
    this = directory.load(run)
    examples = Examples(jnp.asarray(this.dataset().test))
    images = samples_and_reconstructions(this.model(), jax.random.key(0), examples, columns=6, rows=3)
    assert list(images) == ["data", "reconstructions", "samples 1", "samples 2", "samples 3"]
    assert all(rows.shape == (6, 64) for rows in images.values())
    assert len(np.unique(images["data"], axis=0)) > 1  # a choice, not the first ones of a sorted set
    assert set(np.unique(images["data"])) <= {0, 1}
    assert figures.image_grid(images, (8, 8)).axes


@pytest.mark.parametrize(("shape", "height"), [((5000, 1), 4.4), ((1, 784), 0.1375), ((28, 28), 0.55)])
def test_very_high_or_wide_images_are_drawn_in_a_shape_that_fits(shape, height):
    figure = figures.image_grid(dict.fromkeys(("data", "samples"), np.ones((3, math.prod(shape)))), shape)
    assert figure.get_figheight() == pytest.approx(2 * height)
    assert len(figures.figure_bytes(figure)) < 100_000
    assert all(axes.get_images()[0].get_window_extent().height > 10 for axes in figure.axes)


# The real data


@pytest.mark.skipif(not REAL_DATA, reason="VIMCO_DATA does not name a folder with the official binarized MNIST")
def test_real_data_reach_the_known_anchor(folder):
    """One epoch, K = 5, rate 1e-3, batches of 24. Another implementation has a validation bound of −145.7; this one
    starts from the data's mean, and three seeds gave −141.9, −142.1 and −141.9. Compiled as for users: thousands of
    updates take longer than compiling them."""
    config = RunConfig(data="binarized-mnist", num_samples=5, learning_rate=1e-3, batch_size=24, updates=2083)
    for_users = {"VIMCO_DATA": REAL_DATA, "XLA_FLAGS": ""}
    status, _, err = finished(
        vimco("train", *options(config), "--output", "anchor", folder=folder, variables=for_users)
    )
    assert status == 0, err
    run = directory.load(folder / "anchor")
    assert run.summary()["epochs"] == 1.0
    assert run.summary()["best"]["validation_bound"] > -143.5
