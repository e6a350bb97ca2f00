"""A run directory: configuration, metrics, checkpoints, summary; writing and reading them.

`docs/how-to/program.md` lists its files. While an evaluation is made in parts, there is a file for each part, too.
"""

import contextlib
import importlib.metadata
import itertools
import math
import os
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import numpy as np

from vimco.data import Dataset, DownloadHook, load_dataset
from vimco.data.dataset import LARGEST_IMAGE
from vimco.errors import UsageError
from vimco.files import remove_file, remove_unfinished_files
from vimco.runs import checkpoints, store
from vimco.runs.config import RunConfig
from vimco.runs.experiment import Experiment, Purpose, Split, key_for, precision, untrained_model
from vimco.runs.locks import RECORDS, lock_records
from vimco.runs.store import is_json_of, write_json
from vimco.runs.team import Team
from vimco.training.devices import mesh_of
from vimco.training.evaluation import Evaluation, Prediction, evaluate, joined

Weights = Literal["best", "best-average", "latest"]
T = TypeVar("T")

CONFIG = "config.json"  # the configuration, versions, thread count, and the data set's checksum
METRICS = "metrics.jsonl"  # one line a log point, each with its `update`
SUMMARY = "summary.json"  # the results, evaluations (`stages`: those from before an extension) and `noise`
BEST: dict[str, str] = {"best": "best.safetensors", "best-average": "best_average.safetensors"}

# What a training writes, without a lock of the records; "lock" is of its own lock.
OF_TRAINING = (CONFIG, METRICS, checkpoints.CHECKPOINT, *BEST.values(), "curves.png", "samples.png", "lock")

JACKKNIFE = "jackknife_negative_log_likelihood"  # in the record of an evaluation that was asked for it

EVALUATION_SEED = 0  # of the samples for every number of a table
VALIDATION = {"best": "validation_bound", "best-average": "average_validation_bound"}

_EVALUATION = {
    **dict.fromkeys(("seed", "update", "num_samples"), int),
    **dict.fromkeys(("split", "weights"), str),
    **dict.fromkeys(("negative_log_likelihood", "standard_error"), (float, None)),
    **dict.fromkeys(("error", "error_of_one", "log_loss"), (float, None)),
    "active_units": ([int], None),
}
_NOISE = {
    **dict.fromkeys(("num_samples", "draws", "update"), int),
    **dict.fromkeys(("estimator", "weights"), str),
    **dict.fromkeys(("bound", "effective_sample_size"), (float, None)),
    **dict.fromkeys(("model_variance", "model_snr", "proposal_variance", "proposal_snr"), (float, None)),
}
_SUMMARY = {  # a run has some of these
    "updates": int,
    "best": checkpoints.BEST_KIND,
    "best_average": checkpoints.BEST_KIND,
    "note": str,
    "evaluations": [_EVALUATION],
    "stages": [{"updates": int, "evaluations": [_EVALUATION]}],
    "noise": [_NOISE],
}
_PART = ("bound", "variance", "effective_sample_size")  # the arrays in a part of an evaluation


@dataclass(frozen=True)
class Run:
    """A run directory on disk.

    A run may be unfinished or without evaluation: what is missing is None or empty.
    """

    path: Path
    config: RunConfig
    environment: dict[str, Any]
    data: dict[str, Any]  # name, checksum, image_shape; note: a sentence to print beside likelihoods, or ""
    name: str = ""  # in a report, where it differs from every other run's
    _known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of the images, in pixels."""
        height, width = self.data["image_shape"]
        return height, width

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics so far; a line cut off by a crash is left out."""
        return self._read(METRICS, store.metrics_and_damage)[0]

    @property
    def problems(self) -> list[str]:
        """The parts that could not be read, a sentence each."""
        lines, damaged = self._read(METRICS, store.metrics_and_damage)
        path, last = self.path / METRICS, lines[-1]["update"] if lines else 0
        if damaged:
            return [f"{path}: {damaged} damaged lines are left out."]
        if last < self.summary().get("updates", 0):
            return [f"{path}: it ends at update {last:,}, before the end of the run; what follows is damaged or gone."]
        return []

    def summary(self) -> dict[str, Any]:
        """Return the results; before the end of a run only its evaluations."""
        return self._read(SUMMARY, _summary)

    def _read(self, name: str, reader: Callable[[Path], T]) -> T:
        """Return the content of a file, read again only where the file has changed."""
        path, stamp = self.path / name, None
        with contextlib.suppress(OSError):
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if name not in self._known or self._known[name][0] != stamp:
            self._known[name] = (stamp, reader(path))
        return self._known[name][1]

    @property
    def updates(self) -> int:
        """The number of updates done, as far as recorded."""
        return max([self.summary().get("updates", 0), *(line["update"] for line in self.metrics()[-1:])])

    @property
    def is_finished(self) -> bool:
        """Whether it has reached the end of its budget, and is not being extended."""
        return self.summary().get("updates", -1) >= self.updates

    def best(self, weights: Weights = "best", until: int | None = None) -> tuple[int, float] | None:
        """Return update and value of its best validation bound, of all or of those up to an update."""
        points = self.curve(VALIDATION[weights])
        if not points and (best := self.summary().get(weights.replace("-", "_"))):
            points = [(best["update"], best["validation_bound"])]
        return max((p for p in points if until is None or p[0] <= until), key=lambda p: (p[1], -p[0]), default=None)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """Return update and value of a metric, where it was measured."""
        return [(line["update"], line[name]) for line in self.metrics() if line.get(name) is not None]

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """All recorded evaluations; values that are not finite are NaN."""
        return _readable(self.summary().get("evaluations", []))

    @property
    def stages(self) -> dict[int, list[dict[str, Any]]]:
        """The evaluations from before each extension, by the number of updates at that time."""
        summary = self.summary()
        stages = {stage["updates"]: _readable(stage["evaluations"]) for stage in summary.get("stages", [])}
        if "updates" in summary and not self.is_finished:  # it is being extended
            done = summary["updates"]
            stages[done] = [record for record in self.evaluations if record["update"] <= done]
        return stages

    def evaluation(
        self, num_samples: int, weights: Weights = "best", updates: int | None = None
    ) -> dict[str, Any] | None:
        """Return its recorded evaluation on the test split, of its best parameters now or after `updates`, or None.

        An evaluation of parameters that were the best at an earlier time does not count.
        """
        wanted = {"split": "test", "weights": weights, "num_samples": num_samples, "seed": EVALUATION_SEED}
        records, best = self.stages.get(updates or 0, []), self.best(weights, updates)
        if not records and updates in (None, self.updates):
            records = self.evaluations
        if best is not None:
            wanted["update"] = best[0]
        return next((record for record in records if best and wanted.items() <= record.items()), None)

    def model(self, weights: Weights = "best") -> Any:
        """Return the model with its best, latest, or best averaged parameters."""
        return self.model_and_update(weights)[0]

    def model_and_update(self, weights: Weights = "best") -> tuple[Any, int]:
        """Return the model with these parameters, and the update after which they were kept, reading the file once."""
        with precision(self.config):
            if weights == "latest":
                checkpoint = checkpoints.latest_checkpoint(self.path)
                if checkpoint.fallback is not None:
                    warnings.warn(checkpoint.fallback, stacklevel=3)
                path, facts = self.path / checkpoints.CHECKPOINT, checkpoint.facts
                arrays = {n.removeprefix("model."): a for n, a in checkpoint.arrays.items() if n.startswith("model.")}
            else:
                path = self.path / BEST[weights]
                if not path.exists():
                    raise UsageError(self._why_missing(weights))
                arrays, facts = store.read_arrays(path)
            mean = np.zeros(math.prod(self.image_shape))
            template = eqx.filter_eval_shape(lambda: untrained_model(self.config, mean, self.image_shape))
            model = store.filled(template, arrays, path)
            checkpoints.refuse_another_run(facts, self.facts, path)
            return model, _update_in(facts, path)

    def _why_missing(self, weights: Weights) -> str:
        """Return the sentence for parameters that are not in the directory."""
        if weights == "best-average" and self.config.averaging is None:
            return f"{self.path} holds no averaged parameters: train with --averaging 0.999, say, or choose others."
        for other, file in BEST.items():
            if (self.path / file).exists():
                return f"{self.path} holds no {weights} model, but the {other} one: choose it by --weights."
        return f"{self.path} holds no {weights} model yet: the first one is kept at the first validation."

    def update_of(self, weights: Weights) -> int:
        """Return the update after which these parameters were kept."""
        if weights == "latest":
            return checkpoints.latest_update(self.path)
        path = self.path / BEST[weights]
        return _update_in(store.read_facts(path), path)

    @property
    def facts(self) -> dict[str, Any]:
        """The facts in each of its weights files, which identify the run."""
        return checkpoints.facts_of_run(self.config, self.data["checksum"])

    def dataset(self, progress: DownloadHook | None = None) -> Dataset:
        """Return the data set that the run was trained on, checked to be the same; `progress` reports a download."""
        dataset = load_dataset(self.config.data, binarize=self.config.binarize, progress=progress)
        if dataset.checksum != self.data["checksum"]:
            raise UsageError(
                f"The data set {self.config.data} has changed since {self.path} was trained on it "
                f"(checksum {dataset.checksum[:12]}…, then {self.data['checksum'][:12]}…): restore it."
            )
        if dataset.image_shape != self.image_shape:
            raise UsageError(
                f"{self.path / CONFIG} is damaged: its images have {' x '.join(map(str, self.image_shape))} pixels, "
                f"and those of {self.config.data} have {' x '.join(map(str, dataset.image_shape))}."
            )
        return dataset

    def evaluate(
        self,
        num_samples: int = 1000,
        split: Split = "test",
        *,
        weights: Weights = "best",
        seed: int = 0,
        progress: Any = None,
        devices: int = 1,
        jackknife: bool = False,
        part: tuple[int, int] = (1, 1),
    ) -> Evaluation:
        """Return the K-sample bound of every example of a split, with samples from the proposal it was trained with.

        The part (2, 5) is the second of five parts of the examples. Several processes must all call this, for the same.
        """
        team = Team()
        with team.as_one():
            mesh = mesh_of(devices)
            key = key_for(Purpose.EVALUATION, seed)
            model, update = self.model_and_update(weights)
            dataset = self.dataset()
        team.require_same(
            options=str((num_samples, split, weights, seed, devices, jackknife, part)),
            configuration=str(self.config),
            data=dataset.checksum,
            weights=str(update),
            versions=str(versions()),
        )
        with precision(self.config):
            model = team.from_first(model)
            examples = Experiment(self.config, dataset, mesh).examples(split)
            evaluation = evaluate(model, examples, key, num_samples, progress, mesh, jackknife=jackknife, part=part)
            return evaluation._replace(update=update)

    def record_outcome(self, outcome: dict[str, Any]) -> None:
        """Write the results to `summary.json`, and keep the evaluations that are already there.

        Those from before an extension become a stage of their own. Evaluations made during the extension belong to no
        stage: their parameters are of a later update than the stage's last. Evaluations of parameters that have been
        replaced since belong to nothing else, and are dropped.
        """
        with lock_records(self.path):
            remove_unfinished_files(self.path, SUMMARY)  # of a process that was killed
            before = _summary(self.path / SUMMARY)
            stages, evaluations = before.get("stages", []), before.get("evaluations", [])
            if before.get("updates") != outcome["updates"]:
                if of_stage := [e for e in evaluations if e["update"] <= before.get("updates", -1)]:
                    stages = [*stages, {"updates": before["updates"], "evaluations": of_stage}]
                final = {"latest": outcome["updates"]}
                final |= {weights: best["update"] for weights in BEST if (best := outcome[weights.replace("-", "_")])}
                evaluations = [e for e in evaluations if e["update"] == final.get(e["weights"])]
            records = {"evaluations": evaluations, "stages": stages, "noise": before.get("noise", [])}
            kept = {name: those for name, those in records.items() if those}
            write_json(self.path / SUMMARY, {**outcome, **kept})

    def record_evaluation(self, evaluation: Evaluation, split: Split, weights: Weights, seed: int) -> None:
        """Write an evaluation to `summary.json`; it replaces one of the same kind and update.

        One of an earlier update stays until the run ends: `record_outcome` may need it for a stage.
        """
        which = {"split": split, "weights": weights, "seed": seed, "update": evaluation.update}
        record, kind = {**which, **evaluation.to_json()}, ("split", "weights", "seed", "num_samples", "update")
        for earlier in self.summary().get("evaluations", []):  # its jackknife is of the same samples
            if all(earlier[name] == record[name] for name in kind) and JACKKNIFE in earlier:
                record.setdefault(JACKKNIFE, earlier[JACKKNIFE])
        self._replace_records("evaluations", [record], kind)
        if (split, seed) == ("test", EVALUATION_SEED):
            for part in self.path.glob(f"evaluation-{weights}-K{evaluation.num_samples}-part-*.safetensors"):
                remove_file(part)  # of the same evaluation; a study that was stopped may have left it

    @property
    def noise(self) -> list[dict[str, Any]]:
        """What `vimco noise` has measured: variance and signal-to-noise ratio of gradients, by estimator and update."""
        return _readable(self.summary().get("noise", []))

    def noise_of_training(self) -> list[dict[str, Any]]:
        """Return what was measured in the state of the training: its latest parameters and number of samples."""
        is_own = {"num_samples": self.config.num_samples, "weights": "latest"}
        return [record for record in self.noise if is_own.items() <= record.items()]

    def record_noise(self, records: Sequence[dict[str, Any]]) -> None:
        """Write the noise of gradients to `summary.json`; it replaces earlier records of the same kind."""
        self._replace_records("noise", records, ("estimator", "num_samples", "weights", "update"))

    def _replace_records(self, section: str, records: Sequence[dict[str, Any]], kind: Sequence[str]) -> None:
        """Write records to a section of `summary.json`, instead of those that agree in all fields of `kind`."""
        new = {tuple(record[name] for name in kind) for record in records}
        with lock_records(self.path):
            remove_unfinished_files(self.path, SUMMARY)  # of a process that was killed
            summary = _summary(self.path / SUMMARY)
            others = [r for r in summary.get(section, []) if tuple(r[name] for name in kind) not in new]
            write_json(self.path / SUMMARY, {**summary, section: [*others, *map(store.with_null, records)]})

    def record_part(self, evaluation: Evaluation, weights: Weights, part: tuple[int, int]) -> None:
        """Write a part of an evaluation for a table to a file of its own, until `join_parts` joins all."""
        arrays = {name: getattr(evaluation, name) for name in _PART}
        more = {name: getattr(evaluation, name) for name in ("update", "active_units", "prediction")}
        facts = {**self.facts, **more}
        store.write_tree(self._part(evaluation.num_samples, weights, part), arrays, facts)

    def evaluated_part(self, num_samples: int, weights: Weights, part: tuple[int, int]) -> Evaluation | None:
        """Return a part that was written for the present weights; None if there is none."""
        path = self._part(num_samples, weights, part)
        try:
            arrays, facts = store.read_arrays(path)
            checkpoints.refuse_another_run(facts, self.facts, path)
        except UsageError:
            return None
        bound, variance, effective = columns = [arrays.get(name, np.zeros(0)) for name in _PART]
        is_whole = all(name in arrays for name in _PART) and all(
            column.dtype.kind == "f" and column.shape == (bound.size,)
            for column in columns  # perhaps of no examples
        )
        if facts.get("update") != self.update_of(weights) or not is_whole:
            return None
        units: Any = facts.get("active_units")
        labels: Any = facts.get("prediction")
        active = tuple(units) if is_json_of(units, [int]) else None
        prediction = Prediction(*labels) if is_json_of(labels, [float]) and len(labels) == 3 else None
        return Evaluation(num_samples, bound, variance, effective, facts["update"], None, active, prediction)

    def join_parts(self, num_samples: int, weights: Weights, number: int) -> bool:
        """Record an evaluation whose parts are all there, and remove them; return whether they are."""
        each = (self.evaluated_part(num_samples, weights, (i + 1, number)) for i in range(number))
        parts = [part for part in each if part is not None]
        if len(parts) < number:
            return False
        self.record_evaluation(joined(parts), "test", weights, EVALUATION_SEED)
        return True

    def _part(self, num_samples: int, weights: Weights, part: tuple[int, int]) -> Path:
        return self.path / f"evaluation-{weights}-K{num_samples}-part-{part[0]}-of-{part[1]}.safetensors"


def load(path: str | Path) -> Run:
    """Return the run in a directory."""
    path = Path(path)
    file = path / CONFIG
    if not file.exists():
        raise UsageError(f"{path} holds no run: there is no {CONFIG} in it.")
    record = store.read_json(file)
    for section in ("config", "environment", "data"):
        if not isinstance(record.get(section), dict):
            raise UsageError(f"{file} has no section {section!r}: it is damaged.")
    data = {"checksum": None, "name": "", "note": "", **record["data"]}
    shape: Any = data.get("image_shape")
    if not (is_json_of(shape, [int]) and len(shape) == 2 and min(shape) > 0):
        raise UsageError(f"{file}: the field 'image_shape' must be two positive integers; got {shape!r}.")
    if math.prod(shape) > LARGEST_IMAGE:
        raise UsageError(f"{file}: an image has at most {LARGEST_IMAGE:,} pixels; got {shape[0]} x {shape[1]}.")
    for name in ("checksum", "name", "note"):
        if not isinstance(data[name], str):
            raise UsageError(f"{file}: the field {name!r} must be a string; got {data[name]!r}.")
    try:
        config = RunConfig.from_json(record["config"])
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    return Run(path, config, record["environment"], {"name": config.data, **record["data"]}, path.name)


def _summary(path: Path) -> dict[str, Any]:
    summary = store.read_json(path) if path.exists() else {}
    for name, kind in _SUMMARY.items():
        if name in summary and not is_json_of(summary[name], kind):
            raise UsageError(f"{path} is damaged: the field {name!r} is not what a run writes there.")
    return summary


def _readable(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: float("nan") if v is None else v for k, v in record.items()} for record in records]


def new_directory(config: RunConfig) -> Path:
    """Make a new directory under `runs/` whose name describes the run, with a number if the name is taken."""
    estimator = "-".join((config.estimator, *config.estimator_options))
    task = "-".join((config.task, *config.task_options))
    stem = f"{Path(config.data).stem}-{task}-{estimator}-K{config.num_samples}-seed{config.seed}"
    for number in itertools.count(1):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        with contextlib.suppress(FileExistsError):  # perhaps of a process that was started at the same time
            _make(path, exist_ok=False)
            return path
    raise AssertionError("numbers have no end")


def make_directory(path: Path) -> None:
    """Make a directory for a new run; refuse one that is not empty."""
    refuse_occupied(path)
    _make(path, exist_ok=True)


def _make(path: Path, *, exist_ok: bool) -> None:
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        if isinstance(error, FileExistsError) and not exist_ok:
            raise
        raise UsageError(f"{path} cannot be made: {error.strerror}. Choose another --output.") from error


def new_run(path: Path, config: RunConfig, dataset: Dataset, devices: int = 1) -> Run:
    """Return a new run, of which nothing is written yet."""
    shape = list(dataset.image_shape)
    data = {"name": dataset.name, "checksum": dataset.checksum, "image_shape": shape, "note": dataset.note}
    return Run(path, config, environment(devices), data, path.name)


def refuse_occupied(path: Path) -> None:
    """Refuse a directory for a new run that holds another run, or anything else."""
    if (path / CONFIG).exists():
        raise UsageError(f"{path} holds another run. Resume it with `vimco resume {path}`, or choose another --output.")
    if path.exists() and not (path.is_dir() and all(_is_leftover(entry.name) for entry in path.iterdir())):
        raise UsageError(f"{path} is not an empty directory: choose another --output, so that nothing is overwritten.")


def _is_leftover(name: str) -> bool:
    """Return whether this may be left from a process that was killed before it wrote its configuration."""
    return name in (".lock", RECORDS) or (name.startswith(".") and name.endswith(".part"))


def write_config(run: Run) -> None:
    """Write `config.json`."""
    record = {"config": run.config.to_json(), "environment": run.environment, "data": run.data}
    write_json(run.path / CONFIG, record)


def environment(devices: int = 1) -> dict[str, Any]:
    """Return everything except the configuration that determines the last bits of a result."""
    layout = {"threads": _threads(), "devices": devices, "processes": jax.process_count()}
    return {"python": platform.python_version(), **versions(), "cpu": _cpu(), **layout}


def versions() -> dict[str, str]:
    """Return the versions of the packages that determine a result."""
    packages = ("vimco", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {name: importlib.metadata.version(name) for name in packages}


def differences(run: Run, devices: int = 1) -> list[str]:
    """Return the differences between this machine and the run's that may change the last bits."""
    now, then = environment(devices), {"devices": 1, "processes": 1, **run.environment}  # in earlier versions
    return [
        f"{name} {then.get(name)} then, {now[name]} now"
        for name in ("vimco", "jaxlib", "cpu", "threads", "devices", "processes")
        if then.get(name) != now[name]
    ]


def _update_in(facts: dict[str, Any], path: Path) -> int:
    """Return the update in the facts of a weights file."""
    if not is_json_of(facts.get("update"), int):
        raise store.DamagedFileError(f"{path} is damaged: it does not say of which update it is.")
    return facts["update"]


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else (os.cpu_count() or 1)
