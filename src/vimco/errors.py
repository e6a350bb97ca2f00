"""The one kind of error this package raises on purpose."""


class UsageError(ValueError):
    """A mistake that the caller can mend: what is wrong, why, and what to do, in a sentence or two.

    The command line prints it without a traceback and leaves with exit status 2.
    """


def printable(text: str) -> str:
    """The text with everything that would not show (control characters, bytes that are no text) written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
