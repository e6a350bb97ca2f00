"""Signals from the system, collected until the program can handle them."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

TOGETHER_SECONDS = 0.1  # signals within this time are one request: some job managers send two


class Signals(list[int]):
    """The signals received so far."""

    def __init__(self) -> None:
        super().__init__()
        self.first_at = 0.0
        self.before = {name: signal.getsignal(name) or signal.SIG_DFL for name in (signal.SIGINT, signal.SIGTERM)}
        # An ignored signal stays ignored: a shell ignores SIGINT for its background jobs.
        self.caught = [name for name, handler in self.before.items() if handler != signal.SIG_IGN]
        if threading.current_thread() is not threading.main_thread():
            self.caught = []  # only the main thread can handle signals

    def restore(self) -> None:
        """Restore the previous handlers."""
        for name in self.caught:
            signal.signal(name, self.before[name])

    def receive(self, number: int, _frame: object) -> None:
        """Collect the first signal; later ones act as before."""
        if not self:
            self.append(number)
            self.first_at = time.monotonic()
        elif time.monotonic() - self.first_at >= TOGETHER_SECONDS:
            self.restore()
            signal.raise_signal(number)

    @contextlib.contextmanager
    def end_at_once_on_sigterm(self) -> Iterator[None]:
        """Let SIGTERM end the process at once, even during compilation. Use it while there is nothing to save.

        A Python handler would wait for the compiler. A program with a handler of its own keeps it.
        """
        is_ours = signal.SIGTERM in self.caught and not self and self.before[signal.SIGTERM] == signal.SIG_DFL
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            yield
        finally:
            if is_ours:
                signal.signal(signal.SIGTERM, self.receive)


@contextlib.contextmanager
def collect_signals() -> Iterator[Signals]:
    """Collect the first SIGINT or SIGTERM; the next one acts at once, as usual."""
    signals = Signals()
    try:
        for name in signals.caught:
            signal.signal(name, signals.receive)
        yield signals
    finally:
        signals.restore()
