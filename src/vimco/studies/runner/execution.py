"""Running a study: train missing runs, resume unfinished ones, keep finished ones, evaluate the chosen ones."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from vimco.errors import UsageError
from vimco.runs.interrupts import collect_signals
from vimco.studies.cells import Cell
from vimco.studies.runner.engine import Ending, Engine, Job, LostEngineError, Task
from vimco.studies.runner.tasks import SAMPLES_OF_A_PART, Measuring, Training, evaluations_due

POLL_SECONDS = 0.1
MOMENTS = (0.02, 0.2, 1.0)  # shares of a training at which the noise of gradients is measured


@dataclass
class Outcome:
    """How a list of tasks ended."""

    failures: list[tuple[Task, str]] = field(default_factory=list)
    signal_number: int | None = None  # of the signal that stopped it

    def then(self, step: Callable[[], "Outcome"]) -> "Outcome":
        """Return this with the outcome of a further step, which is left out after a signal."""
        if self.signal_number is not None:
            return self
        later = step()
        return Outcome([*self.failures, *later.failures], later.signal_number)


class Watch:
    """Callbacks for the events of a study; by default they do nothing."""

    def started(self, task: Task) -> None:
        """Handle the start of a task's command."""

    def ended(self, task: Task, ending: Ending) -> None:
        """Handle the end of a task: done, failed or stopped."""

    def waited(self, running: Sequence[Task]) -> None:
        """Update a display; called several times a second."""


def run_study(
    trainings: Sequence[Training],
    evaluation_samples: int | None,
    engine: Engine,
    watch: Watch,
    noise: Callable[[Cell], tuple[str, ...]] | None = None,
) -> Outcome:
    """Train the runs that are not done, then evaluate the chosen ones, if `evaluation_samples` is given.

    With several workers an evaluation with many samples is done in parts, each of them a task. Runs whose gradients are
    measured, by the estimators that `noise` names for their cell, are trained first, from moment to moment.
    """
    outcome = Outcome()
    if noise is not None:
        for share in MOMENTS:
            outcome = outcome.then(partial(_measure, share, trainings, noise, engine, watch))
    outcome = outcome.then(lambda: execute([t for t in trainings if not t.is_done()], engine, watch))
    if evaluation_samples is not None:
        outcome = outcome.then(lambda: _evaluate(trainings, evaluation_samples, engine, watch))
    return outcome


def _evaluate(trainings: Sequence[Training], num_samples: int, engine: Engine, watch: Watch) -> Outcome:
    """Evaluate the chosen runs."""
    due = evaluations_due(trainings, num_samples)
    number = -(-num_samples // SAMPLES_OF_A_PART) if engine.number > 1 else 1
    outcome = execute([part for evaluating in due for part in evaluating.parts_due(number)], engine, watch)
    for evaluating in due:
        evaluating.join(number)
    return outcome


def _measure(
    share: float,
    trainings: Sequence[Training],
    noise: Callable[[Cell], tuple[str, ...]],
    engine: Engine,
    watch: Watch,
) -> Outcome:
    """Train the runs whose gradients are measured up to a share of their updates, and measure them there."""
    stages = {
        replace(t, config=replace(t.config, updates=max(1, round(share * t.target)))): names
        for t in trainings
        if (names := noise(Cell.of(t.config)))
    }
    due = [(Measuring(stage.path, names), stage.target) for stage, names in stages.items()]
    trained = execute([stage for stage in stages if not stage.is_done()], engine, watch)
    return trained.then(lambda: execute([task for task, target in due if task.is_due(target)], engine, watch))


def execute(tasks: Sequence[Task], engine: Engine, watch: Watch) -> Outcome:
    """Execute the tasks. A failed one does not stop the others; SIGINT and SIGTERM stop all, and nothing is lost.

    A task whose process was killed is tried once more at the end, alone: memory may not suffice for several.
    """
    outcome = Outcome()
    with collect_signals() as received:
        for task in _execute_once(tasks, engine, watch, received, outcome):
            if not received and _execute_once([task], engine, watch, received, outcome):
                reason = "its process died, twice: it was killed, or the memory did not suffice"
                _record_end(task, Ending(failure=reason), watch, outcome)
        outcome.signal_number = received[0] if received else None
    return outcome


def _execute_once(
    tasks: Sequence[Task], engine: Engine, watch: Watch, received: Sequence[int], outcome: Outcome
) -> list[Task]:
    """Execute the tasks; return those whose process was killed."""
    waiting, running, lost = deque(tasks), list[tuple[Task, Job]](), list[Task]()
    try:
        while running or (waiting and not received):
            while waiting and not received and len(running) < engine.number:
                task = waiting.popleft()
                try:
                    running.append((task, engine.start(task.arguments())))
                    watch.started(task)
                except LostEngineError:
                    raise
                except UsageError as error:
                    _record_end(task, Ending(failure=str(error)), watch, outcome)
            time.sleep(POLL_SECONDS)
            watch.waited([task for task, _ in running])
            for task, job in running.copy():
                if received:
                    job.stop()
                ending = job.ending()
                if ending is None:
                    continue
                running.remove((task, job))
                if ending.is_lost:
                    lost.append(task)
                elif ending.is_stopped and not received:
                    _record_end(task, Ending(ending.notes, "it was stopped by a signal"), watch, outcome)
                else:
                    _record_end(task, ending, watch, outcome)
    finally:  # after a second signal or an error, no process may survive this one
        for _, job in running:
            job.kill()
    return lost


def _record_end(task: Task, ending: Ending, watch: Watch, outcome: Outcome) -> None:
    if ending.failure is not None:
        outcome.failures.append((task, ending.failure))
    watch.ended(task, ending)
