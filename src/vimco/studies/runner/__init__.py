"""The runner of studies: tasks, the engine that runs their commands, and how long they take."""

from vimco.studies.runner.execution import Watch, run_study
from vimco.studies.runner.local import LocalWorkers
from vimco.studies.runner.tasks import planned

__all__ = ["LocalWorkers", "Watch", "planned", "run_study"]
