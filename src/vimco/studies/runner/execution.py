"""Runs a study: trains what is missing, resumes what was cut off, keeps what is done, and evaluates the chosen."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from vimco.errors import UsageError
from vimco.runs.interrupts import collected_signals
from vimco.studies.runner.engine import Ending, Engine, Job, Task
from vimco.studies.runner.tasks import Training, evaluations_due

POLL_SECONDS = 0.1


@dataclass
class Outcome:
    """How a list of tasks ended."""

    failures: list[tuple[Task, str]] = field(default_factory=list)
    signal_number: int | None = None  # of the signal that stopped it


class Watch:
    """Told about a study as it goes; does nothing by itself."""

    def started(self, task: Task) -> None:
        """A command has been started for the task."""

    def ended(self, task: Task, ending: Ending) -> None:
        """It is done, has failed, or was stopped."""

    def waited(self, running: Sequence[Task]) -> None:
        """Some time has passed."""


def run_study(trainings: Sequence[Training], evaluation_samples: int | None, engine: Engine, watch: Watch) -> Outcome:
    """Train what is not done, then evaluate the chosen runs, if so many samples for it are given."""
    outcome = execute([training for training in trainings if not training.is_done()], engine, watch)
    if evaluation_samples is not None and outcome.signal_number is None:
        later = execute(evaluations_due(trainings, evaluation_samples), engine, watch)
        outcome = Outcome([*outcome.failures, *later.failures], later.signal_number)
    return outcome


def execute(tasks: Sequence[Task], engine: Engine, watch: Watch) -> Outcome:
    """Work through the tasks. A failed one does not stop the others; SIGINT and SIGTERM stop all, without loss.

    A task whose process was killed is tried once more at the end, alone: the memory may not suffice for several.
    """
    outcome = Outcome()
    with collected_signals() as received:
        for task in _work_through(tasks, engine, watch, received, outcome):
            if not received and _work_through([task], engine, watch, received, outcome):
                reason = "its process died, twice: it was killed, or the memory did not suffice"
                _end(task, Ending(failure=reason), watch, outcome)
        outcome.signal_number = received[0] if received else None
    return outcome


def _work_through(
    tasks: Sequence[Task], engine: Engine, watch: Watch, received: Sequence[int], outcome: Outcome
) -> list[Task]:
    """Work through the tasks; return those whose process was killed."""
    waiting, running, lost = deque(tasks), list[tuple[Task, Job]](), list[Task]()
    try:
        while running or (waiting and not received):
            while waiting and not received and len(running) < engine.number:
                task = waiting.popleft()
                try:
                    running.append((task, engine.start(task.arguments())))
                    watch.started(task)
                except UsageError as error:
                    _end(task, Ending(failure=str(error)), watch, outcome)
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
                    _end(task, Ending(ending.notes, "it was stopped by a signal"), watch, outcome)
                else:
                    _end(task, ending, watch, outcome)
    finally:  # after a second signal, or a mistake of ours: nothing may go on without us
        for _, job in running:
            job.kill()
    return lost


def _end(task: Task, ending: Ending, watch: Watch, outcome: Outcome) -> None:
    if ending.failure is not None:
        outcome.failures.append((task, ending.failure))
    watch.ended(task, ending)
