"""The runner of studies: tasks, the processes that work on them, and how long they take."""

from vimco.studies.runner.execution import Watch, run_study
from vimco.studies.runner.tasks import planned
from vimco.studies.runner.workers import LocalWorkers

__all__ = ["LocalWorkers", "Watch", "planned", "run_study"]
