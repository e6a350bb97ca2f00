"""A study as a script for a batch system, with one line for each run."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from vimco.plugins import plugin_arguments
from vimco.studies.runner.engine import Task

SLURM = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --cpus-per-task={threads}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
# {about}
# Add the options of your site (partition, account, --time) here, or give them to sbatch. Two minutes before its time is
# up a run saves its state, ends with status 143, and is queued again; then it is resumed.
# When all have ended, evaluate the chosen runs and show the results: {again}
cd {folder} || exit 2

run() {{
  "$@" &
  local pid=$! status
  trap 'kill -TERM '$pid TERM
  wait $pid
  status=$?
  while kill -0 $pid 2>/dev/null; do  # the signal ended the wait, not the run
    wait $pid
    status=$?
  done
  if [ $status = 143 ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
  fi
  exit $status
}}

case "$SLURM_ARRAY_TASK_ID" in
{lines}
*) echo "There is no run of this number: $SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;
esac
"""


def slurm_script(name: str, tasks: Sequence[Task], threads: int, again: Sequence[str]) -> str:
    """Return a job array for Slurm, one job for each task. `again` is the command of the whole study."""
    program = Path(sys.executable).with_name("vimco")
    start = [str(program) if program.exists() else "vimco", *plugin_arguments()]
    lines = [f"{i}) run {shlex.join([*start, *task.arguments()])} ;;" for i, task in enumerate(tasks)]
    return SLURM.format(
        name=f"vimco-{name}",
        last=len(tasks) - 1,
        threads=threads,
        about=f"The runs of the study {name} that are not done, a job each.",
        again=shlex.join(["vimco", *plugin_arguments(), *again]),
        folder=shlex.quote(str(Path.cwd())),
        lines="\n".join(lines),
    )
