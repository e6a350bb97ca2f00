"""The error that this package raises on purpose, a check that raises it, and how text from outside is shown."""

from typing import Any, get_args


class UsageError(ValueError):
    """A mistake that the caller can correct: what is wrong, why, and what to do, in a sentence or two.

    The command line prints it without a traceback and exits with status 2.
    """


def check_choice(what: str, value: str, choices: Any) -> None:
    """Refuse a value that is not among those of a `Literal`."""
    if value not in get_args(choices):
        raise UsageError(f"The {what} is one of {', '.join(get_args(choices))}; got {value!r}.")


def printable(text: str, keep: str = "") -> str:
    """Return the text with unprintable characters as escapes: control characters, undecodable bytes.

    A terminal obeys control characters, including those that reverse the direction of writing.
    """
    return "".join(c if c in keep or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
