"""The command `vimco estimators`: the names that --estimator takes, and the options of each."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from vimco.cli.options import Plugin, print_options
from vimco.cli.terminal import out, print_table
from vimco.estimators import ESTIMATORS


@dataclass(frozen=True)
class Estimators:
    """List the gradient estimators, or explain the options of some."""

    name: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Estimators to explain. Without a name, all are listed."""
    plugin: Plugin = None

    def __call__(self) -> None:
        """Print a table."""
        shown = {name: ESTIMATORS[name] for name in self.name or sorted(ESTIMATORS)}
        rows = [(name, entry.title, entry.help, ", ".join(entry.options)) for name, entry in shown.items()]
        print_table(["name", "title", "what", "options"], rows)
        for name in self.name:
            print_options(ESTIMATORS[name])
        out.print("Options are given as: vimco train --estimator NAME --estimator-options option=value ...")
