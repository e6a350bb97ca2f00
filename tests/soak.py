"""Disturbs trainings in every way it knows, and compares how they end with trainings that nothing happened to.

    python tests/soak.py --kills 1000        # `make soak`; --seed repeats a campaign, --folder keeps its files

Each session of a run is a process of its own. It is killed by SIGKILL before, within or after a chosen write, flush,
rename or removal of a file, or at a random moment; stopped and continued; sent bursts of SIGTERM and SIGINT; its disk
is full; its clock jumps; a byte of its latest checkpoint is flipped; it is evaluated, drawn and reported on meanwhile.
Studies lose their workers, and their own process. At the end parameters, training state, best models, metrics, summary
and pictures must be those of the reference, bit for bit. The exit status is 1 after a difference.
"""

import argparse
import contextlib
import dataclasses
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

from crashes import HOW, STEPS
from program import assert_same_outcome

from vimco import files
from vimco.errors import UsageError
from vimco.report import write_report
from vimco.runs import checkpoints, directory, pictures, session
from vimco.runs.config import RunConfig

BASE = RunConfig(data="synthetic", log_every=10, validate_every=30, learning_rate=0.01)
CHANGES = {
    "task": ("generative", "structured"),
    "layers": ((3,), (4, 3)),
    "estimator": ("vimco", "nvil", "rws", "rws-both", "vimco-learned"),
    "num_samples": (2, 3),
    "precision": ("float32", "float64"),
    "averaging": (None, 0.9),
    "clip": (None, 1.0),
    "tensorboard": (False, True),
    "updates": (65, 90),
    "checkpoint_seconds": (0.0, 0.05, 30.0),
}
KINDS = {"step": 8, "moment": 4, "burst": 2, "pause": 1, "disk": 2, "clock": 1, "damage": 1, "readers": 1}  # how often
SESSIONS = 40  # of one run; after them it is left in peace


class Campaign:
    """Trains, disturbs, compares, counts."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.draw, self.counts = folder, random.Random(seed), Counter()
        self.differences: list[str] = []

    def one_run(self) -> None:
        """One reference, and one run that ends the same in spite of everything."""
        draw = self.draw
        config = dataclasses.replace(BASE, seed=draw.randrange(3), **{k: draw.choice(v) for k, v in CHANGES.items()})
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        reference, path = folder / "reference", folder / "run"
        status = self.session(config, reference, nothing, nothing)
        assert status == 0, f"a run that nothing happened to ended with {status}: {config}"
        for _ in range(SESSIONS):
            if self.disturbed_session(config, path) == 0:
                break
        else:
            assert self.session(config, path, nothing, nothing) == 0
        self.counts["runs"] += 1
        self.compare(path, reference, repr(config))

    def compare(self, path: Path, reference: Path, what: str) -> None:
        try:
            assert_same_outcome(path, reference)
            for name in ("curves.png", "samples.png"):
                assert (path / name).read_bytes() == (reference / name).read_bytes(), name
        except AssertionError as error:
            self.differences.append(f"{what}: {error}")
        else:
            shutil.rmtree(path.parent)

    def disturbed_session(self, config: RunConfig, path: Path) -> int:
        """One session, disturbed in one way; its exit status."""
        draw, inside, outside = self.draw, nothing, nothing
        kind = draw.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        number, how, delay = draw.randrange(1, 90), draw.choice(HOW), draw.uniform(0.0, 3.0)
        match kind:
            case "step":
                inside = partial(die_at, number, how)
            case "moment":
                outside = partial(self.after, delay, [signal.SIGKILL])
            case "burst":
                names = draw.choices((signal.SIGTERM, signal.SIGINT), k=draw.randrange(1, 4))
                outside = partial(self.after, delay, names)
            case "pause":
                outside = partial(self.after, delay, [signal.SIGSTOP, None, signal.SIGCONT])
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
        self.counts["kills"] += status == -signal.SIGKILL
        if status not in (0, 2, 130, 143, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
            self.differences.append(f"{config}: a session ended with {status} after {kind}: {log(path)}")
        if status == 2 and kind != "disk":
            self.differences.append(f"{config}: refused after {kind}: {log(path)}")
        return status

    def session(self, config: RunConfig, path: Path, inside, outside) -> int:
        """A session in a process of its own, which has imported everything; its exit status."""
        process = os.fork()
        if process == 0:
            status = 1
            try:
                with log_file(path).open("w") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                inside()
                status = train_or_resume(config, path)
            except KeyboardInterrupt:
                status = 130
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", flush=True)
            finally:
                os._exit(status)
        outside(process)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def after(self, seconds: float, names, process: int) -> None:
        """Sends signals after a while, unless the process has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            time.sleep(0.005)
        for name in names:
            time.sleep(0.2 if name is None else 0.0)
            if name is not None:
                os.kill(process, name)

    def read_beside(self, path: Path, _process: int) -> None:
        """Evaluates, draws and reports while the run goes on. What is not there yet is told in a sentence."""
        if not (path / directory.CONFIG).exists():
            return
        reader = os.fork()
        if reader == 0:
            status = 1
            try:
                for read in (evaluate, draw_samples, lambda p: write_report([p], p.parent / "report", None)):
                    with contextlib.suppress(UsageError):
                        read(path)
                status = 0
            except BaseException as error:
                log_file(path).write_text(f"{type(error).__name__}: {error}")
            finally:
                os._exit(status)
        if os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) != 0:
            self.differences.append(f"a reader beside a live trainer failed: {log(path)}")

    def one_study(self) -> None:
        """A study whose workers and whose own process are killed, until it comes to its end."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        command = [sys.executable, "-c", "from vimco.cli import main; main()", "study", "structured-nll"]
        command += [
            "--data",
            "synthetic",
            "--updates",
            "60",
            "--rates",
            "0.001",
            "--only",
            "vimco",
            "--workers",
            "2",
            "--output",
        ]
        subprocess.run([*command, str(folder / "reference")], check=True, capture_output=True)
        for _ in range(SESSIONS):
            process = subprocess.Popen(
                [*command, str(folder / "study")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            deadline = time.monotonic() + self.draw.uniform(1, 20)
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            if process.poll() is None:
                workers = children(process.pid)
                victims = [process.pid] if self.draw.random() < 0.5 or not workers else [self.draw.choice(workers)]
                for victim in victims:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                        self.counts["kills"] += 1
            process.wait()
            if process.returncode == 0:
                break
            time.sleep(1.0)  # the workers of a killed study save and end
        self.counts["studies"] += 1
        for reference in (folder / "reference" / "runs").iterdir():
            path = folder / "study" / "runs" / reference.name
            try:
                assert_same_outcome(path, reference)
                ours, theirs = (directory.load(p).summary()["evaluations"] for p in (path, reference))
                assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), "evaluations"
            except (AssertionError, OSError, UsageError, KeyError) as error:
                self.differences.append(f"study, {reference.name}: {error}")


def nothing(*_) -> None:
    """No disturbance."""


def children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def log_file(path: Path) -> Path:
    return path.with_name("log")


def log(path: Path) -> str:
    return log_file(path).read_text()[-500:]


def train_or_resume(config: RunConfig, path: Path) -> int:
    try:
        if (path / directory.CONFIG).exists():
            session.resume(path)
        else:
            session.train(config, path)
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


def die_at(number: int, how: str) -> None:
    """SIGKILL to this process at its n-th step on files: before it, after it, or with half of a write done."""
    taken = 0

    def counted(name, original):
        def replacement(*arguments):
            nonlocal taken
            taken += 1
            if taken == number:
                if how == "within" and name == "_write":
                    original(arguments[0], arguments[1][: len(arguments[1]) // 2])
                elif how == "after":
                    original(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            original(*arguments)

        return replacement

    for name in STEPS:
        setattr(files, name, counted(name, getattr(files, name)))


def fill_disk(number: int) -> None:
    """From the n-th write on nothing fits."""
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
    """Time of day jumps back and forth; the clock for durations, which never goes back, leaps ahead."""
    now, monotonic, leaps = time.time, time.monotonic, random.Random(0)
    offset = 0.0

    def leaping() -> float:
        nonlocal offset
        offset += leaps.choice((0.0, 0.0, 0.5))
        return monotonic() + offset

    time.time = lambda: now() + leaps.uniform(-1e7, 1e7)
    time.monotonic = leaping


def flip_a_byte(path: Path, draw: random.Random) -> None:
    """Damages the latest checkpoint, if the previous one is there to fall back on."""
    if path.exists() and path.with_name(checkpoints.PREVIOUS).exists():
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="stop after so many SIGKILLs")
    parser.add_argument("--seed", type=int, default=0, help="where all choices come from")
    parser.add_argument("--no-studies", action="store_true", help="leave studies out: they are slow to start")
    parser.add_argument("--folder", type=Path, help="where to work; by default a temporary folder")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="vimco-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "compiled"))
    campaign = Campaign(folder, options.seed)
    while campaign.counts["kills"] < options.kills and not campaign.differences:
        campaign.one_run()
        if not options.no_studies and campaign.counts["runs"] % 20 == 1:
            campaign.one_study()
        print(dict(campaign.counts), flush=True)
    for difference in campaign.differences:
        print("DIFFERENT:", difference)
    counts = campaign.counts
    print(
        f"{counts['kills']} kills in {counts['runs']} runs and {counts['studies']} studies, seed {options.seed}: "
        f"{len(campaign.differences)} differences."
    )
    if not campaign.differences and options.folder is None:
        shutil.rmtree(folder)
    sys.exit(1 if campaign.differences else 0)


if __name__ == "__main__":
    main()
