"""Options that every command has."""

from typing import Annotated

import tyro

# `program` imports plugins before it parses a command line, because they extend what the parser accepts. A command
# declares the option only for its help text and the reference.
Plugin = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="FILE_OR_MODULE",
        help="First import your own estimators, models, data sets or studies from this file or module; repeatable.",
    ),
]
