"""Disturb trainings in many ways, and compare their results with undisturbed trainings.

    python tests/soak.py --kills 1000        # `make soak`; --seed repeats its choices, --folder keeps its files

Most kills are crashes within a process that has compiled a model once. A study of two runs loses sessions,
evaluations and itself: an unhandled exception ends the work before, within or after a chosen write, flush, rename or
removal of a file, and the next session has only the files. New places come first.

Then one of the runs is trained by real processes, again and again. They are killed by SIGKILL at such a step or after a
random time, stopped and continued, sent bursts of SIGTERM and SIGINT; their disk is full; their clock jumps; a byte of
the latest checkpoint is flipped; the run is evaluated, drawn and reported meanwhile. A study of real processes loses
its workers and its own process.

At the end parameters, training state, best models, metrics, summary, evaluations, pictures and event files must be
those of the reference, bit for bit, except for times. The exit status is 1 after a difference. The seed decides on
models, disturbances and places; where a call of the training ends also depends on the speed of the machine.
"""

import argparse
import contextlib
import dataclasses
import errno
import itertools
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")

import jax
from crashes import HOW, Killed, killed_at, killed_where, send_sigkill
from program import TIMING, assert_same_outcome

from vimco import cli, files
from vimco.errors import UsageError
from vimco.report import write_report
from vimco.runs import checkpoints, directory, pictures, session
from vimco.runs.config import RunConfig
from vimco.studies.runner import Watch, execution
from vimco.studies.runner.engine import Ending
from vimco.studies.runner.tasks import Evaluating, planned

BASE = RunConfig(data="synthetic", log_every=10, validate_every=30, learning_rate=0.01)
MODELS = 8  # of one campaign: each is compiled once, and then taken from the cache
OF_A_MODEL = {
    "num_samples": (2, 3),
    "precision": ("float32", "float64"),
    "averaging": (None, 0.9),
    "clip": (None, 1.0),
    "weight_decay": (0.0, 0.1),
    "schedule": ("constant", "cosine"),
}
LAYERS = ((3,), (4, 3))
OF_A_KIND = {  # of models; a campaign takes them in turn
    "generative": {
        "layers": LAYERS,
        "estimator": ("vimco", "nvil", "rws-both", "vimco-learned", "muprop", "renyi-warmup", "annealed", "rloo"),
    },
    "structured": {
        "layers": LAYERS,
        "estimator": ("vimco", "nvil", "rws", "straight-through", "ovis", "local-expectations", "tvo"),
    },
    "gaussian": {"layers": LAYERS, "estimator": ("pathwise", "dreg", "naive", "vimco", "nvil")},
    "attention": {
        "data": ("translated-bars",),
        "task_options": (("glimpses=2", "units=3", "grid=2", "patch=4", "scales=1"),),
        "proposal": ("prior", "learned"),
        "estimator": ("vimco", "nvil"),
    },
}
OF_A_RUN = {"tensorboard": (False, True), "updates": (65, 90), "checkpoint_seconds": (0.0, 0.0, 30.0)}
KINDS = {"step": 8, "moment": 4, "burst": 2, "pause": 1, "disk": 2, "clock": 1, "damage": 1, "readers": 1}  # how often
STEPS = 30  # on files that a command lives at most, where it is to crash
LAST_PART = 0.8  # of the crashes: from there on only new places, so that runs come to their end, and crash there, too
CRASHES = 60  # of one round at most: the next has another model
RUNS = 2  # of one study
SESSIONS = 10  # of processes that a round disturbs at least, and a single run at most
STUDY_OF_PROCESSES_EVERY = 10  # rounds
PROGRAM = (sys.executable, "-c", "from vimco.cli import main; main()", "study", "structured-nll", "--data", "synthetic")
STUDY = (*PROGRAM, "--updates", "60", "--rates", "0.001", "--only", "vimco", "--workers", "2", "--output")


class Deaths:
    """A number of crashes within this process, at new places first."""

    def __init__(self, number: int, draw: random.Random, known: Counter[str]):
        self.number, self.draw, self.known, self.places = number, draw, set(known), []

    @contextlib.contextmanager
    def one(self):
        """Let the command within crash at a step on files, unless it ends before."""
        last, how = self.draw.randrange(1, STEPS), self.draw.choice(HOW)

        def named(place) -> str:
            return " ".join((how, *place))

        def is_here(step, place) -> bool:
            is_new, so_far = named(place) not in self.known, len(self.places) / max(self.number, 1)
            if so_far >= LAST_PART:
                return is_new and so_far < 1
            return step >= last or (step >= last / 2 and is_new)

        with killed_where(is_here, how) as steps:
            try:
                yield
            except Killed:
                self.places.append(named(steps[-1]))
                self.known.add(self.places[-1])
                raise


@dataclasses.dataclass
class Done:
    """A job that has ended."""

    how: Ending

    def ending(self) -> Ending:
        return self.how

    def stop(self) -> None: ...

    kill = stop


@dataclasses.dataclass
class WithinThisProcess:
    """An engine that runs the commands of a study one after the other; they crash, and sometimes the study too."""

    deaths: Deaths
    number = 1

    def start(self, arguments) -> Done:
        try:
            with self.deaths.one():
                cli.main(list(arguments))
        except SystemExit as leaving:
            return Done(Ending(failure=f"exit status {leaving.code}"))
        except Killed:
            if self.deaths.draw.random() < 0.3:
                raise
            return Done(Ending(is_lost=True))
        return Done(Ending())


class Campaign:
    """A campaign: it trains, disturbs, compares and counts."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.seed, self.draw, self.counts = folder, seed, random.Random(seed), Counter()
        self.models = [self.model(task) for task, _ in zip(itertools.cycle(OF_A_KIND), range(MODELS), strict=False)]
        self.places: Counter[str] = Counter()  # where sessions crashed
        self.differences: list[str] = []
        self.sessions = 0  # that were disturbed

    def drawn(self, config: RunConfig, changes: dict) -> RunConfig:
        return dataclasses.replace(config, **{name: self.draw.choice(values) for name, values in changes.items()})

    def model(self, task: str) -> RunConfig:
        return self.drawn(dataclasses.replace(BASE, task=task), {**OF_A_MODEL, **OF_A_KIND[task]})

    @property
    def kills(self) -> int:
        return self.counts["crashes"] + self.counts["SIGKILLs"]

    def one_round(self, number: int, most_kills: int, *, with_processes: bool) -> None:
        """Run an undisturbed study and disturbed runs, and compare them."""
        # Choices of a round are its own: the one before has taken more or fewer, depending on the machine's speed.
        self.draw = random.Random(f"{self.seed} {number}")
        model, folder = self.models[(number - 1) % MODELS], Path(tempfile.mkdtemp(dir=self.folder))
        seeds = self.draw.sample(range(1000), RUNS)
        configs = [dataclasses.replace(self.drawn(model, OF_A_RUN), seed=seed) for seed in seeds]
        deaths = Deaths(most_kills, self.draw, self.places)
        if in_child(folder / "log", partial(crash_study, configs, folder, deaths)) != 0:
            self.differences.append(f"{configs}: {tail(folder / 'log')}")
            return
        places = json.loads((folder / "places.json").read_text())
        self.places.update(places)
        self.counts.update(runs=RUNS, studies=1, crashes=len(places))
        sessions = self.sessions + SESSIONS
        while with_processes and self.sessions < sessions and not self.differences:
            self.run_of_processes(configs[0], planned(configs, folder / "reference")[0].path)
        if with_processes and number % STUDY_OF_PROCESSES_EVERY == 1:
            self.study_of_processes(folder)
        if not self.differences:
            shutil.rmtree(folder)

    def run_of_processes(self, config: RunConfig, reference: Path) -> None:
        """Train a run whose sessions are processes, each disturbed in one way."""
        path = reference.parent.with_name(f"run of processes {self.sessions}")
        for _ in range(SESSIONS):
            if self.disturbed_session(config, path) == 0:
                break
        else:
            assert self.session(config, path, nothing, nothing) == 0, tail(path.with_name("log"))
        self.counts["runs"] += 1
        if in_child(path.with_name("log"), partial(assert_same_run, path, reference)) != 0:
            self.differences.append(f"{config}: {tail(path.with_name('log'))}")

    def disturbed_session(self, config: RunConfig, path: Path) -> int:
        """Run one session, disturbed in one way; return its exit status."""
        draw, inside, outside = self.draw, nothing, nothing
        kind = draw.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        number, how, work = draw.randrange(1, 90), draw.choice(HOW), draw.uniform(0.0, 5.0)
        match kind:
            case "step":
                inside = killed_at(number, how, send_sigkill).__enter__
            case "moment":
                outside = partial(self.after, work, [signal.SIGKILL])
            case "burst":
                names = draw.choices((signal.SIGTERM, signal.SIGINT), k=draw.randrange(1, 4))
                outside = partial(self.after, work, names)
            case "pause":
                outside = partial(self.after, work, [signal.SIGSTOP, None, signal.SIGCONT])
            case "disk":
                inside = partial(fill_disk, number)
            case "clock":
                inside = jumping_clock
            case "damage":
                flip_a_byte(path / checkpoints.CHECKPOINT, draw)
            case "readers":
                outside = partial(self.read_beside, path)
        status = self.session(config, path, inside, outside)
        self.counts[kind] += 1
        self.sessions += 1
        self.counts["SIGKILLs"] += status == -signal.SIGKILL
        log = tail(path.with_name("log"))
        if status not in (0, 2, 130, 143, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
            self.differences.append(f"{config}: a session ended with {status} after {kind}: {log}")
        if status == 2 and kind != "disk":
            self.differences.append(f"{config}: refused after {kind}: {log}")
        return status

    def session(self, config: RunConfig, path: Path, inside, outside) -> int:
        """Run a session in a separate process that has imported everything; return its exit status."""

        def work() -> int:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            inside()
            return status_of(config, path)

        return in_child(path.with_name("log"), work, outside)

    def after(self, seconds: float, names, process: int) -> None:
        """Send signals once the process has used this much processor time, unless it has ended."""
        while used_seconds(process) < seconds:
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            time.sleep(0.005)
        for name in names:
            time.sleep(0.2 if name is None else 0.0)
            if name is not None:
                os.kill(process, name)

    def read_beside(self, path: Path, _process: int) -> None:
        """Evaluate, draw and report during training; missing files must give a `UsageError`."""
        if not (path / directory.CONFIG).exists():
            return

        def work() -> None:
            for read in (evaluate, draw_samples, lambda p: write_report([p], p.parent / "report", None)):
                with contextlib.suppress(UsageError):
                    read(path)

        if in_child(path.with_name("readers"), work) != 0:
            self.differences.append(f"a reader beside a live trainer failed: {tail(path.with_name('readers'))}")

    def study_of_processes(self, folder: Path) -> None:
        """Run a study whose workers and own process are killed, until it is done."""
        reference, path = folder / "reference study of processes", folder / "study of processes"
        subprocess.run([*STUDY, reference], check=True, capture_output=True)
        for attempt in range(SESSIONS + 1):
            with (folder / "study log").open("w") as log:
                process = subprocess.Popen([*STUDY, path], stdout=log, stderr=log)
            goal = num_lines(path) + self.draw.randrange(12)
            while process.poll() is None and (num_lines(path) < goal or attempt == SESSIONS):
                time.sleep(0.05)
            workers = children(process.pid) if process.poll() is None else []
            if process.poll() is None:
                victim = process.pid if self.draw.random() < 0.5 or not workers else self.draw.choice(workers)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    self.counts["SIGKILLs"] += 1
            process.wait()
            while any(map(is_alive, workers)):  # those of a killed study save and end
                time.sleep(0.05)
            if process.returncode == 0:
                break
        else:
            self.differences.append(f"a study in peace ended with {process.returncode}: {tail(folder / 'study log')}")
        self.counts["studies"] += 1
        try:
            assert_same_study(path, reference)
        except (AssertionError, OSError, UsageError) as error:
            self.differences.append(f"study: {error}")


def crash_study(configs: list[RunConfig], folder: Path, deaths: Deaths) -> None:
    """Compare a study that crashes again and again with its reference; write down where it crashed.

    In a process of its own, which compiles: the campaign's must not, so that it can be forked.
    """
    execution.POLL_SECONDS = 0.0
    peace = Deaths(0, deaths.draw, Counter())
    for name, which in (("reference", peace), ("crashed", deaths)):
        is_done = False
        while not is_done:
            with contextlib.suppress(Killed):
                trainings, engine = planned(configs, folder / name), WithinThisProcess(which)
                failures = execution.run_study(trainings, None, engine, Watch()).failures
                # All runs, not only those that a table would choose.
                due = [Evaluating(t.path, 2, "best") for t in trainings if t.is_done() and not t.run().evaluations]
                failures += execution.execute(due, engine, Watch()).failures
                is_done = not failures
                assert which.places or is_done, failures
    assert_same_study(folder / "crashed", folder / "reference")
    (folder / "places.json").write_text(json.dumps(deaths.places))


def assert_same(path: Path, reference: Path) -> None:
    assert_same_outcome(path, reference)
    for name in ("curves.png", "samples.png"):
        assert (path / name).read_bytes() == (reference / name).read_bytes(), name
    assert events(path) == events(reference)


def assert_same_run(path: Path, reference: Path) -> None:
    """Assert the same outcome, and that evaluations made beside the training are those of the reference's weights."""
    assert_same(path, reference)
    run, other = directory.load(path), directory.load(reference)
    for e in run.evaluations:
        again = other.evaluate(e["num_samples"], e["split"], weights=e["weights"], seed=e["seed"])
        assert {**e, **again.to_json(), "update": again.update} == e, (e, again)


def events(path: Path) -> list[tuple]:
    """Return step, name and value of every record for TensorBoard, except times."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(path.glob("tensorboard/*")):
        content = file.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            event, content = Event.FromString(content[12 : 12 + size]), content[12 + size + 4 :]
            found += [(event.step, v.tag, v.simple_value) for v in event.summary.value if v.tag not in TIMING]
    return found


def assert_same_study(path: Path, reference: Path) -> None:
    """Assert the same runs and likelihoods; an interrupted study may have evaluated one more run."""
    for run in (reference / "runs").iterdir():
        assert_same(path / "runs" / run.name, run)
        ours, theirs = (directory.load(p / "runs" / run.name).evaluations for p in (path, reference))
        assert theirs, "no evaluations"
        assert all(evaluation in ours for evaluation in theirs), (ours, theirs)


def in_child(log: Path, work, outside=lambda _process: None) -> int:
    """Work in a child process whose output goes to a file; return its exit status, 0 for None."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            with log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            status = work() or 0
        except KeyboardInterrupt:
            status = 130
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    outside(process)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def nothing(*_) -> None:
    """Disturb nothing."""


def children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def used_seconds(process: int) -> float:
    """Return the processor seconds that a process has used, which do not depend on other load."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_alive(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def num_lines(study: Path) -> int:
    """Return the number of lines of metrics of a study's runs."""
    return sum(path.read_bytes().count(b"\n") for path in study.glob("runs/*/metrics.jsonl"))


def tail(log: Path) -> str:
    return log.read_text()[-700:]


def train_or_resume(config: RunConfig, path: Path) -> None:
    if (path / directory.CONFIG).exists():
        session.resume(path)
    else:
        session.train(config, path)


def status_of(config: RunConfig, path: Path) -> int:
    """Train or resume; return the exit status of the program."""
    try:
        train_or_resume(config, path)
    except session.Interrupted as interruption:
        return 128 + interruption.signal_number
    except UsageError as error:
        print(error, flush=True)
        return 2
    return 0


def evaluate(path: Path) -> None:
    run = directory.load(path)
    run.record_evaluation(run.evaluate(2, "validation"), "validation", "best", 0)


def draw_samples(path: Path) -> None:
    pictures.draw_samples(directory.load(path), path.parent / "samples.png")


def fill_disk(number: int) -> None:
    """Let every write fail from the n-th on, as on a full disk."""
    written, write = 0, files._write

    def full(descriptor, content):
        nonlocal written
        written += 1
        if written >= number:
            write(descriptor, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(descriptor, content)

    files._write = full


def jumping_clock() -> None:
    """Let the time of day jump back and forth, and the monotonic clock jump ahead."""
    now, monotonic, leaps = time.time, time.monotonic, random.Random(0)
    offset = 0.0

    def leaping() -> float:
        nonlocal offset
        offset += leaps.choice((0.0, 0.0, 0.5))
        return monotonic() + offset

    time.time = lambda: now() + leaps.uniform(-1e7, 1e7)
    time.monotonic = leaping


def flip_a_byte(path: Path, draw: random.Random) -> None:
    """Damage the latest checkpoint, if the previous one exists as a fallback."""
    if path.exists() and path.with_name(checkpoints.PREVIOUS).exists():
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="where all choices come from")
    parser.add_argument("--no-processes", action="store_true", help="crashes within one process only: a quick form")
    parser.add_argument("--folder", type=Path, help="where to work; by default a temporary folder")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="vimco-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    share_compiled(os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(folder / "compiled"))
    campaign, number = Campaign(folder, options.seed), 0
    while campaign.kills < options.kills and not campaign.differences:
        number += 1
        crashes = min(CRASHES, options.kills - campaign.kills)
        campaign.one_round(number, crashes, with_processes=not options.no_processes)
        print(
            f"{campaign.kills} kills, {cpu_minutes():.1f} minutes of the processor", dict(campaign.counts), flush=True
        )
    for difference in campaign.differences:
        print("DIFFERENT:", difference)
    for place, times in sorted(campaign.places.items()):
        print(f"{times:5} {place}")
    counts = campaign.counts
    print(
        f"{campaign.kills} kills ({counts['SIGKILLs']} of processes, {counts['crashes']} at {len(campaign.places)} "
        f"places within one) in {counts['runs']} runs and {counts['studies']} studies, seed {options.seed}, "
        f"{cpu_minutes():.0f} minutes of the processor: {len(campaign.differences)} differences."
    )
    if not campaign.differences and options.folder is None:
        shutil.rmtree(folder)
    sys.exit(1 if campaign.differences else 0)


def share_compiled(folder: str) -> None:
    """Let all processes, forked or started, compile a model once."""
    options = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in options.items():  # JAX has read its environment when it was imported
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


def cpu_minutes() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used) / 60


if __name__ == "__main__":
    main()
