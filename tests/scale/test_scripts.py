"""The script of a study for a batch system, run by a shell with stand-ins for what the system provides."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
from program import environment

from vimco import cli
from vimco.runs import directory
from vimco.studies import STUDIES
from vimco.studies.runner import planned
from vimco.studies.runner.script import slurm_script

OPTIONS = ["--data", "synthetic", "--updates", "4", "--rates", "0.001", "0.003", "--only", "structured-learned-*-vimco"]


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Return the script, and a function that runs it as the batch system would run the job of a number."""
    monkeypatch.chdir(tmp_path)
    cli.main(["study", "structured-nll", *OPTIONS, "--script", "slurm"])
    path = tmp_path / "studies" / "structured-nll.slurm"
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" >> requeued\n')
    (tmp_path / "scontrol").chmod(0o755)

    def job(number):
        path_of_programs = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
        variables = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": str(number), "PATH": path_of_programs}
        return subprocess.Popen(["bash", path], env={**environment(tmp_path), **variables}, cwd="/")

    return path, job


def test_every_line_trains_its_run(script, tmp_path, capfd):
    path, job = script
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    text = path.read_text()
    assert "#SBATCH --array=0-1\n" in text
    assert "#SBATCH --requeue\n" in text
    assert "#SBATCH --signal=B:TERM@120\n" in text
    trainings = planned(
        STUDIES["structured-nll"].adjusted(
            updates=4, data="synthetic", rates=[1e-3, 3e-3], only=["structured-learned-*-vimco"]
        ),
        tmp_path / "studies",
    )
    assert len(re.findall(r"^\d+\) run .* ;;$", text, re.MULTILINE)) == len(trainings) == 2
    for number, training in enumerate(trainings):
        assert job(number).wait() == 0
        assert training.is_done()
    assert job(1).wait() == 0  # a job that is started again finds its run done
    assert job(2).wait() == 2
    assert not (tmp_path / "requeued").exists()
    again = shlex.split(re.search(r"show the results: vimco (study .*)", text)[1])
    assert cli.main([*again, "--dry-run"]) is None
    assert "2 done, 0 to do" in capfd.readouterr().out
    cli.main(["study", "structured-nll", *OPTIONS, "--script", "slurm"])
    assert "nothing to write a script for" in capfd.readouterr().out


class Waiting:
    name = "waiting"

    def arguments(self):
        return ["-c", "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); "
                "open('ready', 'w').close(); time.sleep(600)"]  # fmt: skip


def test_a_run_that_is_asked_to_save_is_queued_again(script, tmp_path, monkeypatch):
    path, job = script
    (tmp_path / "vimco").symlink_to(sys.executable)
    monkeypatch.setattr("vimco.studies.runner.script.sys.executable", str(tmp_path / "python"))
    path.write_text(slurm_script("x", [Waiting()], 1, ["study", "x"]))
    running = job(0)
    while not (tmp_path / "ready").exists():
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    assert running.wait() == 143
    assert (tmp_path / "requeued").read_text() == "requeue 77_0\n"


def test_a_run_of_another_configuration_is_not_resumed(tmp_path, capfd):
    run = tmp_path / "run"
    tiny = ["train", "--data", "synthetic", "--layers", "2", "--num-samples", "2", "--output", str(run), "--or-resume"]
    cli.main([*tiny, "--updates", "2"])
    cli.main([*tiny, "--updates", "3"])
    assert directory.load(run).updates == 3
    for more in (["--seed", "1"], ["--learning-rate", "0.5"]):
        with pytest.raises(SystemExit):
            cli.main([*tiny, "--updates", "3", *more])
        assert "holds a run of another configuration" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["train", "--or-resume"])
    assert "--or-resume needs --output" in capfd.readouterr().err
