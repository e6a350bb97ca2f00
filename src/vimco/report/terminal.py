"""A section of a document on a terminal."""

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text as Line

from vimco.errors import printable
from vimco.files import write_file
from vimco.studies.document import Entry, Picture, Section, Table, Text, Versions


class Terminal(Console):
    """A console that prints text literally: without markup or emoji codes, and with control characters as escapes.

    Names and configurations may come from untrusted files, and a terminal obeys control characters.
    """

    def __init__(self, **options: Any):
        super().__init__(highlight=False, markup=False, emoji=False, **{"soft_wrap": True, **options})

    def on_broken_pipe(self) -> None:
        """Leave a closed pipe to the caller: the default is to exit at once, with work that is not saved."""
        raise

    def render_str(self, text: str, **options: Any) -> Line:
        """Return the text of any string, including those in tables, without control characters."""
        return super().render_str(printable(text, "\n\t"), **options)


def print_section(section: Section, folder: Path, out: Console) -> None:
    """Print tables and texts, and write pictures into the folder."""
    for block in section.blocks:
        match block:
            case Table():
                _print_table(block, out)
            case Versions():
                for table in block.tables.values():
                    _print_table(table, out)
            case Picture():
                path = folder / f"{block.name}.{block.kind}"
                write_file(path, block.content)
                out.print(f"Figure: {path}", markup=False)
            case Text():
                out.print(printable(block.text, "\n\t"), markup=False)


def wide(console: Console) -> Console:
    """Return the console, with enough width for any table if the output is a file or a pipe."""
    return console if console.is_terminal else Terminal(width=160, soft_wrap=False)


def _print_table(block: Table, out: Console) -> None:
    table = Grid(title=Line(printable(block.caption)), title_justify="left", box=box.SIMPLE, show_lines=True)
    for i, heading in enumerate(block.headings):
        table.add_column(
            Line(printable(heading)), justify="right" if i else "left", style="dim" if i in block.borrowed else None
        )
    for row in block.rows:
        table.add_row(*(_text(entry) for entry in row))
    wide(out).print(table)


def _text(entry: Entry) -> Line:
    text = Line(printable(entry.text), "bold" if entry.is_best else "")
    if entry.is_best:
        text.append(" *", "not bold")
    return text.append(f"\n{printable(entry.detail)}", "not bold dim") if entry.detail else text
