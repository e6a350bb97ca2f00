"""The command `vimco estimators`: the names that --estimator takes, and the options of each."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.table import Table

from vimco.cli.options import Plugin
from vimco.cli.terminal import out
from vimco.estimators import ESTIMATORS
from vimco.registry import in_words, text
from vimco.report.terminal import wide


@dataclass(frozen=True)
class Estimators:
    """List the gradient estimators, or explain the options of some."""

    name: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Estimators to explain. Without a name, all are listed."""
    plugin: Plugin = None

    def __call__(self) -> None:
        """Print a table."""
        console = wide(out)
        table = Table("name", "title", "what", "options", box=None, pad_edge=False)
        for name in self.name or sorted(ESTIMATORS):
            entry = ESTIMATORS[name]
            table.add_row(name, entry.title, entry.help, ", ".join(entry.options))
        console.print(table)
        for name in self.name:
            options = Table(f"option of {name}", "what", "type", "default", box=None, pad_edge=False)
            for option, (hint, default, help_text, _) in ESTIMATORS[name].options.items():
                options.add_row(option, help_text, in_words(hint), text(default))
            console.print(options)
        out.print("Options are given as: vimco train --estimator NAME --estimator-options option=value ...")
