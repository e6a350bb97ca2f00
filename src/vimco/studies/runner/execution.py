"""Running a study: train missing runs, resume unfinished ones, keep finished ones, evaluate the chosen ones."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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

    def has_failed(self, training: Training) -> bool:
        """Return whether this run failed, at whatever length."""
        return any(isinstance(task, Training) and task.path == training.path for task, _ in self.failures)


class Watch:
    """Callbacks for the events of a study; by default they do nothing."""

    def started(self, task: Task) -> None:
        """Handle the start of a task's command."""

    def ended(self, task: Task, ending: Ending) -> None:
        """Handle the end of a task: done, failed or stopped."""

    def lost(self, task: Task) -> None:
        """Handle the death of a task's process; it may be started again."""

    def waited(self, running: Sequence[Task]) -> None:
        """Update a display; called several times a second."""


def run_study(
    trainings: Sequence[Training],
    evaluation_samples: int | None,
    engine: Engine,
    watch: Watch,
    noise: Callable[[Cell], tuple[str, ...]] = lambda _cell: (),
) -> Outcome:
    """Train the runs that are not done, then evaluate the chosen ones, if `evaluation_samples` is given.

    With several workers an evaluation with many samples is done in parts, each of them a task. Runs whose gradients are
    measured, by the estimators that `noise` names for their cell, are trained first, from moment to moment.
    """
    outcome = Outcome()

    def complete(tasks: Sequence[Task]) -> bool:
        """Execute the tasks; return whether no signal has stopped them."""
        step = execute(tasks, engine, watch)
        outcome.failures += step.failures
        outcome.signal_number = step.signal_number
        return step.signal_number is None

    measured = [(training, names) for training in trainings if (names := noise(Cell.of(training.config)))]
    for share in MOMENTS if measured else ():
        stages = [(training.up_to(share), names) for training, names in measured]
        if not complete([stage for stage, _ in stages if not stage.is_done() and not outcome.has_failed(stage)]):
            return outcome
        measurings = [Measuring(stage, names) for stage, names in stages if not outcome.has_failed(stage)]
        if not complete([measuring for measuring in measurings if measuring.is_due()]):
            return outcome
    remaining = [training for training in trainings if not training.is_done() and not outcome.has_failed(training)]
    if not complete(remaining) or evaluation_samples is None:
        return outcome
    evaluations = evaluations_due(trainings, evaluation_samples)
    number = -(-evaluation_samples // SAMPLES_OF_A_PART) if engine.number > 1 else 1
    complete([part for evaluating in evaluations for part in evaluating.parts_due(number)])
    for evaluating in evaluations:
        evaluating.join(number)
    return outcome


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
                    watch.lost(task)
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
