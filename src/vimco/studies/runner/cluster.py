"""The engine of a Dask cluster: each command is a task, which runs it as a process of its worker (`vimco_worker`)."""

import asyncio
import contextlib
import logging
import math
import platform
import re
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import vimco_worker
from vimco.errors import UsageError
from vimco.files import read_file
from vimco.runs import directory
from vimco.studies.runner.engine import Ending, LostEngineError
from vimco.studies.runner.local import command, ending_of

# Batch systems, and the classes of dask-jobqueue that start a cluster in their jobs.
BATCH_SYSTEMS = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster", "sge": "SGECluster"}
CONNECT_SECONDS = 10
COUNT_SECONDS = 2  # between two questions for the number of workers
RESULT_SECONDS = 10  # for a result to come from its worker
STOP_SECONDS = 60  # to wait for a task that was asked to stop; after that it ends by itself
LARGEST_OPTIONS = 2**20
LOST = (OSError, RuntimeError, ValueError)  # what Dask raises when its connection is lost or closed


class DaskCluster:
    """The workers of a Dask cluster: a run at a time in each of their threads, with an equal share of their cores."""

    def __init__(self, client: Any, number: int | None = None, threads: int | None = None):
        import distributed

        self.client, self.threads = client, threads
        self.address = client.scheduler.address
        self._fixed, self._counted, self._next_count = number, 1, 0.0
        self._event = distributed.Event(f"vimco-stop-{uuid.uuid4().hex}", client=client)
        self._is_stopping = False
        self._jobs: list[_Job] = []

    @property
    def number(self) -> int:
        """Runs at a time: as given, else one for each thread of the workers that are there now."""
        if self._fixed is not None:
            return self._fixed
        if self.client.status == "running" and time.monotonic() > self._next_count:
            with contextlib.suppress(*LOST):
                self._counted = max(1, sum(self.client.nthreads().values()))
            self._next_count = time.monotonic() + COUNT_SECONDS
        return self._counted

    def start(self, arguments: Sequence[str]) -> "_Job":
        """Submit the command as a task."""
        if self.client.status != "running":  # Dask gives up all tasks of a lost connection, even if it comes back
            raise LostEngineError(
                f"The connection to the Dask scheduler at {self.address} was lost. Its workers save their runs and let "
                "go of them; the same command resumes."
            )
        future = self.client.submit(
            vimco_worker.run_on_worker,
            command(arguments),
            str(Path.cwd()),
            self.threads,
            self._event.name,
            directory.versions(),
            key=f"{arguments[0]}-{uuid.uuid4().hex}",
            pure=False,
        )
        self._jobs = [*(job for job in self._jobs if job.ending() is None), _Job(self, future)]
        return self._jobs[-1]

    def stop(self) -> set[str]:
        """Ask all tasks to stop; return the keys of those that are on a worker."""
        if not self._is_stopping:
            self._event.set()
            self._is_stopping = True
        return {key for keys in self.client.processing().values() for key in keys}


class _Job:
    """A task of the cluster."""

    def __init__(self, cluster: DaskCluster, future: Any):
        self._cluster, self._future = cluster, future
        self._asked_at: float | None = None
        self._known: Ending | None = None

    @property
    def needs_worker(self) -> bool:
        """Whether it runs or waits. Asks no other machine, so Dask's event loop may look."""
        return self._known is None and self._future.status == "pending"

    def ending(self) -> Ending | None:
        """Return how it ended; None while it runs or waits. It fetches a result: Dask's event loop must not call it."""
        if self._known is None and self._future.status != "pending":
            self._known = self._ending()
        return self._known

    def _ending(self) -> Ending | None:
        import distributed

        try:
            if self._future.status == "finished":
                return ending_of(*self._future.result(timeout=RESULT_SECONDS))
            if self._future.status == "error":
                error = self._future.exception(timeout=RESULT_SECONDS)
                if not isinstance(error, distributed.scheduler.KilledWorker):
                    return Ending(failure=f"{type(error).__name__}: {error}")
        except distributed.CancelledError:
            pass
        except TimeoutError:  # its worker died with the result, so it is begun again
            return None
        return Ending(is_lost=True)  # its workers died, or the scheduler did

    def stop(self) -> None:
        """Ask it to save and end. A task that no worker has begun is withdrawn."""
        if self._known is not None:
            return
        now = time.monotonic()
        try:
            if self._asked_at is None:
                self._asked_at = now
                is_begun = self._future.key in self._cluster.stop()
            else:
                is_begun = now < self._asked_at + STOP_SECONDS
        except LOST:
            is_begun = False
        if not is_begun and self.ending() is None:
            self.kill()

    def kill(self) -> None:
        """Withdraw the task; its worker sees that, and ends its process."""
        with contextlib.suppress(*LOST):
            self._future.cancel()
        self._known = Ending(is_stopped=True)


@contextlib.contextmanager
def connect(
    where: str, options: Path | None, output: Path, *, number: int | None, most: int, threads: int | None
) -> Iterator[DaskCluster]:
    """Connect to a Dask cluster, or start one by a batch system; refuse one that cannot do the runs of a study.

    `where` is the address of its scheduler, or the name of a batch system; `most` is the largest number of runs that
    may be useful at a time.
    """
    try:
        import distributed
    except ModuleNotFoundError:
        raise UsageError('Dask is not installed: pip install ".[cluster]" in the repository') from None
    for name in ("distributed", *logging.root.manager.loggerDict):  # its messages would break up the progress bars
        if name.split(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        made = None
        if where.lower() in BATCH_SYSTEMS:
            made = _start_cluster(where.lower(), options)
            stack.callback(_close, made, timeout=10)
            number = number or most
        elif options is not None:
            raise UsageError(f"--cluster-options are for the batch systems {', '.join(BATCH_SYSTEMS)}; got {where}.")
        elif not re.fullmatch(r"([a-z]+://)?[^/\s]+:\d+/?", where) or where.startswith("http"):
            raise UsageError(
                "--cluster is the address of a Dask scheduler, such as tcp://host:8786, or one of "
                f"{', '.join(BATCH_SYSTEMS)}; got {where!r}."
            )
        try:
            if made is None:
                asyncio.run(_greet(where))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of versions, which are compared below
                client = distributed.Client(made or where, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(
                f"No Dask scheduler answers at {where} ({(str(error) or type(error).__name__).splitlines()[0]}). Start "
                "one with `dask scheduler`, and give the address that it prints."
            ) from error
        stack.callback(_close, client, timeout=5)
        _refuse_other_versions(client)
        _refuse_other_files(client, output)
        engine = DaskCluster(client, number, threads)
        if made is not None:
            _adapt(made, engine)
        yield engine


async def _greet(address: str) -> None:
    """Exchange Dask's first messages. A `Client` would wait for ever where something else listens."""
    import distributed

    options = distributed.Security().get_connection_args("client")
    async with asyncio.timeout(CONNECT_SECONDS):
        comm = await distributed.comm.connect(address, timeout=CONNECT_SECONDS, **options)
        await comm.close()


def _close(opened: Any, timeout: int) -> None:
    with contextlib.suppress(*LOST):
        opened.close(timeout=timeout)


def _refuse_other_versions(client: Any) -> None:
    """Refuse a scheduler or a worker whose versions differ from those here."""
    packages = [*directory.versions()]
    versions = client.get_versions(packages=packages)
    here = _compared(versions["client"])
    places = [("The scheduler", versions["scheduler"], ["vimco"])]
    places += [(f"The worker at {address}", found, packages) for address, found in versions["workers"].items()]
    for place, found, names in places:
        expected = {name: here[name] for name in ("python", "dask", "distributed", *names)}
        different = vimco_worker.different_versions(expected, _compared(found))
        if different:
            raise UsageError(f"{place} has {', '.join(different)}: install the same versions everywhere.")


def _compared(versions: dict[str, Any]) -> dict[str, str]:
    """Return the versions of packages and, without its last part, of Python."""
    packages = versions["packages"]
    return {**packages, "python": ".".join(packages["python"].split(".")[:2])}


def _refuse_other_files(client: Any, output: Path) -> None:
    """Refuse workers that do not see a file which is written here."""
    folder = output.absolute()
    while not folder.is_dir():
        folder = folder.parent
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".vimco-", suffix=".part") as file:
        seen = client.run(vimco_worker.sees, file.name)
    if not all(seen.values()):
        worker = next(address for address, is_seen in seen.items() if not is_seen)
        raise UsageError(
            f"The worker at {worker} does not see the files in {folder}. A study on a cluster needs an --output on a "
            "file system that all machines share."
        )


def _start_cluster(system: str, path: Path | None) -> Any:
    """Start a scheduler in this process whose workers are jobs of a batch system; there are none at first."""
    try:
        import dask_jobqueue
    except ModuleNotFoundError:
        raise UsageError('dask-jobqueue is not installed: pip install ".[cluster]" in the repository') from None
    options = {} if path is None else _read_options(path)
    kind = getattr(dask_jobqueue, BATCH_SYSTEMS[system])
    program = kind.job_cls.submit_command.split()[0]
    if shutil.which(program) is None:
        raise UsageError(f"--cluster {system} submits jobs by {program}, which is not on {platform.node()}.")
    try:
        return kind(**options)
    except (TypeError, ValueError, OSError) as error:
        raise UsageError(
            f"--cluster {system} cannot be started ({str(error).splitlines()[0]}). Give its options in a YAML file, by "
            "--cluster-options: cores and memory at least."
        ) from error


def _read_options(path: Path) -> dict[str, Any]:
    import yaml

    try:
        options = yaml.safe_load(read_file(path, LARGEST_OPTIONS))
    except OSError as error:
        raise UsageError(f"--cluster-options {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--cluster-options {path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise UsageError(f"--cluster-options {path} must hold names and values, such as `cores: 4`.")
    return options


def _adapt(made: Any, engine: DaskCluster) -> None:
    """Keep as many jobs as the running tasks need: more when a task is submitted, fewer half a minute after its end."""
    import distributed

    threads = made._dummy_job.worker_process_threads

    class Demand(distributed.Adaptive):
        async def target(self) -> int:
            return math.ceil(sum(job.needs_worker for job in engine._jobs) / threads)

    made.adapt(Adaptive=Demand, interval="2s", wait_count=15)
