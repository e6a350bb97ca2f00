"""Training in a run directory: start, resume, extend; checkpoints, metrics, signals from the system."""

import contextlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from vimco.data import load_dataset
from vimco.errors import UsageError
from vimco.files import remove_unfinished_files, rename_file
from vimco.parameters import partition
from vimco.runs import checkpoints, directory, locks, store
from vimco.runs.checkpoints import Checkpoint, Progress
from vimco.runs.config import BUDGET, CADENCE, DEFAULT_UPDATES, RunConfig, option
from vimco.runs.directory import Run
from vimco.runs.experiment import Experiment, Purpose, key_for, precision
from vimco.runs.interrupts import Signals, collect_signals
from vimco.runs.locks import Lock
from vimco.runs.observer import Observer
from vimco.runs.pictures import Pictures
from vimco.runs.store import LARGEST_HEADER, LARGEST_TREE, MOST_LOGGED, filled, read_arrays, write_tree
from vimco.runs.team import CommonError, Team, is_lost_process
from vimco.runs.tensorboard import EventFiles
from vimco.samples import Examples
from vimco.training.devices import mesh_of, on_one_device, replicated
from vimco.training.evaluation import Evaluation, evaluate
from vimco.training.loop import advance

SECONDS_PER_CALL = 1.0  # the host handles metrics, signals and the clock between two compiled calls


class Interrupted(Exception):  # noqa: N818 - not an error
    """A signal stopped training, after its state was saved."""

    def __init__(self, signal_number: int, run: Run, update: int):
        super().__init__(f"Stopped at update {update:,}; nothing is lost.")
        self.signal_number = signal_number
        self.run = run


class LostProcessError(UsageError):
    """Another process of the training has ended, and none can go on without it."""


def train(
    config: RunConfig, output: str | Path | None = None, observer: Observer | None = None, *, devices: int = 1
) -> Run:
    """Train a new run in the directory `output`, which must be new or empty; by default in one under `runs/`.

    Mistakes in the configuration are refused before anything is written. `devices` is the number that share each batch.
    """
    team, observer = Team(), observer or Observer()
    with precision(config), contextlib.ExitStack() as stack:
        with team.as_one():
            mesh = mesh_of(devices)
            if output is not None:
                directory.refuse_occupied(Path(output))
            dataset = load_dataset(config.data, binarize=config.binarize, progress=observer.downloaded)
            experiment = Experiment(config, dataset, mesh)
            _shapes_of_state(experiment)
            _refuse_too_many_lines(experiment)
            _trace_one_update(experiment)
            writers = _writers(config, team)
            model = _starting_model(experiment)
        if output is None:
            with team.as_one():
                output = directory.new_directory(config) if team.is_first else ""
            output = team.text_of_first(str(output))
        path = Path(output)
        run = directory.new_run(path, config, dataset, devices)
        _require_same(team, run, devices)
        with team.as_one():
            lock = None
            if team.is_first:
                directory.make_directory(path)
                lock = stack.enter_context(locks.lock_for_training(path))
                directory.refuse_occupied(path)  # another process may have written in the meantime
                directory.write_config(run)
        state = experiment.initial_state(model)
        return _Session(run, team, lock, experiment, state, Progress(), observer, writers).run_to_end()


def resume(
    path: str | Path, observer: Observer | None = None, *, devices: int = 1, **budget: int | float | None
) -> Run:
    """Resume a run from its latest checkpoint, to the end of its budget or of new `updates=`, `epochs=` or `minutes=`.

    A cadence, such as `validate_every=`, may change, too. Budgets count from the run's beginning. On the
    same number of `devices` the run ends with the same parameters, bit for bit, as without interruption.
    """
    team, observer = Team(), observer or Observer()
    with team.as_one():
        if fixed := budget.keys() - {*BUDGET, *CADENCE}:
            raise UsageError(
                f"{', '.join(sorted(fixed))} cannot change when a run is resumed: leave it out, or start a new run, "
                "perhaps with init_from."
            )
        mesh = mesh_of(devices)
        run = directory.load(path)
        given = {name: value for name, value in budget.items() if value is not None}
        if given:
            # An extension does not move the horizon of a schedule.
            horizon = {"schedule_updates": run.config.horizon} if run.config.schedule != "constant" else {}
            replaced = dict.fromkeys(BUDGET) if given.keys() & set(BUDGET) else {}
            changes: dict[str, Any] = {**replaced, **horizon, **given}
            run = replace(run, config=replace(run.config, **changes))
    _require_same(team, run, devices)
    with precision(run.config), contextlib.ExitStack() as stack:
        with team.as_one():
            lock = stack.enter_context(locks.lock_for_training(run.path)) if team.is_first else None
            if different := "; ".join(directory.differences(run, devices)):
                observer.warned(f"The last bits of the result may differ from an uninterrupted run: {different}.")
            experiment = Experiment(run.config, run.dataset(observer.downloaded), mesh)
            _refuse_too_many_lines(experiment)
            writers = _writers(run.config, team)
            shapes, checkpoint, progress = _shapes_of_state(experiment), None, Progress()
            if checkpoints.has_checkpoint(run.path):
                checkpoint = checkpoints.latest_checkpoint(run.path)
                progress = checkpoint.progress
                state = _state_in(checkpoint, shapes, run)
            else:  # stopped before its first checkpoint
                state = experiment.initial_state(_starting_model(experiment))
        team.require_same(checkpoint=str((int(state.update), progress)))
        session = _Session(run, team, lock, experiment, state, progress, observer, writers)
        with team.as_one():
            if checkpoint is not None and given.keys() & set(BUDGET):
                session.refuse_used_budget()
            if team.is_first:
                session.repair(checkpoint)
                if given:
                    directory.write_config(run)
        return session.run_to_end()


def _require_same(team: Team, run: Run, devices: int) -> None:
    """Refuse processes with different runs, data, versions or devices."""
    config = json.dumps(run.config.to_json(), sort_keys=True)
    versions = str(directory.versions())
    team.require_same(configuration=config, data=run.data["checksum"], versions=versions, devices=str(devices))


def _state_in(checkpoint: Checkpoint, shapes: Any, run: Run) -> Any:
    """Return the training state in a checkpoint; refuse one of an earlier version, another model or another run."""
    path = run.path / checkpoints.CHECKPOINT
    if "identity" not in checkpoint.facts:
        raise UsageError(
            f"{run.path} was trained by an earlier version, whose optimizer kept another state: it can be "
            f"evaluated and drawn, but not resumed. Start a new run from its weights: --init-from {run.path}."
        )
    state = filled(shapes, checkpoint.arrays, path)
    checkpoints.refuse_another_run(checkpoint.facts, run.facts, path)
    return state


def train_or_resume(
    config: RunConfig, output: str | Path, observer: Observer | None = None, *, devices: int = 1, wait: float = 0.0
) -> Run:
    """Train a run in the directory `output`, or resume the existing one, which must have this configuration.

    A run that has come to the end of its budget, or was extended beyond it, stays as it is. While another process
    trains in the directory, for example one that was asked to stop and is about to save, this one waits up to `wait`
    seconds.
    """
    path, team = Path(output), Team()
    with team.as_one():
        if wait and team.is_first:
            locks.wait_for_lock(path, wait)
    # The first process decides for all: the run may be created at this moment.
    if not team.gathered((path / directory.CONFIG).exists())[0]:
        return train(config, path, observer, devices=devices)
    with team.as_one():
        run = directory.load(path)
        there, done = run.config, run.summary()
        for name, value in config.identity.items():
            if there.identity[name] != value:
                raise UsageError(
                    f"{path} holds a run of another configuration: its {name} is {there.identity[name]!r}, and "
                    f"{value!r} here. Choose another --output."
                )
    changes: dict[str, Any] = {}
    for names in (BUDGET, CADENCE):
        asked = {name: getattr(config, name) for name in names}
        if asked != {name: getattr(there, name) for name in names}:
            changes |= asked
    if BUDGET[0] in changes and all(changes[name] is None for name in BUDGET):
        changes["updates"] = DEFAULT_UPDATES
    for name in BUDGET:
        # An extension that was stopped is not in the summary yet, so what was asked for may be all that is there.
        if changes.get(name) is not None and done.get(name, 0) >= changes[name]:
            (observer or Observer()).warned(
                f"{path} has done the {changes[name]:g} {name} asked for, and was extended."
            )
            return run
    return resume(path, observer, devices=devices, **changes)


def _writers(config: RunConfig, team: Team) -> list[Observer]:
    """Return the observers that write to the run directory."""
    if not team.is_first:
        return []
    return [EventFiles(), Pictures()] if config.tensorboard else [Pictures()]


@dataclass
class _Session:
    """The part of a run that one process trains."""

    run: Run
    team: Team
    lock: Lock | None  # of the process that writes
    experiment: Experiment
    state: Any
    progress: Progress
    observer: Observer  # the caller's, to which warnings go
    writers: Sequence[Observer]  # to the run directory

    def __post_init__(self) -> None:
        experiment, mesh = self.experiment, self.experiment.mesh
        self.observers = (self.observer, *self.writers)
        self.update = int(self.state.update)
        self.state = replicated(self.team.from_first(self.state), mesh)
        self.trainer = replicated(experiment.trainer, mesh)
        self.examples: Examples = experiment.examples("train")
        self.validation: Examples = experiment.examples("validation")
        self.updates_per_epoch = self.trainer.updates_per_epoch(self.examples)
        self.total = self.run.config.total_updates(self.updates_per_epoch)
        self.epoch, self.order = -1, jnp.arange(0)  # `_advance` shuffles
        self.latest: dict[str, Any] = {}
        self.signals = Signals()
        self.saved_at = time.monotonic()
        self.has_compiled_validation = False
        self.new_best: set[str] = set()  # what of the state is the best so far, and not in its file yet

    def refuse_used_budget(self) -> None:
        """Refuse a new budget that is already used up."""
        done = ""
        if self.total is None and self._is_over():
            minutes = self.run.config.minutes
            done = f"trained for {self.progress.seconds / 60:.1f} minutes already, and {minutes:g} were asked for"
        elif self.total is not None and self.update > self.total:
            done = f"done {self.update:,} updates already, more than the {self.total:,} asked for"
        if done:
            raise UsageError(f"{self.run.path} has {done}: budgets count from the run's beginning.")

    def repair(self, checkpoint: Checkpoint | None) -> None:
        """Restore the files of the directory to the state of the checkpoint, or of a new run."""
        if checkpoint is not None and checkpoint.fallback is not None:
            self.observer.warned(checkpoint.fallback)
            # It replaces the damaged one, which would otherwise be kept as the previous one.
            rename_file(self.run.path / checkpoints.PREVIOUS, self.run.path / checkpoints.CHECKPOINT)
        self._write_missing_best()
        for name in directory.OF_TRAINING:  # an evaluation may be writing others
            remove_unfinished_files(self.run.path, name)
        path, logged = self.run.path / directory.METRICS, self.progress.logged_update
        there, damaged = store.metrics_and_damage(path)
        what = ""
        if damaged:
            what = f"{'1 line is' if damaged == 1 else f'{damaged} lines are'} damaged, and left out"
        elif logged and all(line["update"] != logged for line in there):
            what = f"the line of update {logged:,} was written, and is damaged or gone"
        if what:
            self.observer.warned(f"{path}: {what}. Parameters and checkpoints are not affected.")
        store.truncate_metrics(path, logged)

    def run_to_end(self) -> Run:
        """Train to the end of the budget, then write the results. A signal raises `Interrupted`."""
        config = self.run.config
        end = max(config.horizon, config.warmup_updates + 1)
        if config.schedule == "cosine" and (self.total is None or self.total > end):
            self.observer.warned(
                f"The cosine schedule ends at update {end:,}: from there on the learning rate is zero."
            )
        if config.schedule != "constant" and config.warmup_updates >= config.horizon:
            self.observer.warned(
                f"The warm-up of {config.warmup_updates:,} updates takes the whole schedule of {config.horizon:,}: "
                "after it the rate falls to its end at once."
            )
        try:
            with self._report_lost_process(), collect_signals() as self.signals:
                if not self.team.gathered(checkpoints.has_checkpoint(self.run.path))[0]:
                    self._save()
                for observer in self.observers:
                    observer.started(self.run, self.update, self.total)
                self._train()
            self._finish()
        finally:
            for observer in self.observers:
                observer.ended()
        return self.run

    @contextlib.contextmanager
    def _report_lost_process(self) -> Iterator[None]:
        """Raise a `LostProcessError` where an exchange fails because another process of the team has ended."""
        try:
            yield
        except UsageError:
            raise
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            if self.team.size == 1 or not is_lost_process(error):
                raise
            raise LostProcessError(
                f"Another process of this training has ended, so process {self.team.rank} ends, too "
                f"({str(error).splitlines()[0][:200]}). The last checkpoint stays: start all processes again with "
                f"--resume {self.run.path}."
            ) from error

    def _compiling(self, is_first_call: bool) -> contextlib.AbstractContextManager[None]:
        """Let SIGTERM end the process at once while a first call compiles, unless others would lose it."""
        is_free = is_first_call and self.team.size == 1
        return self.signals.end_at_once_on_sigterm() if is_free else contextlib.nullcontext()

    def _train(self) -> None:
        if self._is_line_due():  # the checkpoint was written just before the line
            self._log_line()
            self._save()
        elif self.update and self._is_over() and self.progress.validated_update != self.update:
            self._validate_last_line()
            self._save()
        self._stop_if_signalled()  # before the first call, which compiles for long
        num_updates, is_first = 1, True
        while not self._is_over():
            start, processor_start = time.monotonic(), time.process_time()
            num_updates = min(num_updates, self._updates_to_next_stop())
            with self._compiling(is_first):  # nothing is unsaved then
                self._advance(num_updates)
            is_first, elapsed = False, self.team.gathered(time.monotonic() - start)[0]  # one clock for all
            self.progress.seconds += elapsed
            self.progress.processor_seconds += time.process_time() - processor_start
            num_updates = _next_size(num_updates, elapsed)
            for observer in self.observers:
                observer.advanced(self.update, self.progress.seconds, self.latest)
            self._stop_if_signalled()
            if self._is_line_due():
                self._log_line()
            since_saved = self.team.gathered(time.monotonic() - self.saved_at)[0]
            # The files of the best are written after a checkpoint of the same update.
            if self._is_over() or self.new_best or since_saved > self.run.config.checkpoint_seconds:
                self._save()

    def _stop_if_signalled(self, *_: int) -> None:
        signal_number = int(max(self.team.gathered(self.signals[0] if self.signals else 0)))
        if signal_number and not self._is_over():
            self._save()
            raise Interrupted(signal_number, self.run, self.update)

    def _is_over(self) -> bool:
        if self.total is not None:
            return self.update >= self.total
        assert self.run.config.minutes is not None
        return self.progress.seconds >= 60 * self.run.config.minutes

    def _updates_to_next_stop(self) -> int:
        """Return the updates to the next line of metrics, validation, end of an epoch, or end of the run."""
        config = self.run.config
        distances = [every - self.update % every for every in (config.log_every, config.validate_every)]
        distances.append(self.updates_per_epoch - self.update % self.updates_per_epoch)
        if self.total is not None:
            distances.append(self.total - self.update)
        return min(distances)

    def _advance(self, num_updates: int) -> None:
        epoch = self.update // self.updates_per_epoch
        if epoch != self.epoch:
            self.epoch, self.order = epoch, self.trainer.epoch_order(self.examples, epoch)
        self.state = jax.block_until_ready(self.trainer.advance(self.state, self.examples, self.order, num_updates))
        self.update = int(self.state.update)
        if self.state.first_bad_update:
            raise self._not_finite(int(self.state.first_bad_update), "the bound, its gradient or the parameters")

    def _not_finite(self, update: int, what: str) -> CommonError:
        start = f" (--init-from {self.run.path} starts it from the best weights)" if self.progress.best else ""
        return CommonError(  # all processes see the same numbers
            f"At update {update:,} {what} ceased to be finite, so training stopped; {self.run.path} keeps the last "
            f"good checkpoint. Try a new run{start} with a smaller --learning-rate, --clip 1, or --precision float64."
        )

    def _is_line_due(self) -> bool:
        if self.update in (0, self.progress.logged_update):
            return False
        return self._is_validation_due() or self.update % self._thinned(self.run.config.log_every) == 0

    def _is_validation_due(self) -> bool:
        return self._is_over() or self.update % self._thinned(self.run.config.validate_every) == 0

    def _thinned(self, every: int) -> int:
        """Return how often to log in a run that ends by the clock: ever less often after half of the most lines.

        In the j-th doubling after that it is 4^j times less often, so there are never more lines than are read.
        """
        doublings = 0
        while self.total is None and self.update >= 2**doublings * every * MOST_LOGGED // 2:
            doublings += 1
        return int(every * 4**doublings)

    def _validate(self) -> dict[str, Any]:
        """Return the validation bound with the training K, of the parameters and of their average, and with labels the
        error and log-loss of the former.

        Note where the model and the average are the best so far.
        """
        key = jax.random.fold_in(key_for(Purpose.VALIDATION, self.run.config.seed), self.update)
        K = self.run.config.num_samples

        def evaluated(model: Any) -> Evaluation:
            evaluation = evaluate(model, self.validation, key, K, self._stop_if_signalled, self.trainer.mesh)
            if math.isnan(evaluation.mean_bound) or evaluation.mean_bound == math.inf:
                raise self._not_finite(self.update, "the validation bound")
            return evaluation

        progress = self.progress
        evaluation = evaluated(self.state.model)
        line = {"validation_bound": evaluation.mean_bound}
        if evaluation.prediction is not None:
            line["validation_error"] = evaluation.prediction.error
            line["validation_log_loss"] = evaluation.prediction.log_loss
        progress.best = self._best_with("best", line["validation_bound"], progress.best)
        if self.state.average is not None:
            line["average_validation_bound"] = evaluated(self._model_of("best-average")).mean_bound
            progress.best_average = self._best_with(
                "best-average", line["average_validation_bound"], progress.best_average
            )
        progress.validated_update = self.update
        return line

    def _model_of(self, weights: str) -> Any:
        """Return the model of now, or with the average of its parameters."""
        if weights == "best":
            return self.state.model
        return eqx.combine(self.state.average, partition(self.state.model)[1])

    def _best_with(self, weights: str, bound: float, best: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return update and bound of the best model so far, with that of now; `_save` writes it. −inf is no best."""
        if bound <= (best["validation_bound"] if best is not None else -math.inf):
            return best
        self.new_best.add(weights)
        return {"update": self.update, "validation_bound": bound}

    def _write_best(self) -> None:
        """Write what of the state is the best so far.

        The checkpoint is written before: what a kill leaves out is written again from there.
        """
        for weights in sorted(self.new_best):
            best = self.progress.best if weights == "best" else self.progress.best_average
            write_tree(
                self.run.path / directory.BEST[weights], self._model_of(weights), {**self.run.facts, **(best or {})}
            )

    def _write_missing_best(self) -> None:
        """Write the best of the checkpoint's update where a kill has kept it out of its file."""
        for weights, best in (("best", self.progress.best), ("best-average", self.progress.best_average)):
            if best is not None and best["update"] == self.update:
                try:
                    there: Any = store.read_facts(self.run.path / directory.BEST[weights]).get("update")
                except UsageError:  # missing or damaged
                    there = None
                if there != self.update:
                    self.new_best.add(weights)
        self._write_best()
        self.new_best.clear()

    def _may_write(self) -> bool:
        """Return whether this process writes; refuse a directory that is no longer the run's."""
        if self.lock is None:
            return False
        self.lock.check()
        return True

    def _log_line(self) -> None:
        """Write a line of metrics, after a validation if one is due."""
        validation, progress = {}, self.progress
        if self._is_validation_due():
            if not self.has_compiled_validation:
                self._save()  # nothing may be unsaved during compilation
            with self._compiling(not self.has_compiled_validation):
                validation = self._validate()
            self.has_compiled_validation = True
        updates, seconds = self.update - progress.logged_update, progress.seconds - progress.logged_seconds
        line = {
            "update": self.update,
            "epoch": round(self.update / self.updates_per_epoch, 4),
            **self.state.totals.averages(),
            **validation,
            "updates_per_second": round(updates / max(seconds, 1e-9), 2),
            "seconds": round(progress.seconds, 3),
            "processor_seconds": round(progress.processor_seconds, 3),
        }
        progress.logged_update, progress.logged_seconds = self.update, progress.seconds
        zeros = replicated(jax.tree.map(jnp.zeros_like, self.state.totals), self.trainer.mesh)
        self.state = eqx.tree_at(lambda s: s.totals, self.state, zeros)
        if self._may_write():
            store.append_metrics(self.run.path / directory.METRICS, line)
        self.latest = {**self.latest, **line}
        for observer in self.observers:
            observer.logged(line)

    def _validate_last_line(self) -> None:
        """Add a validation to the last line of metrics, where a new budget ends at its update."""
        with self._compiling(is_first_call=True):
            validation = self._validate()
        if self._may_write():
            line = store.amend_metrics(self.run.path / directory.METRICS, self.update, validation)
            for observer in self.observers if line.get("train_bound") is not None else ():  # it was not lost
                observer.logged(line)

    def _save(self) -> None:
        """Write a checkpoint. No process goes on before the first one has written it."""
        with self.team.as_one():
            if self._may_write():
                checkpoints.write_checkpoint(self.run.path, self.state, self.update, self.progress, self.run.facts)
                self._write_best()
        self.saved_at = time.monotonic()
        self.new_best.clear()

    def _finish(self) -> None:
        if self.lock is None:
            return
        summary = {
            "updates": self.update,
            "epochs": round(self.update / self.updates_per_epoch, 2),
            "minutes": round(self.progress.seconds / 60, 2),
            "best": self.progress.best,
            "best_average": self.progress.best_average,
            "note": self.experiment.dataset.note,
        }
        path, model = self.run.path / directory.BEST["best"], on_one_device(self.state.model, self.trainer.mesh)
        if self.progress.best is not None and self.progress.best["update"] != self.update:
            model = filled(model, read_arrays(path)[0], path)
        self.lock.check()
        # The summary is the last file: whoever finds it finds the pictures, too. A study counts the run as done.
        for observer in self.writers:
            observer.finished(self.run, self.experiment, model)
        self.lock.check()
        self.run.record_outcome(summary)
        self.observer.finished(self.run, self.experiment, model)


def _shapes_of_state(experiment: Experiment) -> Any:
    """Return the training state without its values; refuse one whose checkpoint could not be read again."""
    shapes = eqx.filter_eval_shape(experiment.initial_state)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in store.named_arrays(shapes).values())
    if size > LARGEST_TREE - LARGEST_HEADER:
        raise UsageError(
            f"The parameters and their training state would take {size:,} bytes, and a checkpoint has at most "
            f"{LARGEST_TREE:,}: choose a smaller model."
        )
    return shapes


def _refuse_too_many_lines(experiment: Experiment) -> None:
    """Refuse a run that would log more lines than are read again."""
    config = experiment.config
    total = config.total_updates(experiment.trainer.updates_per_epoch(experiment.examples("train")))
    for name in ("log_every", "validate_every"):
        every = getattr(config, name)
        if total is not None and total // every > MOST_LOGGED:
            least = math.ceil(total / MOST_LOGGED)
            raise UsageError(
                f"A run logs at most {MOST_LOGGED:,} times, and {total:,} updates with {option(name)} {every} are "
                f"more: choose {option(name)} {least} or more (when resuming, in Python: vimco.resume(run, "
                f"{name}={least}, ...))."
            )


def _trace_one_update(experiment: Experiment) -> None:
    """Trace one update without running it: an estimator refuses unsuitable samples before anything is written."""
    examples = experiment.examples("train")

    def rehearsal() -> Any:
        state = experiment.initial_state()
        order = experiment.trainer.epoch_order(examples, 0)
        return advance((experiment.trainer, examples, order, jnp.ones((), jnp.int32)), state)

    eqx.filter_eval_shape(rehearsal)


def _starting_model(experiment: Experiment) -> Any:
    """Return the untrained model, or the best one of another run."""
    model, source = experiment.model(), experiment.config.init_from
    if source is None:
        return model
    path = Path(source) / directory.BEST["best"]
    if not path.exists():
        raise UsageError(f"--init-from {source}: there is no {path.name} in it, so there are no weights to start from.")
    arrays, facts = read_arrays(path)
    identity = facts.get("identity")  # earlier versions did not write it
    is_symmetric = identity.get("symmetric") if isinstance(identity, dict) else None
    if is_symmetric is not None and is_symmetric != experiment.config.symmetric:
        raise UsageError(
            f"--init-from {source}: its binary units are coded as {'−1 and 1' if is_symmetric else '0 and 1'}, so that "
            f"its weights mean another model here: {'add' if is_symmetric else 'leave out'} --symmetric."
        )
    options = identity.get("task_options") if isinstance(identity, dict) else None
    if options is not None and list(options) != list(experiment.config.task_options):
        warnings.warn(
            f"--init-from {source}: it was trained with other options of the task ({' '.join(options) or 'none'}), so "
            "its weights may mean another model here.",
            stacklevel=2,
        )
    # The other run may have another precision; its weights are converted to this run's.
    cast = {name: a.astype(experiment.config.precision) if a.dtype.kind == "f" else a for name, a in arrays.items()}
    return filled(model, cast, path)


def _next_size(num_updates: int, elapsed: float) -> int:
    """Return how many updates make a call of about a second. The first call compiles, so growth is bounded."""
    return max(1, min(10 * num_updates, int(num_updates * SECONDS_PER_CALL / max(elapsed, 1e-6))))
