"""Runs a study: what is missing is trained, what was cut off goes on, what is done stays, the chosen are evaluated."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from vimco.runs.interrupts import collected_signals
from vimco.studies.runner import workers
from vimco.studies.runner.tasks import Ending, Task, Training, evaluations_due, perform

POLL_SECONDS = 0.5


@dataclass
class Outcome:
    """How a list of tasks ended."""

    failures: list[tuple[Task, str]] = field(default_factory=list)
    signal_number: int | None = None  # of the signal that stopped it


class Watch:
    """Told about a study as it goes; does nothing by itself."""

    def started(self, task: Task) -> None:
        """A worker has taken the task up."""

    def ended(self, task: Task, ending: Ending) -> None:
        """It is done, has failed, or was stopped."""

    def waited(self, running: Sequence[Task]) -> None:
        """Some time has passed."""


@runtime_checkable  # for beartype, in the tests
class Workers(Protocol):
    """Where tasks are worked on: `workers.LocalWorkers`, or a cluster's executor in the same clothes."""

    number: int

    def executor(self) -> Executor:
        """A new executor; also after one has been broken."""
        ...

    def stop(self) -> None:
        """Asks the tasks under way to save and end."""
        ...


def run_study(trainings: Sequence[Training], evaluation_samples: int | None, crew: Workers, watch: Watch) -> Outcome:
    """Trains what is not done, then evaluates the chosen runs, if so many samples for it are given."""
    outcome = execute([training for training in trainings if not training.is_done()], crew, watch)
    if evaluation_samples is not None and outcome.signal_number is None:
        later = execute(evaluations_due(trainings, evaluation_samples), crew, watch)
        outcome = Outcome([*outcome.failures, *later.failures], later.signal_number)
    return outcome


def execute(tasks: Sequence[Task], crew: Workers, watch: Watch) -> Outcome:
    """Works through the tasks. A failed one does not stop the others; SIGINT and SIGTERM stop all, without loss.

    A process that dies takes those beside it along, and does not say which of them was to blame: each of these gets a
    second chance, alone.
    """
    with collected_signals() as received:
        outcome = Outcome()
        try:
            lost = _worked_through(tasks, crew, watch, received, outcome)
            for task in lost:
                if not received and _worked_through([task], crew, watch, received, outcome):
                    reason = "its process died, twice: it was killed, or the memory did not suffice"
                    outcome.failures.append((task, reason))
                    watch.ended(task, Ending(failure=reason))
        except BaseException:  # a second signal, or a mistake of ours: nothing may go on without us
            workers.kill_all()
            raise
        outcome.signal_number = received[0] if received else None
        return outcome


def _worked_through(
    tasks: Sequence[Task], crew: Workers, watch: Watch, received: Sequence[int], outcome: Outcome
) -> list[Task]:
    """Works through the tasks; returns those that were lost with a process."""
    waiting, running, lost = deque(tasks), dict[Future[Ending], Task](), list[Task]()
    executor, is_broken = crew.executor(), False
    try:
        while running or (waiting and not received):
            while waiting and not received and not is_broken and len(running) < crew.number:
                try:
                    running[executor.submit(perform, waiting[0])] = waiting[0]
                except BrokenExecutor:
                    is_broken = True
                else:
                    watch.started(waiting.popleft())
            done, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
            if received:
                crew.stop()
            watch.waited(list(running.values()))
            for future in done:
                task = running.pop(future)
                if isinstance(future.exception(), BrokenExecutor):
                    is_broken = True
                    lost.append(task)
                    continue
                ending = future.result()
                if ending.is_stopped and not received:
                    ending = Ending(ending.notes, "it was stopped by a signal")
                if ending.failure is not None:
                    outcome.failures.append((task, ending.failure))
                watch.ended(task, ending)
            if is_broken and not running:  # those that still wait are none the worse
                executor.shutdown()
                executor, is_broken = crew.executor(), False
    finally:
        executor.shutdown(cancel_futures=True)
    return lost
