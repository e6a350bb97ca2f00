"""The command `vimco report`: parse, call, print."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vimco.cli.options import Plugin
from vimco.cli.terminal import note, out
from vimco.errors import UsageError
from vimco.report import write_report


@dataclass(frozen=True)
class Report:
    """Write what runs have shown as one web page, index.html, and as results.md with its figures. Never trains.

    Folders are searched at any depth for run directories, of studies or of `vimco train`; unfinished ones too.
    """

    folder: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER...")]
    output: Path = Path("report")
    """Where to write."""
    remarks: Path | None = None
    """A file of plain paragraphs, which follow the first tables: what a reader of these results should know."""
    plugin: Plugin = None

    def __call__(self) -> None:
        """Write the report, and print its paths."""
        if not self.folder:
            raise UsageError("Name one or more folders that hold run directories.")
        text, page, problems = write_report(self.folder, self.output, self.remarks)
        for problem in problems:
            note(problem)
        out.print(f"Report: {page} (a page for any browser), {text} (with figures/ and runs.json beside it)")
