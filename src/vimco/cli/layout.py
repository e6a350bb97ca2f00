"""The options that several commands share: on which devices, in which processes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import NoReturn

import jax

from vimco.cli.terminal import err, give_up_closed_streams, labelled, message_of, out
from vimco.errors import UsageError
from vimco.runs.config import words_of
from vimco.runs.session import Interrupted, LostProcessError
from vimco.runs.team import CommonError, Team, is_lost_process
from vimco.training.devices import offer_cpu_devices

PATIENCE = 60  # seconds until a coordinator that does not answer is given up
JOIN_SECONDS = 300  # until all processes must have joined

# Prints the first line of its input if no second one follows: its parent was killed. Signals are for the parent.
WITNESS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
words = sys.stdin.buffer.readline()
if not sys.stdin.buffer.read():
    os.write(2, words)
"""


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

    @property
    def words(self) -> list[str]:
        """The options that differ from their defaults, as words of a command line."""
        given = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return words_of({name: value for name, (value, default) in given.items() if value != default})

    @contextlib.contextmanager
    def join(self, command: str, again: str = "Start all processes again.") -> Iterator[None]:
        """Make the devices, and join the other processes, before anything is computed; part from them at the end.

        All processes must have the same `command`: others exchange other things. A process that ends by itself ends at
        once: the others would wait for it. `again` says what to do when a process was killed.
        """
        offer_cpu_devices(self.devices)
        if not self._is_shared:
            yield
            return
        self._join_others()
        _keep_libraries_off_stdout()
        rank = jax.process_index()
        out.quiet = err.quiet = rank > 0  # process 0 speaks for all
        with _witness(f"Error: Process {rank} was killed, or JAX ended it because another one was. {again}") as dismiss:
            try:
                Team().require_same(command=command, **{"number of processes": str(self.processes)})
                yield
                jax.distributed.shutdown()
            except (Interrupted, CommonError) as error:
                # All end here. Without waiting for each other, JAX would abort those that are slower than process 0.
                jax.distributed.shutdown()
                err.quiet = rank > 0 and isinstance(error, Interrupted)
                raise
            except (Exception, KeyboardInterrupt) as error:
                dismiss()
                _leave(error, again)

    @property
    def _is_shared(self) -> bool:
        given = [self.coordinator is not None, self.processes is not None, self.rank is not None]
        if any(given) and not all(given):
            raise UsageError(
                "--coordinator, --processes and --rank go together: give all three, or --distributed alone."
            )
        return self.distributed or all(given)

    def _join_others(self) -> None:
        if self.coordinator is not None:
            assert self.processes is not None
            assert self.rank is not None
            if self.processes < 1:
                raise UsageError(f"--processes must be positive; got {self.processes}.")
            if not 0 <= self.rank < self.processes:
                raise UsageError(f"--rank is a number from 0 to {self.processes - 1}, one less than --processes.")
            host, port = _host_and_port(self.coordinator)
            if self.rank > 0:
                _wait_for(host, port)
            elif self.processes > 1:
                _refuse_place(host, port)
                number = "1 other" if self.processes == 2 else f"{self.processes - 1} others"
                err.print(f"Process 0 waits for {number} at {self.coordinator}, at most {JOIN_SECONDS} s.")
        # JAX's service for preempted machines catches SIGTERM and does nothing; before training it is to end a process.
        jax.config.update("jax_enable_preemption_service", False)
        too_late = (
            f"After {JOIN_SECONDS:g} s not all processes have joined. Start all of them, within that time and with the "
            "same --coordinator, --processes and program, and let nothing block the port."
        )
        timer = threading.Timer(JOIN_SECONDS, _end, (too_late, 2))  # JAX would end the process with a stack trace
        timer.daemon = True
        timer.start()
        try:
            with _ended_by_ctrl_c():
                jax.distributed.initialize(
                    self.coordinator, self.processes, self.rank, initialization_timeout=2 * JOIN_SECONDS
                )
        except (ValueError, RuntimeError) as error:
            raise UsageError(
                f"The other processes were not found ({' '.join(str(error).split())[:500]}). Start this by srun, "
                "mpirun or on a TPU pod, or give --coordinator HOST:PORT --processes N --rank R."
            ) from error
        finally:
            timer.cancel()


@contextlib.contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once: JAX waits in a place where Python does not see signals."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_default or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_libraries_off_stdout() -> None:
    """Let what C libraries print, Gloo about its connections, go to stderr: stdout has our results alone."""
    if sys.stdout is None:
        return
    sys.stdout.flush()
    ours = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = os.fdopen(ours, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, buffering=1)


@contextlib.contextmanager
def _witness(last_words: str) -> Iterator[Callable[[], None]]:
    """Start a process that prints a sentence if this one is killed before it dismisses it.

    When process 0 is lost, JAX ends the others from a thread of its own, often before they can say anything.
    """
    command = [sys.executable, "-I", "-S", "-c", WITNESS]
    witness = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    assert witness.stdin is not None
    witness.stdin.write(f"{last_words}\n".encode())
    witness.stdin.flush()

    def dismiss() -> None:
        with contextlib.suppress(OSError):  # it was killed, too
            witness.communicate(b"\n")

    try:
        yield dismiss
    finally:
        dismiss()


def _leave(error: Exception | KeyboardInterrupt, again: str) -> NoReturn:
    """Say why this process ends, and end it at once: an exchange with the others might never be completed."""
    if isinstance(error, UsageError):
        _end(str(error), 1 if isinstance(error, LostProcessError) else 2)
    if isinstance(error, KeyboardInterrupt):
        _end("Stopped at once.", 130)
    if is_lost_process(error):
        reason = str(error).splitlines()[0][:200]
        _end(f"Another process has ended, so this one ends, too ({reason}). {again}", 1)
    if isinstance(error, BrokenPipeError):  # the output pipe was closed, as with `vimco ... | head`
        os._exit(128 + signal.SIGPIPE)
    message = message_of(error)
    if message is not None:
        _end(message, 2)
    traceback.print_exception(error)
    os._exit(1)


def _end(message: str, status: int) -> NoReturn:
    give_up_closed_streams()
    err.quiet = False
    err.print(labelled("Error:", "red", message))
    give_up_closed_streams()  # which also writes what waits in the others
    os._exit(status)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--coordinator is an address like host:1234; got {address}.")
    return host.strip("[]"), int(port)


def _refuse_place(host: str, port: int) -> None:
    """Refuse an address at which process 0 cannot listen: a host without a name, or a port that is taken."""

    def listen() -> None:
        socket.getaddrinfo(host, port)  # a container's own name may come after its start
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("", port))

    reason = _reason_against(listen)
    if reason is not None:
        raise UsageError(f"Process 0 cannot listen at {host}:{port} ({reason}). Choose another --coordinator.")


def _wait_for(host: str, port: int) -> None:
    """Wait until process 0 answers at the address. JAX itself would end this process without a useful message."""
    reason = _reason_against(lambda: socket.create_connection((host, port), timeout=5).close())
    if reason is not None:
        raise UsageError(
            f"No process 0 answers at {host}:{port} after {PATIENCE} s ({reason}). Start it there, or correct "
            "--coordinator."
        )


def _reason_against(attempt: Callable[[], None]) -> str | None:
    """Try until it succeeds, or `PATIENCE` is over; return the reason of the last failure."""
    start = time.monotonic()
    while True:
        try:
            attempt()
            return None
        except OSError as error:
            if time.monotonic() - start > PATIENCE:
                return str(error)
        time.sleep(0.5)
