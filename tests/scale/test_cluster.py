"""A study on a Dask cluster: a real scheduler, workers in processes of their own, killed, retired, left alone."""

import asyncio
import contextlib
import gc
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from program import assert_same_outcome, environment, finished
from test_processes import free_port, process
from test_studies import Note

pytest.importorskip("distributed")

import distributed
import tyro
import yaml

import vimco_worker
from vimco import UsageError, cli
from vimco.cli.program import SYNTAX, Command
from vimco.runs import checkpoints, directory
from vimco.studies.runner import cluster, local
from vimco.studies.runner.cluster import DaskCluster, connect
from vimco.studies.runner.engine import Ending
from vimco.studies.runner.execution import Watch, execute

pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning"), pytest.mark.xdist_group("cluster")]

SEVERAL_DEVICES = (Path(__file__).parents[2] / "docs" / "how-to" / "several-devices.md").read_text()
# Write a file; or fail; or be killed, always or the first time; or wait for the request to save, always or at first.
SMALL_PROGRAM = """
import os, pathlib, signal, sys, time
behaviour, path = sys.argv[1], pathlib.Path(sys.argv[2])
first = path.with_suffix(".first")
is_first = not first.exists()
first.touch()
if behaviour == "fails":
    sys.exit("Error: no luck")
if behaviour == "dies" or (behaviour == "dies once" and is_first):
    os.kill(os.getpid(), signal.SIGKILL)
if behaviour == "waits" or (behaviour == "waits once" and is_first):
    def save(*_):
        path.with_suffix(".saved").touch()
        sys.exit(143)
    signal.signal(signal.SIGTERM, save)
    path.with_suffix(".waiting").write_text(str(os.getppid()))
    time.sleep(600)
path.write_text(repr(sorted(os.sched_getaffinity(0))))
print("Note: wrote", path.name, file=sys.stderr)
"""


LONG = 900  # seconds: a limit for what hangs, not for what is slow


class Endings(Watch):
    def __init__(self, act=lambda: None):
        self.all, self.act = {}, act

    def waited(self, running):
        self.act()

    def ended(self, task, ending):
        self.all[task.name] = ending


class Machines:
    """A scheduler and workers on the loopback address."""

    def __init__(self, folder):
        self.folder, self.address = folder, f"tcp://127.0.0.1:{free_port()}"
        self.all, self.workers = [], []
        host, port = self.address.removeprefix("tcp://").split(":")
        self.scheduler = self.start("dask_scheduler", "--host", host, "--port", port, "--no-dashboard")

    def start(self, program, *arguments, **variables):
        command = [sys.executable, "-m", f"distributed.cli.{program}", *arguments]
        with (self.folder / f"{program}.log").open("a") as log:
            started = subprocess.Popen(
                command, cwd=self.folder, env={**environment(self.folder), **variables}, stdout=log, stderr=log
            )
        self.all.append(started)
        return started

    def worker(self, **variables):
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        self.workers.append(self.start("dask_worker", self.address, *options, **variables))
        return self.workers[-1]

    def end(self):
        for one in self.all:
            one.kill()
            one.wait()


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    machines = Machines(tmp_path_factory.mktemp("machines"))
    machines.worker()
    machines.worker()
    yield machines
    machines.end()


@pytest.fixture
def engine(machines, tmp_path, monkeypatch):
    """Return the engine with two workers, which run the small program."""
    monkeypatch.setattr(local, "PROGRAM", ("-c", SMALL_PROGRAM))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", LONG)
    with connect(machines.address, None, tmp_path, number=None, most=9, threads=None) as engine:
        engine.client.wait_for_workers(2, timeout=LONG)
        yield engine


def wait_for(path):
    wait_until(path.exists)


def wait_until(is_so):
    deadline = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_failure_stops_nobody_and_a_killed_process_is_tried_once_more(engine, tmp_path):
    endings = Endings()
    behaviours = {"a": "dies", "b": "fails", "c": "works", "d": "dies once"}
    outcome = execute([Note(tmp_path / name, how) for name, how in behaviours.items()], engine, endings)
    assert {task.name: reason for task, reason in outcome.failures} == {
        "a": "its process died, twice: it was killed, or the memory did not suffice",
        "b": "no luck",
    }
    assert endings.all["c"].notes == ("wrote c",)
    assert endings.all["d"] == Ending(("wrote d",))
    assert (tmp_path / "c").read_text() == repr(sorted(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("status", "outcome", "expected"),
    [
        ("pending", None, None),
        ("finished", (0, "Note: well"), Ending(("well",))),
        ("finished", TimeoutError(), None),  # the worker died with the result
        ("finished", distributed.CancelledError(), Ending(is_lost=True)),
        ("error", distributed.scheduler.KilledWorker("a", None, 4), Ending(is_lost=True)),
        ("error", ImportError("no"), Ending(failure="ImportError: no")),
        ("cancelled", None, Ending(is_lost=True)),
        ("lost", None, Ending(is_lost=True)),
    ],
)
def test_every_end_of_a_task(status, outcome, expected):
    def result(timeout):
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    future = SimpleNamespace(status=status, result=result, exception=lambda timeout: outcome)
    assert cluster._Job(DaskCluster.__new__(DaskCluster), future).ending() == expected


def test_a_killed_worker_is_told_from_a_failure(engine, machines, tmp_path):
    """Its task is tried elsewhere by Dask; where Dask gives up, once more by the study."""
    engine.client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
    killed = []

    def kill_worker():
        if not killed and (tmp_path / "a.waiting").exists():
            pid = int((tmp_path / "a.waiting").read_text() or 0)
            if pid:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

    endings = Endings(kill_worker)
    outcome = execute([Note(tmp_path / "a", "waits once"), Note(tmp_path / "b")], engine, endings)
    engine.client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 3))
    machines.worker()
    assert killed
    assert outcome.failures == []
    assert endings.all == {"a": Ending(("wrote a",)), "b": Ending(("wrote b",))}
    wait_for(tmp_path / "a.saved")  # the process ended with its worker, and saved


def test_a_retired_worker_lets_go_and_another_takes_over(engine, machines, tmp_path):
    job = engine.start(["waits once", str(tmp_path / "a")])
    wait_for(tmp_path / "a.waiting")
    busy = [address for address, keys in engine.client.processing().items() if keys]
    engine.client.retire_workers(busy)
    wait_for(tmp_path / "a.saved")
    wait_for(tmp_path / "a")
    while job.ending() is None:
        time.sleep(0.02)
    assert job.ending() == Ending(("wrote a",))
    machines.worker()


def test_a_signal_asks_every_run_to_save_and_withdraws_those_that_wait(engine, tmp_path):
    engine._fixed = 4  # more than there are threads
    sent = []

    def send():
        if not sent and sum((tmp_path / f"{name}.waiting").exists() for name in "abcd") == 2:
            sent.append(time.monotonic())
            signal.raise_signal(signal.SIGINT)

    endings = Endings(send)
    outcome = execute([Note(tmp_path / name, "waits") for name in "abcde"], engine, endings)
    assert outcome.signal_number == signal.SIGINT
    assert outcome.failures == []
    assert len(endings.all) == 4
    assert all(ending.is_stopped for ending in endings.all.values())
    assert len(list(tmp_path.glob("*.saved"))) == 2
    assert len(list(tmp_path.glob("*.first"))) == 2


def test_a_task_that_begins_after_the_request_does_nothing(engine, tmp_path):
    engine.stop()
    job = engine.start(["works", str(tmp_path / "a")])
    while job.ending() is None:
        time.sleep(0.02)
    assert job.ending().is_stopped
    assert not (tmp_path / "a.first").exists()


ORPHANING = """
import os, pathlib, signal, sys, time
from vimco.studies.runner import cluster, local
program, address, path = sys.argv[1:]
local.PROGRAM = ("-c", program)
cluster.CONNECT_SECONDS = 600
with cluster.connect(address, None, pathlib.Path(path).parent, number=None, most=9, threads=None) as engine:
    engine.start(["waits", path])
    while not pathlib.Path(path + ".waiting").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_let_go_when_the_study_is_killed(engine, machines, tmp_path):
    path = str(tmp_path / "a")
    subprocess.run([sys.executable, "-c", ORPHANING, SMALL_PROGRAM, machines.address, path], check=False)
    wait_for(tmp_path / "a.saved")


def test_a_lost_scheduler_ends_the_study_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "PROGRAM", ("-c", SMALL_PROGRAM))
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", LONG)
    monkeypatch.chdir(tmp_path)
    machines = Machines(tmp_path)
    machines.worker()
    try:
        with connect(machines.address, None, tmp_path, number=None, most=9, threads=None) as engine:
            engine.client.wait_for_workers(1, timeout=LONG)
            lost = Endings(lambda: (tmp_path / "a.waiting").exists() and machines.scheduler.kill())
            with pytest.raises(UsageError, match=r"connection to the Dask scheduler .* was lost"):
                execute([Note(tmp_path / name, "waits") for name in "ab"], engine, lost)
        wait_for(tmp_path / "a.saved")
    finally:
        machines.end()


# Real runs.

# While a file says so, each run waits after a checkpoint, until it is asked to stop.
STUDY = """
import dataclasses, pathlib, time
from vimco.runs import session
from vimco.studies import Study, register_study
from vimco.studies.cells import PAPER

def save(self, original=session._Session._save):
    original(self)
    while self.update >= 10 and not self.signals and pathlib.Path("hold").exists():
        time.sleep(0.01)

session._Session._save = save

def runs():
    return [
        dataclasses.replace(
            PAPER, layers=(2,), num_samples=K, log_every=10, validate_every=100, checkpoint_seconds=0.0, averaging=0.5
        )
        for K in (2, 3)
    ]

register_study(Study("tiny", "Tiny", "nothing", runs, lambda study, found: [], evaluation_samples=None))
"""
OPTIONS = ["--plugin", "tiny.py", "--data", "synthetic", "--updates", "400"]


def test_a_study_whose_workers_and_whose_own_process_are_killed_ends_as_an_undisturbed_one(machines, tmp_path):
    """First at known moments, then at random ones."""
    (tmp_path / "tiny.py").write_text(STUDY)
    command = ["study", "tiny", *OPTIONS, "--output"]
    reference = finished(process(tmp_path, *command, "reference"))
    assert reference[0] == 0, reference
    names = sorted(path.name for path in (tmp_path / "reference" / "runs").iterdir())
    paths = [tmp_path / "studies" / "runs" / name for name in names]
    on_cluster = [*command, "studies", "--cluster", machines.address]

    (tmp_path / "hold").touch()
    study = process(tmp_path, *on_cluster)
    before = [owner_at(path, 10, study) for path in paths]
    os.kill(parent_of(before[0]), signal.SIGKILL)  # its worker
    machines.worker()
    wait_until(lambda: owner_at(paths[0], 10, study) != before[0])
    study.kill()
    study.communicate()
    wait_until_ended(paths)
    assert all(checkpoints.latest_update(path) < 400 for path in paths)

    study = process(tmp_path, *on_cluster)
    for path in paths:
        owner_at(path, 10, study)
    study.send_signal(signal.SIGINT)
    status, _, errors = finished(study)
    assert status == 130, errors
    assert "Stopped; nothing is lost. The same command resumes." in errors
    assert all(checkpoints.latest_update(path) < 400 for path in paths)
    (tmp_path / "hold").unlink()

    chance = random.Random(0)
    for _ in range(2):
        study = process(tmp_path, *on_cluster)
        time.sleep(chance.uniform(0, 20))
        study.kill()
        study.communicate()
    study = process(tmp_path, *on_cluster)
    time.sleep(chance.uniform(0, 20))
    next(worker for worker in machines.workers if worker.poll() is None).kill()
    machines.worker()
    status, out, errors = finished(study)
    assert status == 0, errors
    assert f"Dask scheduler at {machines.address}; dashboard: http://127.0.0.1:" in out
    for path in paths:
        assert_same_outcome(path, tmp_path / "reference" / "runs" / path.name)


def test_an_evaluation_with_many_samples_is_done_in_slices_on_the_workers(machines, tmp_path):
    """Its result is that of one command, bit for bit."""
    text = STUDY.replace("evaluation_samples=None", "evaluation_samples=2000").replace(
        "averaging=0.5", "averaging=None"
    )
    (tmp_path / "tiny.py").write_text(text)
    options = [*OPTIONS[:-1], "10", "--only", "K2", "--workers", "2", "--cluster", machines.address]
    status, out, errors = finished(process(tmp_path, "study", "tiny", *options))
    assert status == 0, errors
    (path,) = (tmp_path / "studies" / "runs").iterdir()
    tasks = re.findall(r"^done: evaluation of .*, best weights, (part \d of \d)$", out, re.MULTILINE)
    assert sorted(tasks) == ["part 1 of 2", "part 2 of 2"]
    assert list(path.glob("*part*")) == []
    in_slices = directory.load(path).evaluation(2000)
    assert finished(process(tmp_path, "evaluate", path, "--num-samples", "2000"))[0] == 0
    assert directory.load(path).evaluation(2000) == in_slices is not None


def owner_at(path, update, study):
    """Wait until a process that holds a run has written a checkpoint of this update or a later one; return its id."""
    found = []

    def is_there():
        assert study.poll() is None, study.communicate()
        has_one = (path / checkpoints.CHECKPOINT).exists() and checkpoints.latest_update(path) >= update
        found[:] = [pid for pid in owners(path) if has_one and Path(f"/proc/{pid}").exists()]
        return bool(found)

    wait_until(is_there)
    return found[0]


def parent_of(pid):
    return int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def wait_until_ended(paths):
    """Wait until the processes that hold or held the locks are gone."""
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for path in paths for pid in owners(path)))


def owners(path):
    lock = path / ".lock"
    return [int(pid) for pid in re.findall(r'"process": (\d+)', lock.read_text() if lock.exists() else "")]


# A cluster of a batch system's jobs, with stand-ins for its commands.


def test_jobs_of_a_batch_system_come_when_they_are_needed_and_go(tmp_path, monkeypatch):
    for name, script in {
        "sbatch": 'cp "$1" job\nnohup bash job >>log 2>&1 &\necho "Submitted batch job $!"\necho $! >>submitted',
        "scancel": 'pkill --parent "$1"; echo "$1" >>cancelled',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\ncd {tmp_path}\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
    monkeypatch.setattr(local, "PROGRAM", ("-c", SMALL_PROGRAM))
    monkeypatch.chdir(tmp_path)
    options = tmp_path / "options.yaml"
    (documented,) = re.findall(r"```yaml\n(# cluster.yaml.*?)```", SEVERAL_DEVICES, re.DOTALL)
    options.write_text(f"{documented}scheduler_options:\n  dashboard_address: ':{free_port()}'\n  host: 127.0.0.1\n")
    with connect("slurm", options, tmp_path, number=None, most=1, threads=None) as engine:
        assert engine.number == 1
        outcome = execute([Note(tmp_path / "a")], engine, Watch())
    assert outcome.failures == []
    assert (tmp_path / "a").exists()
    assert len((tmp_path / "submitted").read_text().split()) == 1
    assert (tmp_path / "cancelled").read_text() == (tmp_path / "submitted").read_text()


def test_the_number_of_jobs_follows_from_states_alone():
    """Dask's event loop asks for it, and cannot wait there for a result, which it would have to fetch itself."""
    found = []
    made = SimpleNamespace(
        _dummy_job=SimpleNamespace(worker_process_threads=2), adapt=lambda Adaptive, **_: found.append(Adaptive)
    )
    engine = DaskCluster.__new__(DaskCluster)
    states = ["pending", "finished", "pending", "error", "pending", "lost"]
    engine._jobs = [cluster._Job(engine, SimpleNamespace(status=state)) for state in states]
    cluster._adapt(made, engine)
    assert asyncio.run(found[0].target(None)) == 2  # jobs of two threads each, for three tasks


def test_the_manifest_in_the_documentation_starts_every_process_of_one_training():
    """Kubernetes itself is not here: the names that connect its parts, and the command of its containers."""
    (manifest,) = re.findall(r"```yaml\n(apiVersion.*?)```", SEVERAL_DEVICES, re.DOTALL)
    service, job = yaml.safe_load_all(manifest)
    assert (service["kind"], job["kind"], job["spec"]["completionMode"]) == ("Service", "Job", "Indexed")
    name, pod = service["metadata"]["name"], job["spec"]["template"]["spec"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == name
    (container,) = pod["containers"]
    assert container["command"] == ["sh", "-c"]
    words = shlex.split(*container["args"])
    assert words[:2] == ["exec", "vimco"]
    assert words[-1] == "$JOB_COMPLETION_INDEX"  # which Kubernetes gives to each pod of an indexed job
    command = tyro.cli(Command, prog="vimco", args=[*words[2:-1], "3"], config=SYNTAX)
    assert command.layout.coordinator == f"{job['metadata']['name']}-0.{name}:1234"
    assert command.layout.processes == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert str(command.output).startswith(container["volumeMounts"][0]["mountPath"])
    assert [v["name"] for v in pod["volumes"]] == [m["name"] for m in container["volumeMounts"]]


# A worker that closes.


class Closing:
    """A worker that begins to close after some looks at its state."""

    def __init__(self, looks):
        self.looks, self.address = looks, "tcp://here"
        self.state = SimpleNamespace(nthreads=1, tasks={"key": SimpleNamespace(state="executing")})

    @property
    def status(self):
        self.looks -= 1
        return distributed.Status.closing_gracefully if self.looks < 0 else distributed.Status.paused

    def get_current_task(self):
        return "key"


@pytest.mark.parametrize("looks", [0, 9])
def test_a_worker_that_closes_hands_its_task_back(tmp_path, monkeypatch, looks):
    """A result of its own, that the run was stopped, might reach the study before the task is given to another."""
    monkeypatch.setattr(distributed, "get_worker", lambda: Closing(looks))
    monkeypatch.setattr(distributed, "get_client", lambda: None)
    monkeypatch.setattr(distributed, "Event", lambda *_, **__: SimpleNamespace(is_set=lambda: False))
    with pytest.raises(distributed.Reschedule):
        vimco_worker.run_on_worker(
            ["-c", SMALL_PROGRAM, "waits", str(tmp_path / "a")], str(tmp_path), None, "event", {}
        )
    assert not vimco_worker._taken
    assert not (tmp_path / "a").exists()


# Mistakes.


def test_something_else_listens(tmp_path, monkeypatch):
    """It accepts a connection and says nothing."""
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            pytest.raises(UsageError, match=f"No Dask scheduler answers at {address}"),
            connect(address, None, tmp_path, number=None, most=1, threads=None),
        ):
            pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cluster", "127.0.0.1:FREE"], "No Dask scheduler answers at 127.0.0.1:"),
        (["--cluster", "nowhere://x:1"], "No Dask scheduler answers at nowhere://x:1"),
        (["--cluster", "http://127.0.0.1:8787/status"], "--cluster is the address of a Dask scheduler"),
        (["--cluster", "tcp://127.0.0.1"], "--cluster is the address of a Dask scheduler"),
        (["--cluster", "slrm"], "or one of slurm, pbs, lsf, sge; got 'slrm'"),
        (["--cluster", "SLURM", "--cluster-options", "missing.yaml"], "cannot be read: No such file"),
        (["--cluster", "127.0.0.1:1", "--cluster-options", "o.yaml"], "are for the batch systems slurm, pbs, lsf, sge"),
        (["--cluster-options", "o.yaml"], "--cluster-options needs --cluster"),
        (["--cluster", "127.0.0.1:1", "--script", "slurm"], "leave --cluster out"),
        (["--cluster", "slurm", "--cluster-options", "missing.yaml"], "cannot be read: No such file"),
        (["--cluster", "slurm", "--cluster-options", "bad.yaml"], "is not YAML"),
        (["--cluster", "slurm", "--cluster-options", "list.yaml"], "must hold names and values"),
        (["--cluster", "slurm", "--cluster-options", "o.yaml"], "unexpected keyword argument 'corse'"),
        (["--cluster", "slurm"], "cores and memory at least"),
        (["--cluster", "pbs"], "submits jobs by qsub, which is not on"),
    ],
)
def test_mistakes_are_told_in_a_sentence_and_nothing_is_written(tmp_path, monkeypatch, capfd, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    for name, content in {"bad.yaml": "{", "list.yaml": "- 1", "o.yaml": "corse: 1", "sbatch": ""}.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = [argument.replace("FREE", str(free_port())) for argument in arguments]
    with pytest.raises(SystemExit) as refusal:
        cli.main(["study", "figure-4", "--data", "synthetic", *arguments])
    assert refusal.value.code == 2
    assert message in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "studies").exists()
    del refusal
    gc.collect()  # half of a cluster, about which Dask complains at its end


def test_a_missing_library_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(UsageError, match=r'pip install "\.\[cluster\]" in the'),
        connect("127.0.0.1:1", None, tmp_path, number=None, most=9, threads=None),
    ):
        pass


def test_other_versions_are_refused_at_the_start_and_later(engine, machines, tmp_path):
    """By a worker that is there, and by a task of one that came later."""
    metadata = tmp_path / "other" / "vimco-9.9.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vimco\nVersion: 9.9\n")
    path = os.pathsep.join([str(metadata.parent), os.environ.get("PYTHONPATH", "")])
    other = machines.worker(PYTHONPATH=path)
    engine.client.wait_for_workers(3, timeout=LONG)
    with (
        pytest.raises(UsageError, match=r"The worker at .* has vimco 9.9 instead of"),
        connect(machines.address, None, tmp_path, number=None, most=9, threads=None),
    ):
        pass
    jobs = [engine.start(["waits", str(tmp_path / name)]) for name in "abc"]
    while all(job.ending() is None for job in jobs):
        time.sleep(0.05)
    (failed,) = [job.ending() for job in jobs if job.ending() is not None]
    assert re.search(r"The worker at .* has vimco 9.9 instead of .*: install the same versions there", failed.failure)
    for job in jobs:
        job.kill()
    other.kill()


def test_files_that_are_not_shared_are_refused(tmp_path):
    client = SimpleNamespace(run=lambda function, path: {"a": function(path), "b": False})
    with pytest.raises(UsageError, match=f"The worker at b does not see the files in {tmp_path}"):
        cluster._refuse_other_files(client, tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []


def test_threads_of_a_worker_get_their_own_cores():
    cores = vimco_worker.available_cores()
    with vimco_worker._place() as first, vimco_worker._place() as second:
        with contextlib.suppress(ValueError), vimco_worker._place():
            raise ValueError
        with vimco_worker._place() as third:
            assert (first, second, third) == (0, 1, 2)
    with vimco_worker._place() as place:
        assert place == 0
    assert vimco_worker.cores_of(0, len(cores)) == cores
    assert vimco_worker.cores_of(1, 1) == [cores[1 % len(cores)]]
    assert isinstance(DaskCluster.number, property)
