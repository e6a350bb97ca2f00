"""The options that several commands share: on which devices, in which processes."""

import contextlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import jax

from vimco.cli.terminal import err, labelled, out
from vimco.errors import UsageError
from vimco.runs.session import Interrupted, LostProcessError
from vimco.runs.team import is_lost_process
from vimco.training.devices import offer_cpu_devices

PATIENCE = 60  # seconds until a coordinator that does not answer is given up


@dataclass(frozen=True)
class Layout:
    """The devices on which a command computes."""

    devices: int = 1
    """Devices of this process that share the work. A CPU is one device, and can be divided into several."""
    distributed: bool = False
    """Share the work with other processes that were started by Slurm (srun), Open MPI, Kubernetes or on a TPU pod."""
    coordinator: str | None = None
    """The address (host:port) of process 0, in place of what --distributed finds; with --processes and --rank."""
    processes: int | None = None
    """The number of processes."""
    rank: int | None = None
    """The number of this process, from 0."""

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Make the devices, and join the other processes, before anything is computed; part from them at the end.

        A process that ends by itself ends at once: the others would wait for it.
        """
        offer_cpu_devices(self.devices)
        if not self._is_shared:
            yield
            return
        self._join()
        _keep_libraries_off_stdout()
        out.quiet = err.quiet = jax.process_index() > 0  # process 0 speaks for all
        try:
            yield
        except Interrupted:
            jax.distributed.shutdown()
            raise
        except UsageError as error:
            _leave(str(error), 1 if isinstance(error, LostProcessError) else 2)
        except KeyboardInterrupt:
            _leave("Stopped at once.", 130)
        except Exception as error:
            if is_lost_process(error):
                _leave(f"Another process has ended, so this one ends, too ({str(error).splitlines()[0][:200]}).", 1)
            traceback.print_exc()
            os._exit(1)
        else:
            jax.distributed.shutdown()

    @property
    def _is_shared(self) -> bool:
        given = [self.coordinator is not None, self.processes is not None, self.rank is not None]
        if any(given) and not all(given):
            raise UsageError(
                "--coordinator, --processes and --rank go together: give all three, or --distributed alone."
            )
        return self.distributed or all(given)

    def _join(self) -> None:
        if self.coordinator is not None:
            assert self.processes is not None
            assert self.rank is not None
            if not 0 <= self.rank < self.processes:
                raise UsageError(f"--rank is a number from 0 to {self.processes - 1}, one less than --processes.")
            if self.rank == 0:
                err.print(f"Process 0 waits for {self.processes - 1} others at {self.coordinator}, at most 300 s.")
            else:
                _wait_for(self.coordinator)
        try:
            jax.distributed.initialize(self.coordinator, self.processes, self.rank)
        except (ValueError, RuntimeError) as error:
            raise UsageError(
                f"The other processes were not found ({str(error).splitlines()[0]}). Start this by srun, mpirun or on "
                "a TPU pod, or give --coordinator HOST:PORT --processes N --rank R."
            ) from error


def _keep_libraries_off_stdout() -> None:
    """Let what C libraries print, Gloo about its connections, go to stderr: stdout has our results alone."""
    sys.stdout.flush()
    ours = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = os.fdopen(ours, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, buffering=1)


def _leave(message: str, status: int) -> NoReturn:
    err.quiet = False
    err.print(labelled("Error:", "red", message))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def _wait_for(address: str) -> None:
    """Wait until somebody answers at the address: JAX itself would end the process without a word that helps."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--coordinator is an address like host:1234; got {address}.")
    start, reason = time.monotonic(), ""
    while time.monotonic() - start < PATIENCE:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5):
                return
        except OSError as error:
            reason = str(error)
            time.sleep(0.5)
    raise UsageError(
        f"No process 0 answers at {address} after {PATIENCE} s ({reason}). Start it there, or correct --coordinator."
    )
