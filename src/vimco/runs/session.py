"""Training in a run directory: start, resume, extend; checkpoints, metrics, signals from the system."""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from vimco.data import load_dataset
from vimco.errors import UsageError
from vimco.models import MODELS
from vimco.parameters import partition
from vimco.runs import directory, pictures, store
from vimco.runs.config import BUDGET, RunConfig
from vimco.runs.directory import Run
from vimco.runs.experiment import Experiment, Purpose, key_for, precision
from vimco.runs.interrupts import collected_signals
from vimco.runs.observer import Observer
from vimco.runs.store import filled, read_arrays, write_tree
from vimco.runs.tensorboard import event_files, summary_writer
from vimco.samples import Examples
from vimco.training.evaluation import evaluate
from vimco.training.loop import TrainingState, updated

SECONDS_PER_CALL = 1.0  # the host looks at metrics, signals and the clock between two compiled calls


class Interrupted(Exception):  # noqa: N818 - not an error
    """Training was asked to stop, and has saved its state."""

    def __init__(self, signal_number: int, run: Run, update: int):
        super().__init__(f"Stopped at update {update:,}; nothing is lost.")
        self.signal_number = signal_number
        self.run = run


def train(config: RunConfig, output: str | Path | None = None, observer: Observer | None = None) -> Run:
    """Trains a new run in the directory `output`, which must be new or empty; by default in one under `runs/`.

    Every mistake in the configuration is found before anything is written.
    """
    observer = observer or Observer()
    path = directory.new_directory(config) if output is None else Path(output)
    directory.refuse_occupied(path)
    with precision(config):
        dataset = load_dataset(config.data, binarize=config.binarize, progress=observer.downloaded)
        experiment = Experiment(config, dataset)
        _rehearse(experiment)
        if config.tensorboard:
            summary_writer()
        model = _starting_model(experiment)
        with directory.created(path, config, dataset) as run:
            return _Session(run, experiment, experiment.initial_state(model), _Record(), observer).go()


def resume(path: str | Path, observer: Observer | None = None, **budget: int | float | None) -> Run:
    """Goes on with a run from its latest checkpoint, to the end of its budget, or of a new `updates=`, `epochs=` or
    `minutes=`, which count from the run's beginning.

    It then ends with the same parameters, bit for bit, as a run that was never interrupted.
    """
    observer = observer or Observer()
    run = directory.load(path)
    given = {name: value for name, value in budget.items() if value is not None}
    if given:
        # An extension does not move the horizon of a schedule.
        horizon = {"schedule_updates": run.config.horizon} if run.config.schedule == "cosine" else {}
        changes: dict[str, Any] = {**dict.fromkeys(BUDGET), **horizon, **given}
        run = dataclasses.replace(run, config=dataclasses.replace(run.config, **changes))
    with precision(run.config), directory.locked(run.path):
        different = directory.differences(run)
        if different:
            observer.warned(
                f"The last bits of the result may differ from an uninterrupted run: {'; '.join(different)}."
            )
        experiment = Experiment(run.config, run.dataset(observer.downloaded))
        warning = None
        if directory.has_checkpoint(run.path):
            arrays, facts = directory.latest_checkpoint(run.path)
            state = filled(experiment.initial_state(), arrays, run.path / directory.CHECKPOINT)
            record = _Record(**{field.name: facts[field.name] for field in dataclasses.fields(_Record)})
            warning = facts.get("warning")
        else:  # stopped before its first checkpoint
            state, record = experiment.initial_state(_starting_model(experiment)), _Record()
        session = _Session(run, experiment, state, record, observer)
        if given:
            session.refuse_if_past_its_end()
        if warning is not None:
            observer.warned(warning)
            directory.go_back_to_previous(run.path)
        directory.remove_unfinished_files(run.path)
        store.truncate_metrics(run.path / directory.METRICS, session.update)
        if given:
            directory.write_config(run)
        return session.go()


@dataclasses.dataclass
class _Record:
    """What the host keeps, beside the state on the device."""

    seconds: float = 0.0  # of training, over all sessions
    best: dict[str, Any] | None = None  # update and validation bound of the best model
    best_average: dict[str, Any] | None = None


class _Session:
    """One process's part of a run."""

    def __init__(self, run: Run, experiment: Experiment, state: TrainingState, record: _Record, observer: Observer):
        self.run, self.experiment, self.state, self.record, self.observer = run, experiment, state, record, observer
        self.trainer = experiment.trainer
        self.examples: Examples = experiment.examples("train")
        self.validation: Examples = experiment.examples("validation")
        self.updates_per_epoch = self.trainer.updates_per_epoch(self.examples)
        self.total = run.config.total_updates(self.updates_per_epoch)
        self.update = int(state.update)
        self.epoch = -1
        self.latest: dict[str, Any] = {}
        self.last_logged = (self.update, record.seconds)

    def refuse_if_past_its_end(self) -> None:
        config = self.run.config
        if self.total is not None and self.update > self.total:
            raise UsageError(
                f"{self.run.path} has done {self.update:,} updates already, more than the {self.total:,} asked for: "
                "budgets count from the run's beginning."
            )
        if config.minutes is not None and self._is_over():
            raise UsageError(
                f"{self.run.path} has trained for {self.record.seconds / 60:.1f} minutes already, and "
                f"{config.minutes:g} were asked for: budgets count from the run's beginning."
            )

    def go(self) -> Run:
        config = self.run.config
        if config.schedule == "cosine" and self.total is not None and self.total > config.horizon:
            self.observer.warned(
                f"The cosine schedule ends at update {config.horizon:,}: from there on the learning rate is zero."
            )
        with event_files(self.run) as self.add_event, collected_signals() as received:
            if not directory.has_checkpoint(self.run.path):
                self._save()
            self.observer.started(self.run, self.update, self.total)
            saved_at, num_updates = time.monotonic(), 1
            while not self._is_over():
                start = time.monotonic()
                num_updates = min(num_updates, self._updates_to_next_stop())
                self._advance(num_updates)
                elapsed = time.monotonic() - start
                self.record.seconds += elapsed
                num_updates = _next_size(num_updates, elapsed)
                self.observer.advanced(self.update, self.record.seconds, self.latest)
                is_over = self._is_over()
                if is_over or self._is_due(self.run.config.validate_every):
                    self._log(self._validate())
                elif self._is_due(self.run.config.log_every):
                    self._log({})
                if is_over or received or time.monotonic() - saved_at > self.run.config.checkpoint_seconds:
                    self._save()
                    saved_at = time.monotonic()
                if received and not is_over:
                    raise Interrupted(received[0], self.run, self.update)
        self._finish()
        return self.run

    def _is_over(self) -> bool:
        if self.total is not None:
            return self.update >= self.total
        assert self.run.config.minutes is not None
        return self.record.seconds >= 60 * self.run.config.minutes

    def _is_due(self, every: int) -> bool:
        return self.update % every == 0

    def _updates_to_next_stop(self) -> int:
        """To the next line of metrics, validation, end of an epoch, or end of the run."""
        config = self.run.config
        distances = [every - self.update % every for every in (config.log_every, config.validate_every)]
        distances.append(self.updates_per_epoch - self.update % self.updates_per_epoch)
        if self.total is not None:
            distances.append(self.total - self.update)
        return min(distances)

    def _advance(self, num_updates: int) -> None:
        epoch = self.update // self.updates_per_epoch
        if epoch != self.epoch:
            self.order = self.trainer.epoch_order(self.examples, epoch)
            self.epoch = epoch
        self.state = jax.block_until_ready(self.trainer.advanced(self.state, self.examples, self.order, num_updates))
        self.update = int(self.state.update)
        if self.state.first_bad_update:
            raise self._not_finite(int(self.state.first_bad_update), "the bound, its gradient or the parameters")

    def _not_finite(self, update: int, what: str) -> UsageError:
        start = f" (--init-from {self.run.path} starts it from the best weights)" if self.record.best else ""
        return UsageError(
            f"At update {update:,} {what} ceased to be finite, so training stopped; {self.run.path} keeps the last "
            f"good checkpoint. Try a new run{start} with a smaller --learning-rate, --clip 1, or --precision float64."
        )

    def _validate(self) -> dict[str, Any]:
        """The validation bound with the training K, of the parameters and of their average; keeps the best of each."""
        key = jax.random.fold_in(key_for(Purpose.VALIDATION, self.run.config.seed), self.update)

        def bound(model: Any) -> float:
            value = evaluate(model, self.validation, key, self.run.config.num_samples).mean_bound
            if not math.isfinite(value):
                raise self._not_finite(self.update, "the validation bound")
            return value

        line = {"validation_bound": bound(self.state.model)}
        self.record.best = self._kept("best", self.state.model, line["validation_bound"], self.record.best)
        if self.state.average is not None:
            averaged = eqx.combine(self.state.average, partition(self.state.model)[1])
            line["average_validation_bound"] = bound(averaged)
            self.record.best_average = self._kept(
                "best-average", averaged, line["average_validation_bound"], self.record.best_average
            )
        return line

    def _kept(self, weights: str, model: Any, bound: float, best: dict[str, Any] | None) -> dict[str, Any] | None:
        """The better of the model and the best so far; the model is written if it is the better one."""
        if best is not None and bound <= best["validation_bound"]:
            return best
        best = {"update": self.update, "validation_bound": bound}
        write_tree(self.run.path / directory.BEST[weights], model, best)
        return best

    def _log(self, validation: dict[str, Any]) -> None:
        update, seconds = self.last_logged
        line = {
            "update": self.update,
            "epoch": round(self.update / self.updates_per_epoch, 4),
            **self.state.totals.means(),
            **validation,
            "updates_per_second": round((self.update - update) / max(self.record.seconds - seconds, 1e-9), 2),
            "seconds": round(self.record.seconds, 3),
        }
        self.last_logged = (self.update, self.record.seconds)
        self.state = eqx.tree_at(lambda s: s.totals, self.state, jax.tree.map(jnp.zeros_like, self.state.totals))
        store.append_metrics(self.run.path / directory.METRICS, line)
        self.add_event(line)
        self.latest = {**self.latest, **line}
        self.observer.logged(line)

    def _save(self) -> None:
        facts = {"update": self.update, **dataclasses.asdict(self.record)}
        directory.write_checkpoint(self.run.path, self.state, facts)

    def _finish(self) -> None:
        summary = {
            "updates": self.update,
            "epochs": round(self.update / self.updates_per_epoch, 2),
            "minutes": round(self.record.seconds / 60, 2),
            "best": self.record.best,
            "best_average": self.record.best_average,
            "note": self.experiment.dataset.note,
        }
        self.run.record_outcome(summary)
        pictures.draw_curves(self.run)
        if MODELS[self.run.config.task].pictures is not None:
            pictures.draw_samples(self.run)


def _rehearse(experiment: Experiment) -> None:
    """Traces one update without running it: an estimator that refuses its samples says so now."""
    examples = experiment.examples("train")

    def rehearsal() -> Any:
        state = experiment.initial_state()
        return updated(experiment.trainer, state, examples, experiment.trainer.epoch_order(examples, 0))

    eqx.filter_eval_shape(rehearsal)


def _starting_model(experiment: Experiment) -> Any:
    """The untrained model, or the best one of another run."""
    model, source = experiment.model(), experiment.config.init_from
    if source is None:
        return model
    path = Path(source) / directory.BEST["best"]
    if not path.exists():
        raise UsageError(f"--init-from {source}: there is no {path.name} in it, so there are no weights to start from.")
    arrays, _ = read_arrays(path)
    # The other run's arithmetic may have been of another precision; its weights serve in this one's.
    cast = {name: a.astype(experiment.config.precision) if a.dtype.kind == "f" else a for name, a in arrays.items()}
    return filled(model, cast, path)


def _next_size(num_updates: int, elapsed: float) -> int:
    """How many updates make a call of about a second. The first call compiles, so growth is bounded."""
    return max(1, min(10 * num_updates, int(num_updates * SECONDS_PER_CALL / max(elapsed, 1e-6))))
