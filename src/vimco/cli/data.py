"""The commands `vimco data list` and `vimco data fetch`: parse, call, print."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vimco import data
from vimco.cli.options import Plugin
from vimco.cli.terminal import download_progress, out, print_table


@dataclass(frozen=True)
class DataList:
    """List the data sets that have a name."""

    plugin: Plugin = None

    def __call__(self) -> None:
        """Print a table."""
        rows = []
        for record in data.available():
            sizes = " / ".join(f"{size:,}" for size in record.sizes)
            pixels = f"{record.image_shape[0]} x {record.image_shape[1]}"
            rows.append((record.name, sizes, pixels, record.where, record.description))
        print_table(["name", "train / validation / test", "pixels", "where", "what"], rows)
        out.print("Your own: --data FILE.npy or FILE.npz, images of 0 and 1 (grey levels with --binarize SEED).")


@dataclass(frozen=True)
class DataFetch:
    """Fetch a published data set once, and keep it in the cache."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """The name of the set: see `vimco data list`."""
    from_folder: Annotated[Path | None, tyro.conf.arg(name="from", metavar="FOLDER")] = None
    """Take the published files from this folder instead of the network."""
    plugin: Plugin = None

    def __call__(self) -> None:
        """Fetch the data set, and print its path."""
        with download_progress() as progress:
            path = data.fetch(self.name, self.from_folder, progress)
        out.print(f"{self.name} is ready: {path}")


@dataclass(frozen=True)
class Data:
    """List the data sets, or fetch one."""

    action: Annotated[DataList, tyro.conf.subcommand("list")] | Annotated[DataFetch, tyro.conf.subcommand("fetch")]

    def __call__(self) -> None:
        """Run the subcommand."""
        self.action()
