"""The error that this package raises on purpose, and how text from outside is shown."""


class UsageError(ValueError):
    """A mistake that the caller can correct: what is wrong, why, and what to do, in a sentence or two.

    The command line prints it without a traceback and exits with status 2.
    """


def printable(text: str, keep: str = "") -> str:
    """Return the text with unprintable characters as escapes: control characters, undecodable bytes.

    A terminal obeys control characters, including those that reverse the direction of writing.
    """
    return "".join(c if c in keep or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
