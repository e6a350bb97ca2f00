"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import tyro

from vimco.cli.terminal import out, print_table
from vimco.errors import UsageError
from vimco.registry import Named, in_words, text
from vimco.runs.directory import Weights

# `program` imports plugins before it parses a command line, because they extend what the parser accepts. A command
# declares the option only for its help text and the reference.
Plugin = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="FILE_OR_MODULE",
        help="First import your own estimators, models, data sets or studies from this file or module; repeatable.",
    ),
]
OneRun = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="A run directory.")]
Parameters = Annotated[
    Weights,
    tyro.conf.arg(help="Which parameters: the best by validation, the latest, or the best averaged ones."),
]


def print_options(entry: Named) -> None:
    """Print the options of an estimator or a task, if it has any."""
    rows = [
        (option, words, in_words(hint), text(default)) for option, (hint, default, words, _) in entry.options.items()
    ]
    if rows:
        print_table([f"option of {entry.name}", "what", "type", "default"], rows)
    else:
        out.print(f"The {entry.kind} {entry.name} has no options.")


def refuse_missing_folder(option: str, path: Path | None) -> None:
    """Refuse a path that cannot be written, before any work is done."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise UsageError(f"{option} {path}: it is a folder, or its folder does not exist. Name a file to write.")
