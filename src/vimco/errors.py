"""The one kind of error this package raises on purpose."""


class UsageError(ValueError):
    """A mistake that the caller can mend: what is wrong, why, and what to do, in a sentence or two.

    The command line prints it without a traceback and leaves with exit status 2.
    """
