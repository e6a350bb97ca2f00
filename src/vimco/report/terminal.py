"""A section of a document on a terminal."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from vimco.errors import printable
from vimco.runs.store import write_atomically
from vimco.studies.document import Entry, Picture, Section, Table, Text, Versions


def print_section(section: Section, folder: Path, out: Console) -> None:
    """Prints tables and texts, and writes pictures into the folder."""
    for block in section.blocks:
        match block:
            case Table():
                _print_table(block, out)
            case Versions():
                for table in block.tables.values():
                    _print_table(table, out)
            case Picture():
                path = folder / f"{block.name}.{block.kind}"
                write_atomically(path, block.content)
                out.print(f"Figure: {path}", markup=False)
            case Text():
                out.print(printable(block.text), markup=False)


def wide(console: Console) -> Console:
    """A file or a pipe has no width: give tables the room they need."""
    return console if console.is_terminal else Console(highlight=False, width=160)


def _print_table(block: Table, out: Console) -> None:
    table = Grid(title=escape(printable(block.caption)), title_justify="left", box=box.SIMPLE, show_lines=True)
    for i, heading in enumerate(block.headings):
        table.add_column(
            escape(printable(heading)), justify="right" if i else "left", style="dim" if i in block.borrowed else None
        )
    for row in block.rows:
        table.add_row(*(_text(entry) for entry in row))
    wide(out).print(table)


def _text(entry: Entry) -> str:
    text, detail = escape(printable(entry.text)), escape(printable(entry.detail))
    text = f"[bold]{text}[/] *" if entry.is_best else text
    return f"{text}\n[dim]{detail}[/]" if detail else text
