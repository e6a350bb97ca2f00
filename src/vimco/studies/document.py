"""A document of sections, tables, pictures and commands. `vimco.report` renders it."""

from dataclasses import dataclass
from typing import Literal


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
class Picture:
    """An image, and what it shows in words for those who do not see it."""

    name: str
    kind: Literal["svg", "png"]
    content: bytes
    caption: str
    alternative: str

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


Block = Table | Picture | Text | Commands


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
