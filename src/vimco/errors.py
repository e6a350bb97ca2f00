"""The one kind of error this package raises on purpose, and how its words are shown."""


class UsageError(ValueError):
    """A mistake that the caller can mend: what is wrong, why, and what to do, in a sentence or two.

    The command line prints it without a traceback and leaves with exit status 2.
    """


def printable(text: str, keep: str = "") -> str:
    """Return the text with all that would not show written as escapes: control characters, bytes that are no text.

    A terminal obeys control characters, also those that turn the direction of writing.
    """
    return "".join(c if c in keep or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
