"""A document of sections, tables, pictures and commands. `vimco.report` renders it."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vimco.runs.curve import Curve


@dataclass(frozen=True)
class Entry:
    """A cell of a table."""

    text: str
    detail: str = ""  # in small print below
    is_best: bool = False
    is_missing: bool = False
    links_to: str = ""  # the anchor of another entry
    anchor: str = ""


MISSING = Entry("–", is_missing=True)


@dataclass(frozen=True)
class Table:
    """Rows under one row of headings; the first entry of a row is its heading."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    borrowed: frozenset[int] = frozenset()  # columns that were not measured here
    prose: frozenset[int] = frozenset()  # columns of sentences or long names, which may wrap


@dataclass(frozen=True)
class Versions:
    """Several versions of one table, by title. A page shows one at a time."""

    tables: Mapping[str, Table]


@dataclass(frozen=True)
class Plot:
    """The data of a picture of curves: curves against updates in panels, by their titles."""

    quantity: str
    panels: Mapping[str, Sequence[Curve]]
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Picture:
    """An image and its alternative text."""

    name: str
    kind: Literal["svg", "png"]
    content: bytes
    caption: str
    alternative: str
    plot: Plot | None = None

    @property
    def file(self) -> str:
        """The name of its file beside a Markdown document."""
        return f"figures/{self.name}.{self.kind}"


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    is_said_once: bool = False  # how to read a table, for example: a document leaves its repetitions out


@dataclass(frozen=True)
class Commands:
    """The commands of a run under a name; hidden until opened."""

    name: str
    text: str
    lines: tuple[str, ...]


Block = Table | Versions | Picture | Text | Commands


@dataclass(frozen=True)
class Section:
    """A heading and the blocks under it."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]

    @property
    def links(self) -> set[str]:
        """The anchors that its tables lead to."""
        tables = [t for b in self.blocks for t in (b.tables.values() if isinstance(b, Versions) else [b])]
        rows = [row for table in tables if isinstance(table, Table) for row in table.rows]
        return {entry.links_to for row in rows for entry in row if entry.links_to}

    def renamed(self, suffix: str) -> "Section":
        """Return it with a suffix to its anchor and the names of its pictures."""
        blocks = [replace(b, name=b.name + suffix) if isinstance(b, Picture) else b for b in self.blocks]
        return replace(self, anchor=self.anchor + suffix, blocks=tuple(blocks))


@dataclass(frozen=True)
class Document:
    """A title, a few words, and sections."""

    title: str
    introduction: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def pictures(self) -> list[Picture]:
        """Every picture in it."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Picture)]


def anchor(name: str) -> str:
    """Return the anchor of a run in a document: letters, digits and dashes only, and different for each name."""
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", name)
    suffix = "" if safe == name else "-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"run-{safe}{suffix}"


def short_count(updates: int) -> str:
    """Return 200,000 as 200k, if no digit is lost."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if updates >= size and updates % (size // 100) == 0:
            return f"{updates / size:.10g}{unit}"
    return f"{updates:,}"


def minus(value: float, digits: int = 2) -> str:
    """Return a number with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")
