"""The command line: one command, one file; `program` parses and calls them."""

from vimco.cli.program import main

__all__ = ["main"]
