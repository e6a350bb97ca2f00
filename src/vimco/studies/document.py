"""A document of sections, tables, pictures and commands. `vimco.report` renders it."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vimco.runs.figures import Curve


@dataclass(frozen=True)
class Entry:
    """A cell of a table."""

    text: str
    detail: str = ""  # in small print below
    is_best: bool = False
    is_missing: bool = False
    links_to: str = ""  # the anchor of another entry
    anchor: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under one row of headings; the first entry of a row is its heading."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    borrowed: frozenset[int] = frozenset()  # columns that were not measured here
    prose: frozenset[int] = frozenset()  # columns of sentences or long names, which may be broken


@dataclass(frozen=True)
class Versions:
    """One table in several versions, by what tells them apart. A page shows one at a time."""

    tables: Mapping[str, Table]


@dataclass(frozen=True)
class Plot:
    """What a picture of curves is drawn from: curves against updates in panels, by their titles."""

    quantity: str
    panels: Mapping[str, Sequence[Curve]]
    is_logarithmic: bool = False


@dataclass(frozen=True)
class Picture:
    """An image, and what it shows in words for those who do not see it."""

    name: str
    kind: Literal["svg", "png"]
    content: bytes
    caption: str
    alternative: str
    plot: Plot | None = None

    @property
    def file(self) -> str:
        """The file that holds it beside a Markdown document."""
        return f"figures/{self.name}.{self.kind}"


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Commands:
    """Lines to type, and the configuration behind them, under a name, out of the way until asked for."""

    name: str
    text: str
    lines: tuple[str, ...]
    configuration: str  # JSON


Block = Table | Versions | Picture | Text | Commands


@dataclass(frozen=True)
class Section:
    """A heading and what belongs under it."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]


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
    """Where a document tells of a run: letters, digits and dashes only, and another one for each name."""
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", name)
    suffix = "" if safe == name else "-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"run-{safe}{suffix}"


def short_count(updates: int) -> str:
    """200,000 as 200k, where nothing is lost by it."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if updates >= size and updates % (size // 100) == 0:
            return f"{updates / size:g}{unit}"
    return f"{updates:,}"


def minus(value: float, digits: int = 2) -> str:
    """A number with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")
