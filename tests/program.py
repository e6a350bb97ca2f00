"""Runs for the tests: made in this process or by the program in another one, and compared bit for bit."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from vimco.runs import checkpoints, directory, session, store
from vimco.runs.config import RunConfig
from vimco.runs.store import read_arrays

PROGRAM = Path(sys.executable).with_name("vimco")  # as it was installed
TIMING = ("updates_per_second", "seconds", "processor_seconds")

# Everything that a checkpoint may contain: NVIL's moments, an average, a schedule's count. There is a checkpoint after
# every call, so that a kill may come at any distance from one.
EVERYTHING = RunConfig(
    data="synthetic",
    layers=(4, 3),
    estimator="nvil",
    num_samples=2,
    averaging=0.9,
    schedule="cosine",
    schedule_updates=3000,
    warmup_updates=5,
    clip=1.0,
    weight_decay=0.01,
    learning_rate=0.01,
    updates=90,
    log_every=10,
    validate_every=30,
    checkpoint_seconds=0.0,
)


class Recorder(session.Observer):
    """An observer that records all events, and stops the run at an update."""

    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.warnings = []
        self.lines = []

    def advanced(self, update, seconds, latest):
        if self.stop_at is not None and update >= self.stop_at:
            signal.raise_signal(signal.SIGTERM)

    def logged(self, line):
        self.lines.append(line)

    def warned(self, message):
        self.warnings.append(message)


def stopped_run(config, path, update):
    """Return a run that was stopped by SIGTERM at or soon after an update."""
    try:
        session.train(config, path, Recorder(stop_at=update))
    except session.Interrupted as interruption:
        return interruption.run
    raise AssertionError("the run came to its end")


def arrays(path, name=checkpoints.CHECKPOINT):
    return read_arrays(Path(path) / name)[0]


def assert_same_arrays(first, second):
    """Assert equality bit for bit: −0 is not 0, and a NaN equals itself."""
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert (array.dtype, array.shape) == (second[name].dtype, second[name].shape), name
        assert array.tobytes() == second[name].tobytes(), name


def without_timing(lines):
    return [{name: value for name, value in line.items() if name not in TIMING} for line in lines]


def assert_same_outcome(path, reference):
    """Assert the same parameters, training state, best models and metrics, except for times."""
    for name in (checkpoints.CHECKPOINT, *directory.BEST.values()):
        assert (path / name).exists() == (reference / name).exists(), name
        if (path / name).exists():
            assert_same_arrays(arrays(path, name), arrays(reference, name))
    run, other = directory.load(path), directory.load(reference)
    assert without_timing(run.metrics()) == without_timing(other.metrics())
    ours, theirs = dict(run.summary()), dict(other.summary())
    assert ours.pop("evaluations", ["none"]) != []  # compared elsewhere: one may be evaluated, and the other not
    theirs.pop("evaluations", None)
    assert {**ours, "minutes": None} == {**theirs, "minutes": None}
    assert [entry.name for entry in path.iterdir() if entry.name.endswith(".part")] == []


def environment(folder):
    """Return the environment of the program, without the user's data and caches, with the tests' compilation cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VIMCO_", "JAX_"))}
    return {
        **kept,
        "VIMCO_CACHE": str(folder / "cache"),
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "MPLCONFIGDIR": str(folder / "matplotlib"),
    }


def options(config):
    """Return the command line of a configuration."""
    words = []
    default = RunConfig().to_json()
    for name, value in config.to_json().items():
        if value != default.get(name):
            words += ["--" + name.replace("_", "-"), *map(str, value if isinstance(value, list) else [value])]
    return words


# Set what a process inherits, then replace it by the program. (Doing so between fork and exec in this process would be
# unsafe, since JAX has threads.) SIGINT acts as in a terminal, even if the tests run in the background.
LAUNCHER = """
import os, resource, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
os.execv(sys.argv[2], sys.argv[2:])
"""


def vimco(*arguments, folder, stderr=subprocess.PIPE, largest_file=resource.RLIM_INFINITY, variables=()):
    """Start the program, with these environment variables beside the usual ones."""
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(largest_file), PROGRAM, *map(str, arguments)],
        cwd=folder,
        env={**environment(folder), **dict(variables)},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def finished(process):
    """Return exit status, output, and errors."""
    out, errors = process.communicate(timeout=1800)  # a limit for what hangs, not for what is slow
    return process.returncode, out, errors


def wait_for_update(process, path, update):
    """Wait until the metrics reach an update; fail if the program has ended."""
    while not any(line["update"] >= update for line in store.read_metrics(path / directory.METRICS)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
