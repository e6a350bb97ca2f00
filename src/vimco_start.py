"""The entry point of the program `vimco`, outside the package, because importing the package takes seconds."""

import os
import signal
from typing import NoReturn


def main() -> None:
    """Import and run the program. Ctrl-C during the import ends it as later, with a message and status 130."""
    is_caught = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not ignored, as for background jobs
    if is_caught:
        signal.signal(signal.SIGINT, _stop)
    from vimco.cli import main

    if is_caught:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


def _stop(number: int, _frame: object) -> NoReturn:
    """End at once. An exception could be caught by the module that is being imported, and nothing needs saving yet."""
    os.write(2, b"Stopped.\n")
    os._exit(128 + number)
