"""One training in several processes: stopped and killed as one, resumed bit for bit, refused by all."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from program import assert_same_outcome, environment, finished

from vimco import cli
from vimco.cli import layout
from vimco.runs import checkpoints, directory

# Every process looks after each checkpoint whether it is written, and waits there while a file says so.
PROGRAM = """
import pathlib, sys, time
from vimco.cli import layout, main
from vimco.runs import checkpoints, session
from vimco.studies.runner import cluster

def save(self, original=session._Session._save):
    original(self)
    assert checkpoints.latest_update(self.run.path) == self.update, "a process was ahead of its checkpoint"
    while pathlib.Path(f"hold-{self.update}").exists():
        pathlib.Path(f"held-{self.update}-{self.team.rank}").touch()
        time.sleep(0.01)

session._Session._save = save
cluster.CONNECT_SECONDS = 600
if 'silent' in sys.argv:
    layout.PATIENCE = layout.JOIN_SECONDS = 1
main()
"""

# Each process evaluates all slices by itself, then shares them with the other one.
EVALUATION = """
import sys, jax, jax.numpy as jnp, numpy as np, vimco
from vimco.samples import Examples
from vimco.training.devices import mesh_of
from vimco.training.evaluation import evaluate
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
key = jax.random.key(2)
model = vimco.generative_sbn(key, (3, 2), jnp.full(6, 0.4))
examples = Examples(jax.random.bernoulli(key, 0.4, (4 * 48 + 7, 6)).astype(jnp.uint8))
alone, shared = (evaluate(model, examples, key, 60, mesh=mesh) for mesh in (None, mesh_of(1)))
for one, other in zip(alone[1:4], shared[1:4], strict=True):
    np.testing.assert_array_equal(one, other)
print("equal:", len(set(shared.bound)))
"""

# The same by a Python program, which joins by itself.
IN_PYTHON = """
import sys, jax, vimco
address, number, rank, path = sys.argv[1:]
jax.distributed.initialize(address, int(number), int(rank))
options = {"layers": (3,), "num_samples": 2, "averaging": 0.5, "log_every": 10, "validate_every": 40}
config = vimco.RunConfig(data="synthetic", checkpoint_seconds=0.0, updates=160, **options)
run = vimco.train(config, path)
print(run.updates, run.evaluate(20).negative_log_likelihood)
"""
OPTIONS = ["--data", "synthetic", "--layers", "3", "--num-samples", "2", "--averaging", "0.5", "--log-every", "10"]
OPTIONS += ["--validate-every", "40", "--checkpoint-seconds", "0", "--updates", "160"]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def process(folder, *arguments, program=PROGRAM, **variables):
    command = [sys.executable, "-c", program, *map(str, arguments)]
    env, pipe = {**environment(folder), **variables}, subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True)


def team(folder, *commands, variables=({}, {}, {}, {})):
    """Start a process for each command, each with its rank."""
    shared = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", len(commands)]
    return [
        process(folder, *command, *shared, "--rank", rank, **variables[rank]) for rank, command in enumerate(commands)
    ]


def srun(folder, *arguments, number=2, start=None):
    """Start processes with the variables that Slurm sets, from which JAX finds the others."""
    job = next(job for job in range(4096) if is_free(job + 61440))  # JAX makes the port of the job's number
    shared = {"SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": number}
    each = [{**shared, "SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in (start or range(number))]
    return [
        process(folder, *arguments, "--distributed", **{name: str(value) for name, value in variables.items()})
        for variables in each
    ]


def is_free(port):
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) != 0


@contextlib.contextmanager
def held(folder, running, update):
    """Hold two processes after the checkpoint of an update."""
    hold, waiting = folder / f"hold-{update}", [folder / f"held-{update}-{rank}" for rank in (0, 1)]
    hold.touch()
    started = running()
    while not all(file.exists() for file in waiting):
        assert all(one.poll() is None for one in started), endings(started)
        time.sleep(0.01)
    yield started
    hold.unlink()


def endings(processes):
    return [finished(one) for one in processes]


def test_a_training_in_two_processes_is_stopped_killed_and_resumed_as_one(tmp_path):
    """The reference is made by a Python program, and the last part is started as by Slurm."""
    reference, path = tmp_path / "reference", tmp_path / "run"
    address = f"127.0.0.1:{free_port()}"
    undisturbed = endings([process(tmp_path, address, 2, rank, reference, program=IN_PYTHON) for rank in (0, 1)])
    assert [status for status, *_ in undisturbed] == [0, 0], undisturbed
    assert re.search(r"^160 ([\d.]+)$", undisturbed[0][1], re.MULTILINE)[1] in undisturbed[1][1]

    command = ["train", *OPTIONS, "--output", path, "--or-resume", "--wait", "5"]
    with held(tmp_path, lambda: team(tmp_path, *[command] * 2), 20) as running:
        running[1].send_signal(signal.SIGTERM)  # to one of them
    told = endings(running)
    assert [status for status, *_ in told] == [143, 143]
    update = int(re.search(r"Stopped at update (\d+); nothing is lost", told[0][2])[1])
    assert checkpoints.latest_update(path) == update < 160

    for victim, update in ((1, 70), (0, 110)):
        with held(tmp_path, lambda: team(tmp_path, *[["resume", path]] * 2), update) as running:
            running[victim].kill()
            if victim == 0:  # JAX ends the other one, which computes nothing
                running[1].wait()
        told = endings(running)
        assert [status for status, *_ in told] == (
            [1, -signal.SIGKILL] if victim == 1 else [-signal.SIGKILL, -signal.SIGABRT]
        )
        for rank in (0, 1):  # of the killed one its witness speaks, and perhaps of the other, if JAX ended it
            words = " ".join(told[rank][2].split())
            assert re.search(f"so process {rank} ends, too|Process {rank} was killed, or JAX ended it", words), words
            assert f"--resume {path}" in words
        assert checkpoints.latest_update(path) == update

    (status, out, _), (other, silence, _) = endings(srun(tmp_path, *command))
    assert (status, other, silence) == (0, 0, "")
    assert "Done: 160 updates" in out
    assert_same_outcome(path, reference)
    assert directory.load(path).environment["processes"] == 2


def test_four_processes_of_two_devices_draw_the_samples_of_one_device(tmp_path):
    options = [*OPTIONS[:-1], "1", "--batch-size", "32", "--output"]
    four = ["train", *options, tmp_path / "four", "--devices", "2"]
    assert [status for status, *_ in endings(team(tmp_path, *[four] * 4))] == [0] * 4
    assert finished(process(tmp_path, "train", *options, tmp_path / "one"))[0] == 0
    (several,), (one,) = (directory.load(tmp_path / name).metrics() for name in ("four", "one"))
    for name in ("train_bound", "signal_rms", "validation_bound"):
        assert several[name] == pytest.approx(one[name], rel=1e-5)
    evaluation = ["evaluate", tmp_path / "four", "--num-samples", "60", "--json"]
    (status, out, _), (other, silence, _) = endings(team(tmp_path, *[evaluation] * 2))
    assert (status, other, silence) == (0, 0, "")
    expected = finished(process(tmp_path, *evaluation))[1]
    found = [float(re.search(r'"negative_log_likelihood": ([\d.]+)', text)[1]) for text in (out, expected)]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    told = endings(team(tmp_path, evaluation, [*evaluation, "--seed", "1"]))
    assert [status for status, *_ in told] == [2, 2]
    assert all("The 2 processes differ in their options" in " ".join(errors.split()) for *_, errors in told)
    told = endings(team(tmp_path, evaluation, ["evaluate", tmp_path / "none"]))
    assert [status for status, *_ in told] == [2, 2]
    assert all("holds no run" in " ".join(errors.split()) for *_, errors in told)


def test_an_evaluation_by_two_processes_is_bit_for_bit_that_of_one_of_them(tmp_path):
    """Five slices of examples, the last of them filled up."""
    address = f"127.0.0.1:{free_port()}"
    told = endings([process(tmp_path, address, rank, program=EVALUATION) for rank in (0, 1)])
    assert [status for status, *_ in told] == [0, 0], told
    assert all(re.search(r"^equal: \d{2,}$", out, re.MULTILINE) for _, out, _ in told), told


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", "1"], "The 2 processes differ in their configuration"),
        (["--seed", "-1"], "seed must be from 0 to"),
        (["--or-resume"], "The 2 processes differ in their command"),
        (["--batch-size", "10"], "A batch of 10 does not divide among 2 devices"),
        (["--devices", "2"], "The 2 processes have different numbers of devices: 1, 2."),
    ],
)
def test_processes_that_differ_are_refused_by_all_and_nothing_is_written(tmp_path, more, message):
    command = ["train", *OPTIONS, "--output", tmp_path / "run"]
    told = endings(team(tmp_path, command, [*command, *more]))
    assert [status for status, *_ in told] == [2, 2]
    assert all(message in " ".join(errors.split()) for *_, errors in told)
    assert not (tmp_path / "run").exists()


def test_too_few_devices_are_refused_by_all_and_nothing_is_written(tmp_path):
    command = ["train", *OPTIONS, "--devices", "2", "--output", tmp_path / "run"]
    told = endings(team(tmp_path, command, command, variables=[{"JAX_NUM_CPU_DEVICES": "1"}] * 2))
    assert [status for status, *_ in told] == [2, 2]
    assert all("--devices 2: this process has 1, of the kind cpu" in " ".join(errors.split()) for *_, errors in told)
    assert not (tmp_path / "run").exists()


def test_processes_with_other_versions_are_refused_by_all_and_nothing_is_written(tmp_path):
    metadata = tmp_path / "other" / "vimco-9.9.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vimco\nVersion: 9.9\n")
    path = os.pathsep.join([str(metadata.parent), os.environ.get("PYTHONPATH", "")])
    command = ["train", *OPTIONS, "--output", tmp_path / "run"]
    told = endings(team(tmp_path, command, command, variables=[{}, {"PYTHONPATH": path}]))
    assert [status for status, *_ in told] == [2, 2]
    assert all("The 2 processes differ in their versions" in " ".join(errors.split()) for *_, errors in told), told
    assert not (tmp_path / "run").exists()


def test_processes_with_other_data_of_the_same_name_are_refused_by_all(tmp_path):
    command = ["train", *OPTIONS[2:], "--data", "images.npy", "--output", tmp_path / "run"]
    shared = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", 2]
    running = []
    for rank in (0, 1):
        folder = tmp_path / str(rank)
        folder.mkdir()
        images = np.random.default_rng(rank).integers(0, 2, (60, 5, 5), np.uint8)
        np.save(folder / "images.npy", images)
        running.append(process(folder, *command, *shared, "--rank", rank))
    told = endings(running)
    assert [status for status, *_ in told] == [2, 2]
    assert all("The 2 processes differ in their data" in " ".join(errors.split()) for *_, errors in told), told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--coordinator 127.0.0.1:FREE --processes 2 --rank 1", "No process 0 answers at 127.0.0.1"),
        ("--coordinator nowhere --processes 2 --rank 1", "an address like host:1234; got nowhere"),
        ("--coordinator x:1234567 --processes 2 --rank 0", "an address like host:1234; got x:1234567"),
        ("--coordinator no.invalid:1234 --processes 2 --rank 0", "Process 0 cannot listen at no.invalid:1234"),
        ("--coordinator 127.0.0.1:1 --processes 2 --rank 2", "--rank is a number from 0 to 1"),
        ("--coordinator 127.0.0.1:1 --processes 0 --rank 0", "--processes must be positive"),
        ("--coordinator 127.0.0.1:1", "--coordinator, --processes and --rank go together"),
    ],
)
def test_an_address_without_others_is_refused(monkeypatch, options, message, capfd):
    monkeypatch.setattr(layout, "PATIENCE", 1)
    with pytest.raises(SystemExit) as refusal:
        cli.main(["evaluate", "run", *options.replace("FREE", str(free_port())).split()])
    assert refusal.value.code == 2
    assert message in " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--coordinator 127.0.0.1:FREE --processes 2 --rank 0", "After 1 s not all processes have joined"),
        ("--distributed", "The other processes were not found"),
    ],
)
def test_a_process_that_finds_no_others_says_so(tmp_path, options, message):
    options = options.replace("FREE", str(free_port()))
    status, _, errors = finished(process(tmp_path, "evaluate", "silent", *options.split()))
    assert status == 2
    assert message in " ".join(errors.split())


def test_a_process_of_slurm_that_finds_no_others_says_so(tmp_path):
    ((status, _, errors),) = endings(srun(tmp_path, "evaluate", "silent", start=[1]))
    assert status == 2
    assert "After 1 s not all processes have joined" in " ".join(errors.split())


def test_a_signal_before_training_ends_the_process(tmp_path):
    """JAX would catch it, and go on."""
    program = """
import os, signal, time
from vimco.cli.layout import Layout
with Layout(coordinator="127.0.0.1:%d", processes=1, rank=0).join("train", "Start again."):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(600)
"""
    status, _, errors = finished(process(tmp_path, program=program % free_port()))
    assert status == -signal.SIGTERM
    assert "Process 0 was killed" in errors
    assert "Start again." in errors
