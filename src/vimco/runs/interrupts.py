"""Signals from the system, collected until somebody has time for them."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collects the first SIGINT or SIGTERM; the next one acts at once, as it would have without us."""
    received: list[int] = []
    before = {name: signal.getsignal(name) or signal.SIG_DFL for name in (signal.SIGINT, signal.SIGTERM)}
    # A signal that is ignored stays so: a shell ignores SIGINT for its background jobs.
    caught = [name for name, handler in before.items() if handler != signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        caught = []  # whoever runs in the main thread handles signals

    def receive(number: int, _frame: object) -> None:
        received.append(number)
        restore()

    def restore() -> None:
        for name in caught:
            signal.signal(name, before[name])

    try:
        for name in caught:
            signal.signal(name, receive)
        yield received
    finally:
        restore()
