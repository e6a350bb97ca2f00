"""One training in several processes: stopped and killed as one, resumed bit for bit, refused by all."""

import re
import signal
import socket
import subprocess
import sys

import pytest
from program import assert_same_outcome, environment, finished, wait_for_update

from vimco.runs import checkpoints, directory

# Every process looks after each checkpoint whether it is written.
PROGRAM = """
import sys
from vimco.cli import layout, main
from vimco.runs import checkpoints, session

def save(self, original=session._Session._save):
    original(self)
    assert checkpoints.latest_update(self.run.path) == self.update, "a process was ahead of its checkpoint"

session._Session._save = save
layout.PATIENCE = 1 if 'silent' in sys.argv else 60
main()
"""
OPTIONS = ["--data", "synthetic", "--layers", "3", "--num-samples", "2", "--averaging", "0.5", "--log-every", "10"]
OPTIONS += ["--validate-every", "40", "--checkpoint-seconds", "0", "--updates", "160"]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def process(folder, *arguments):
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=pipe, stderr=pipe, text=True)


def team(folder, *commands):
    """Start a process for each command, each with its rank."""
    shared = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", len(commands)]
    return [process(folder, *command, *shared, "--rank", rank) for rank, command in enumerate(commands)]


def endings(processes):
    return [finished(one) for one in processes]


def test_a_training_in_two_processes_is_stopped_killed_and_resumed_as_one(tmp_path):
    reference, path = tmp_path / "reference", tmp_path / "run"
    undisturbed = team(tmp_path, *[["train", *OPTIONS, "--output", reference]] * 2)
    assert [status for status, *_ in endings(undisturbed)] == [0, 0]

    running = team(tmp_path, *[["train", *OPTIONS, "--output", path]] * 2)
    wait_for_update(running[0], path, 10)
    running[1].send_signal(signal.SIGTERM)  # to one of them
    told = endings(running)
    assert [status for status, *_ in told] == [143, 143]
    update = int(re.search(r"Stopped at update (\d+); nothing is lost", told[0][2])[1])
    assert checkpoints.latest_update(path) == update < 160

    running = team(tmp_path, *[["resume", path]] * 2)
    wait_for_update(running[0], path, 10 * (update // 10 + 1))
    running[1].kill()
    (status, _, errors), _ = endings(running)
    assert status == 1
    assert "Another process of this training has ended, so process 0 ends, too" in errors
    assert f"--resume {path}" in errors

    (status, out, _), (other, silence, _) = endings(team(tmp_path, *[["resume", path]] * 2))
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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", "1"], "The 2 processes differ in their configuration"),
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2", "--rank", "1"],
            "No process 0 answers at 127",
        ),
        (["--coordinator", "nowhere", "--processes", "2", "--rank", "1"], "an address like host:1234; got nowhere"),
        (["--coordinator", "127.0.0.1:1", "--processes", "2", "--rank", "2"], "--rank is a number from 0 to 1"),
        (["--coordinator", "127.0.0.1:1"], "--coordinator, --processes and --rank go together"),
        (["--distributed"], "The other processes were not found"),
    ],
)
def test_a_process_that_finds_no_others_says_so(tmp_path, options, message):
    (tmp_path / "silent").mkdir()
    status, _, errors = finished(process(tmp_path, "evaluate", "silent", *options))
    assert status == 2
    assert message in " ".join(errors.split())
